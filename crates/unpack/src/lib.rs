//! What compressed a file, by its first bytes: an archive may name its files as it likes, and often leaves the name as it was.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod frames;

use std::io::{self, BufRead, Read};

use frames::Frames;

/// How a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Packing {
    /// As it is.
    Plain,
    /// One or more members of gzip.
    Gzip,
    /// A stream of zlib, which no first bytes tell for sure: who reads it knows.
    Zlib,
    /// One or more frames of lz4.
    Lz4,
    /// One or more frames of zstd.
    Zstd,
    /// One or more streams of bzip2.
    Bzip2,
    /// By a program whose files are not read here.
    Other(&'static str),
}

/// First bytes, and whose they are.
const MAGICS: &[(&[u8], Packing)] = &[
    (&[0x1F, 0x8B], Packing::Gzip),
    (&[0x04, 0x22, 0x4D, 0x18], Packing::Lz4),
    (&[0x28, 0xB5, 0x2F, 0xFD], Packing::Zstd),
    (&[0xFD, b'7', b'z', b'X', b'Z'], Packing::Other("xz")),
    (b"BZh", Packing::Bzip2),
    (&[0x89, b'L', b'Z', b'O'], Packing::Other("lzop")),
    (&[0x02, 0x21, 0x4C, 0x18], Packing::Other("an old version of lz4")),
    (&[0x1F, 0x9D], Packing::Other("compress")),
    (b"LZIP", Packing::Other("lzip")),
    (b"\xFF\x06\0\0sNaPpY", Packing::Other("snappy")),
    (b"Salted__", Packing::Other("openssl, which encrypted it")),
    (b"age-encryption.org", Packing::Other("age, which encrypted it")),
];

/// A frame of lz4 or zstd that a reader skips: the last three bytes of its magic.
const SKIPPABLE: [u8; 3] = [0x2A, 0x4D, 0x18];

/// As many first bytes as tell it.
pub const HEAD: usize = 20;

/// Those that are read, as a message lists them.
pub const SUPPORTED: &str = "gzip, lz4, zstd and bzip2";

impl Packing {
    /// By the first bytes of a file; `named` is what its name says, for those that tell nothing.
    pub fn of_bytes(head: &[u8], named: Packing) -> Packing {
        let known = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
        match (known, head) {
            (Some((_, packing)), _) => *packing,
            (None, [0x50..=0x5F, rest @ ..]) if rest.starts_with(&SKIPPABLE) => match named {
                Packing::Lz4 => Packing::Lz4,
                _ => Packing::Zstd,
            },
            _ => named,
        }
    }

    /// What a file unpacks to, from its front and up to its end, however many members it is made of.
    ///
    /// # Errors
    /// When it is compressed by a program whose files are not read here; `Unsupported`, with the name of it.
    pub fn stream<'r>(self, input: impl BufRead + Send + 'r) -> io::Result<Box<dyn Read + Send + 'r>> {
        Ok(match self {
            Packing::Plain => Box::new(input),
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Packing::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(input)),
            Packing::Lz4 => Box::new(Frames::new(input)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
            Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(input)),
            Packing::Other(program) => return Err(io::Error::new(io::ErrorKind::Unsupported, program)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_tell_and_not_the_name() {
        let of = |head: &[u8]| Packing::of_bytes(head, Packing::Lz4);
        assert_eq!(of(&[0x1F, 0x8B, 8, 0]), Packing::Gzip);
        assert_eq!(of(&[0x28, 0xB5, 0x2F, 0xFD]), Packing::Zstd);
        assert_eq!((of(b"BZh9"), of(b"LZIP")), (Packing::Bzip2, Packing::Other("lzip")));
        for nothing in [&b""[..], b"x", &[0; 8]] {
            assert_eq!(of(nothing), Packing::Lz4);
        }
        let skippable = [0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0];
        assert_eq!((of(&skippable), Packing::of_bytes(&skippable, Packing::Plain)), (Packing::Lz4, Packing::Zstd));
    }
}
