//! A record as it is put together. Of a long one the front is kept, and its CRC computed as it is read.

use crate::crc::crc_of;
use crate::record::{field, HEADER};

/// A record put together from the parts that pages have of it.
#[derive(Default)]
pub(crate) struct Assembled {
    /// All of it, or the front of a long one.
    pub front: Vec<u8>,
    /// Bytes of the whole.
    pub length: usize,
    /// Once there was more than is kept: the CRC of all behind the header so far.
    crc: u32,
}

impl Assembled {
    pub(crate) fn clear(&mut self) {
        self.front.clear();
        self.length = 0;
    }

    /// Adds the part that follows, of which only what makes `most` bytes is kept.
    pub(crate) fn add(&mut self, part: &[u8], most: usize) {
        let (kept, rest) = part.split_at(part.len().min(most.saturating_sub(self.front.len())));
        let first = self.length == self.front.len();
        self.front.extend_from_slice(kept);
        self.length += part.len();
        if !rest.is_empty() {
            let before = if first { crc32c::crc32c(&self.front[HEADER..]) } else { self.crc };
            self.crc = crc32c::crc32c_append(before, rest);
        }
    }

    /// The CRC of the whole record.
    pub(crate) fn crc(&self) -> u32 {
        if self.length == self.front.len() {
            return crc_of(&self.front);
        }
        crc32c::crc32c_append(self.crc, &self.front[..field::CRC])
    }
}
