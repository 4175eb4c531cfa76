//! Segments of the WAL and histories that an archive compressed.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use leadline_errors::{Error, Kind, Result};
use leadline_unpack::{Packing, HEAD, SUPPORTED};

/// How a segment is stored, by its first bytes; `named` is what its name says, for those that tell nothing.
pub(crate) fn packing_of(file: &File, named: Packing) -> io::Result<Packing> {
    let mut head = [0; HEAD];
    let have = file.read_at(&mut head, 0)?;
    Ok(packing_of_bytes(&head[..have], named))
}

fn packing_of_bytes(head: &[u8], named: Packing) -> Packing {
    match (Packing::of_bytes(head, Packing::Plain), head) {
        // The second byte of each magic of the WAL.
        (Packing::Plain, [_, 0xD1, ..]) => Packing::Plain,
        _ => Packing::of_bytes(head, named),
    }
}

/// What a file unpacks to, from its front; none when it is stored as it is.
pub(crate) fn stream(packing: Packing, file: File, path: &Path) -> Result<Option<Box<dyn Read + Send>>> {
    match packing {
        Packing::Plain => Ok(None),
        Packing::Other(program) => {
            Err(Error::new(Kind::Unsupported, "the WAL is compressed in a way that cannot be read")
                .detail(format!("by {program}; supported: {SUPPORTED}"))
                .hint("decompress it first")
                .at(path))
        }
        packing => {
            packing.stream(BufReader::new(file)).map(Some).map_err(|e| Error::reading(path, "the compressed file", &e))
        }
    }
}

/// Whether the first bytes of a file are those of a compressed one.
///
/// # Errors
/// When it cannot be read.
pub fn is_compressed(path: &Path) -> Result<bool> {
    let packing = File::open(path).and_then(|file| packing_of(&file, Packing::Plain));
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
    let packing = packing_of(&file, Packing::Plain).map_err(|e| Error::reading(path, what, &e))?;
    let plain = file.try_clone().map_err(|e| Error::reading(path, what, &e))?;
    let mut stream = stream(packing, file, path)?.unwrap_or_else(|| Box::new(plain));
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
        assert_eq!(packing_of_bytes(&[0x1F, 0x8B, 8, 0], Packing::Lz4), Packing::Gzip);
        let plain = packing_of_bytes(&[0x18, 0xD1, 7, 0], Packing::Lz4);
        assert_eq!(plain, Packing::Plain, "a segment that is named .lz4 and is not compressed");
        assert_eq!(packing_of_bytes(&[0; 8], Packing::Lz4), Packing::Lz4);
    }
}
