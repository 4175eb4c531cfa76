//! What compressed a file, by its first bytes: an archive may name its files as it likes, and often leaves the name as it was.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use leadline_errors::{Error, Kind, Result};

/// How a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Lz4,
    Zstd,
    /// By a program whose files are not read here.
    Other(&'static str),
}

/// First bytes, and whose they are.
const MAGICS: &[(&[u8], Packing)] = &[
    (&[0x1F, 0x8B], Packing::Gzip),
    (&[0x04, 0x22, 0x4D, 0x18], Packing::Lz4),
    (&[0x28, 0xB5, 0x2F, 0xFD], Packing::Zstd),
    (&[0xFD, b'7', b'z', b'X', b'Z'], Packing::Other("xz")),
    (b"BZh", Packing::Other("bzip2")),
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

impl Packing {
    /// By the first bytes of a file; `named` is what its name says, for those that tell nothing.
    fn of_bytes(head: &[u8], named: Packing) -> Packing {
        let known = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
        match (known, head) {
            (Some((_, packing)), _) => *packing,
            (None, [0x50..=0x5F, rest @ ..]) if rest.starts_with(&SKIPPABLE) => match named {
                Packing::Lz4 => Packing::Lz4,
                _ => Packing::Zstd,
            },
            // The second byte of each magic of the WAL.
            (None, [_, 0xD1, ..]) => Packing::Plain,
            _ => named,
        }
    }

    /// Of an open file.
    pub(crate) fn of(file: &File, named: Packing) -> io::Result<Packing> {
        let mut head = [0; 20];
        let have = file.read_at(&mut head, 0)?;
        Ok(Packing::of_bytes(&head[..have], named))
    }

    /// What the file unpacks to, from its front; none when it is stored as it is.
    pub(crate) fn stream(self, file: File, path: &Path) -> Result<Option<Box<dyn Read + Send>>> {
        Ok(Some(match self {
            Packing::Plain => return Ok(None),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Packing::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(file)),
            Packing::Zstd => Box::new(
                zstd::stream::read::Decoder::new(file).map_err(|e| Error::reading(path, "the compressed file", &e))?,
            ),
            Packing::Other(program) => {
                return Err(Error::new(Kind::Unsupported, "the WAL is compressed in a way that cannot be read")
                    .detail(format!("by {program}; supported: gzip, lz4 and zstd"))
                    .hint("decompress it first")
                    .at(path))
            }
        }))
    }
}

/// Whether the first bytes of a file are those of a compressed one.
///
/// # Errors
/// When it cannot be read.
pub fn is_compressed(path: &Path) -> Result<bool> {
    let packing = File::open(path).and_then(|file| Packing::of(&file, Packing::Plain));
    Ok(packing.map_err(|e| Error::reading(path, "the WAL", &e))? != Packing::Plain)
}

/// The text of a small file, compressed or not, such as the history of a timeline.
///
/// # Errors
/// When it cannot be read, is larger than such a file can be, or is no text.
pub fn small_text(path: &Path) -> Result<String> {
    /// A line of a hundred bytes for each of many timelines.
    const MOST: u64 = 4 << 20;
    let what = "the history of a timeline";
    let file = File::open(path).map_err(|e| Error::reading(path, what, &e))?;
    let packing = Packing::of(&file, Packing::Plain).map_err(|e| Error::reading(path, what, &e))?;
    let plain = file.try_clone().map_err(|e| Error::reading(path, what, &e))?;
    let mut stream = packing.stream(file, path)?.unwrap_or_else(|| Box::new(plain));
    let mut text = String::new();
    let damaged =
        |detail: String| Error::new(Kind::Invalid, "the history file of a timeline is damaged").detail(detail).at(path);
    stream.by_ref().take(MOST + 1).read_to_string(&mut text).map_err(|e| damaged(e.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(damaged(format!("it has more than {MOST} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_tell_and_not_the_name() {
        let of = |head: &[u8]| Packing::of_bytes(head, Packing::Lz4);
        assert_eq!(of(&[0x1F, 0x8B, 8, 0]), Packing::Gzip);
        assert_eq!(of(&[0x28, 0xB5, 0x2F, 0xFD]), Packing::Zstd);
        assert_eq!(of(&[0x18, 0xD1, 7, 0]), Packing::Plain, "a segment that is named .lz4 and is not compressed");
        assert_eq!(of(b"BZh9"), Packing::Other("bzip2"));
        for nothing in [&b""[..], b"x", &[0; 8]] {
            assert_eq!(of(nothing), Packing::Lz4);
        }
        let skippable = [0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0];
        assert_eq!((of(&skippable), Packing::of_bytes(&skippable, Packing::Plain)), (Packing::Lz4, Packing::Zstd));
    }
}
