//! A buffer that a kernel copies into at full speed.

use std::ops::{Deref, DerefMut};

/// Bytes of a memory page.
const PAGE: usize = 4096;

/// Bytes to read files or memory into, at the beginning of a memory page.
///
/// Large blocks of the allocator begin 16 bytes behind the beginning of a page, and there, of all places, some processors
/// copy from the page cache at a sixth of their speed: `pread` of 256 kB took 290 us instead of 62 us on an AMD EPYC
/// (bench/runs/2026-11-23-3).
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl ReadBuffer {
    /// One of `len` zeros.
    pub fn new(len: usize) -> ReadBuffer {
        let bytes = vec![0; len + PAGE];
        // An interpreter may refuse to align; then the buffer is only slower.
        let start = Some(bytes.as_ptr().align_offset(PAGE)).filter(|start| *start < PAGE).unwrap_or(0);
        ReadBuffer { bytes, start, len }
    }
}

impl Clone for ReadBuffer {
    fn clone(&self) -> ReadBuffer {
        let mut copy = ReadBuffer::new(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for ReadBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_memory_page_and_has_the_length_asked_for() {
        for len in [0, 1, 8192, 1 << 18] {
            let mut buffer = ReadBuffer::new(len);
            assert_eq!((buffer.as_ptr() as usize % PAGE, buffer.len()), (0, len));
            buffer.fill(7);
            let copy = buffer.clone();
            assert_eq!((copy.as_ptr() as usize % PAGE, copy.iter().filter(|b| **b == 7).count()), (0, len));
        }
        assert!(ReadBuffer::default().is_empty());
    }
}
