//! The bytes of a file of packets: as they are, or unpacked if their first bytes say that they are compressed.

use std::io::{self, Read};

use leadline_errors::{Error, Kind, Result};

/// As many first bytes as tell every kind of compression.
const HEAD: usize = 6;
/// Bytes taken at once from a compressed file.
const PIECE: usize = 1 << 16;

/// Bytes, unpacked.
pub(super) fn unpacked<'a>(mut input: impl Read + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
    let mut head = Vec::new();
    while head.len() < HEAD {
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted && head.is_empty() => return Err(interrupted()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(unreadable(&e)),
        }
    }
    let is = |magic: &[u8]| head.starts_with(magic);
    let (gzip, lz4) = (is(&[0x1F, 0x8B]), is(&[4, 0x22, 0x4D, 0x18]));
    let zstd = is(&[0x28, 0xB5, 0x2F, 0xFD]) || matches!(head[..], [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..]);
    let other = if is(b"\xFD7zXZ\0") { "xz" } else { "bzip2" };
    if other == "xz" || matches!(head[..], [b'B', b'Z', b'h', b'1'..=b'9', ..]) {
        return Err(Error::new(Kind::Unsupported, "this file is compressed in a way that is not read")
            .detail(format!("it is compressed by {other}; gzip, zstd and lz4 are read"))
            .hint(format!("{other} -dc FILE | leadline net packets --pcap -")));
    }
    let input = io::Cursor::new(head).chain(input);
    let pieces = |input| io::BufReader::with_capacity(PIECE, input);
    Ok(match () {
        () if gzip => Box::new(flate2::bufread::MultiGzDecoder::new(pieces(input))),
        () if zstd => Box::new(zstd::stream::read::Decoder::with_buffer(pieces(input)).map_err(|e| unreadable(&e))?),
        () if lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(pieces(input))),
        () => Box::new(input),
    })
}

/// A signal came while bytes were waited for.
pub(super) fn interrupted() -> Error {
    Error::new(Kind::Gone, "interrupted")
}

/// Bytes that cannot be unpacked are damage of the file; anything else is not its fault.
pub(super) fn unreadable(e: &io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match e.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof if e.raw_os_error().is_none() => {
            Error::new(Kind::Invalid, format!("the compressed bytes cannot be unpacked: {e}"))
        }
        _ => Error::new(Kind::Storage, format!("the packets cannot be read: {e}")),
    }
}
