//! Pages of WAL kept as they are in its files, and the records on them.

use leadline_bytes::ReadBuffer;
use leadline_datadir::Lsn;

use crate::page::{LONG, SHORT};
use crate::record::{u32_at, Decoder, Record, HEADER};
use crate::wal::Wal;

/// Pages that a reader has kept: see [`crate::Reader::keep`].
#[derive(Debug)]
pub struct Pages {
    /// Where the first one begins.
    pub from: Lsn,
    /// Behind what was read there is what was in this memory before.
    bytes: ReadBuffer,
    page_size: u64,
    segment_size: u64,
}

impl Pages {
    pub(crate) fn new(log: &Wal, from: Lsn, bytes: ReadBuffer) -> Pages {
        Pages { from, bytes, page_size: log.page_size, segment_size: log.segment_size }
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The memory, to be used again.
    pub fn into_memory(self) -> ReadBuffer {
        self.bytes
    }

    /// The record that begins at an offset ([`crate::Reader::next_kept`]).
    ///
    /// None when no whole record does.
    #[inline]
    pub fn decode<'a>(&'a self, decoder: &'a mut Decoder, at: usize, major: u8) -> Option<Record<'a>> {
        let Decoder { parts, whole } = decoder;
        let (bytes, end) = self.record(at, whole)?;
        if bytes.len() < HEADER {
            return None;
        }
        parts.parse(bytes, major).ok()?;
        Some(parts.record(bytes, bytes.len(), &[], self.from.0 + at as u64, end, major))
    }

    /// The bytes of the record that begins at an offset, and where the next one may begin. Of more than one page it is put together
    /// in `whole`.
    #[inline]
    fn record<'a>(&'a self, at: usize, whole: &'a mut Vec<u8>) -> Option<(&'a [u8], u64)> {
        let start = self.from.0 + at as u64;
        let length = u32_at(&self.bytes, at)? as usize;
        let left = (self.page_size - (start & (self.page_size - 1))) as usize;
        if length <= left {
            return Some((self.bytes.get(at..at + length)?, (start + length as u64 + 7) & !7));
        }
        let end = self.assemble(at, length, left, whole)?;
        Some((whole, (end + 7) & !7))
    }

    /// Puts a record together of which the first page has `left` bytes; gives where it ends.
    fn assemble(&self, mut at: usize, length: usize, mut left: usize, whole: &mut Vec<u8>) -> Option<u64> {
        whole.clear();
        loop {
            let here = left.min(length - whole.len());
            whole.extend_from_slice(self.bytes.get(at..at + here)?);
            at += here;
            let end = self.from.0 + at as u64;
            if whole.len() == length {
                return Some(end);
            }
            let head = if end.is_multiple_of(self.segment_size) { LONG } else { SHORT };
            at += head;
            left = self.page_size as usize - head;
        }
    }
}
