//! The files of WAL: their names, and their bytes, compressed or not.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use leadline_datadir::Lsn;
use leadline_errors::{Error, Result};
use leadline_unpack::Packing;

use crate::archive::own_name;
use crate::unpack::{packing_of, stream};

/// A file that by its name is a segment: 24 hexadecimal digits, `.partial`, and what an archive adds to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentFile {
    pub path: PathBuf,
    /// Timeline in the name.
    pub tli: u32,
    /// The last two groups of digits: which segment it is depends on the size of segments.
    high: u32,
    low: u32,
    pub partial: bool,
    /// What its name says of how it is stored; what its bytes say counts.
    pub named: Packing,
}

impl SegmentFile {
    /// Reads a name; none when the file is something else (history, backup label, temporary file).
    pub(crate) fn from_path(path: &Path) -> Option<SegmentFile> {
        let mut name = path.file_name()?.to_str()?;
        // What pg_receivewal has not received whole it calls NAME.gz.partial; who packs a .partial gets NAME.partial.gz.
        let mut partial = strip(&mut name, ".partial");
        let (mut digits, named) = own_name(name);
        partial |= strip(&mut digits, ".partial");
        if digits.len() != 24 || !digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)) {
            return None;
        }
        let part = |at: usize| u32::from_str_radix(&digits[at..at + 8], 16).ok();
        let (tli, high, low) = (part(0)?, part(8)?, part(16)?);
        Some(SegmentFile { path: path.to_owned(), tli, high, low, partial, named })
    }

    /// The number of the segment, counted from the beginning of the WAL; none when no WAL with segments of this size has it.
    pub(crate) fn number(&self, seg_size: u64) -> Option<u64> {
        let per_high = 0x1_0000_0000 / seg_size;
        let number = u64::from(self.high) * per_high + u64::from(self.low);
        // The end of the very last segment, and of the one after, would be beyond 64 bits.
        let ends = number.checked_add(2)?.checked_mul(seg_size).is_some();
        (u64::from(self.low) < per_high && ends).then_some(number)
    }

    pub(crate) fn open(&self) -> Result<SegmentReader> {
        // Asked before it is opened: to open a pipe is to wait for somebody who writes.
        let about = std::fs::metadata(&self.path).map_err(|e| self.failed(&e))?;
        if !about.is_file() {
            return Err(Error::new(leadline_errors::Kind::Invalid, "the segment is not a regular file")
                .hint("copy its contents to a file first")
                .at(self.path.display().to_string()));
        }
        let file = File::open(&self.path).map_err(|e| self.failed(&e))?;
        let bytes = match packing_of(&file, self.named).map_err(|e| self.failed(&e))? {
            Packing::Plain => Stored::Plain(file),
            _ => Stored::Packed { stream: Unpacked::open(self)?, done: 0 },
        };
        Ok(SegmentReader { segment: self.clone(), bytes })
    }

    /// Whether it can be read from the middle.
    pub(crate) fn is_plain(&self) -> bool {
        let found = File::open(&self.path).and_then(|file| packing_of(&file, self.named));
        found.unwrap_or(self.named) == Packing::Plain
    }

    /// Whether the server removed it, or renamed it to take it for new log.
    pub(crate) fn is_gone(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    /// Why it cannot be opened: its name was there when the folder was listed.
    fn failed(&self, e: &io::Error) -> Error {
        if self.is_gone() {
            return moved_on(&self.path);
        }
        Error::reading(&self.path, "the WAL", e)
    }

    /// A place in this file for people.
    pub(crate) fn place(&self, offset: u64, lsn: Lsn) -> String {
        let unpacked = if self.is_plain() { "" } else { " of the decompressed file" };
        format!("{} offset {offset}{unpacked}, LSN {lsn}", self.path.display())
    }
}

/// Takes a suffix off a name; whether it had it.
fn strip(name: &mut &str, suffix: &str) -> bool {
    let stem = name.strip_suffix(suffix);
    *name = stem.unwrap_or(name);
    stem.is_some()
}

/// What a file unpacks to, from its front.
struct Unpacked {
    stream: Box<dyn Read + Send>,
    /// The file may end in the middle of what was compressed.
    partial: bool,
}

impl Unpacked {
    fn open(segment: &SegmentFile) -> Result<Unpacked> {
        let io = |e| segment.failed(&e);
        let file = File::open(&segment.path).map_err(io)?;
        let packing = packing_of(&file, segment.named).map_err(io)?;
        // It was packed a moment ago.
        let stream = stream(packing, file, &segment.path)?.ok_or_else(|| moved_on(&segment.path))?;
        Ok(Unpacked { stream, partial: segment.partial })
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Err(e) if self.partial && e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}

/// An open segment.
pub(crate) struct SegmentReader {
    segment: SegmentFile,
    bytes: Stored,
}

enum Stored {
    Plain(File),
    /// Read from the front only: going back begins anew.
    Packed {
        stream: Unpacked,
        done: u64,
    },
}

impl SegmentReader {
    /// Fills `buffer` from an offset; fewer bytes only at the end of the file.
    pub(crate) fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let outcome = match &mut self.bytes {
            Stored::Plain(file) => fill(buffer, |part, done| file.read_at(part, offset + done as u64)),
            Stored::Packed { stream, done } => {
                if *done > offset {
                    (*stream, *done) = (Unpacked::open(&self.segment)?, 0);
                }
                let skipped = io::copy(&mut stream.by_ref().take(offset - *done), &mut io::sink());
                skipped.and_then(|skipped| {
                    *done += skipped;
                    let read = fill(buffer, |part, _| stream.read(part))?;
                    *done += read as u64;
                    Ok(read)
                })
            }
        };
        outcome.map_err(|e| match (&self.bytes, e.raw_os_error()) {
            (Stored::Packed { .. }, None) => {
                Error::new(leadline_errors::Kind::Invalid, "the compressed segment is damaged")
                    .detail(e.to_string())
                    .at(self.segment.path.display().to_string())
            }
            _ => Error::reading(&self.segment.path, "the WAL", &e),
        })
    }
}

/// Reads until the buffer is full or there is no more.
fn fill(buffer: &mut [u8], mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match read(&mut buffer[done..], done) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// A segment that was there is not there any more.
pub(crate) fn moved_on(path: &Path) -> Error {
    Error::new(leadline_errors::Kind::Gone, "the WAL moved on while being read")
        .detail("the server removed or recycled a segment")
        .hint("run the command again, for a later part of the WAL; or read the archive")
        .at(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments() {
        let of = |name: &str| SegmentFile::from_path(Path::new(name));
        let found = of("/a/0000000200000001000000FE.partial.zst").unwrap();
        assert_eq!((found.tli, found.partial, found.named), (2, true, Packing::Zstd));
        assert_eq!(found.number(16 << 20), Some(0x1FE));
        assert_eq!(found.number(64 << 20), None, "with segments of 64 MB the last group ends at 3F");
        assert_eq!(of("000000010000000000000001.gz").unwrap().named, Packing::Gzip);
        let received = of("000000010000000000000001.lz4.partial").unwrap();
        assert_eq!(
            (received.partial, received.named, received.low),
            (true, Packing::Lz4, 1),
            "as pg_receivewal names it"
        );
        let archived = of("/a/0000000200000001000000FE-a9993e364706816aba3e25717850c26c9cd0d89d.lz4").unwrap();
        assert_eq!((archived.tli, archived.number(16 << 20), archived.named), (2, Some(0x1FE), Packing::Lz4));
        for other in [
            "00000002.history",
            "000000010000000000000001.gz.lz4",
            "000000010000000000000001.00000028.backup",
            "xlogtemp.12",
            "00000001000000000000000a",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
