//! Bytes that are put one behind the other, a word at a time.

/// A buffer with room behind its end, so that a few bytes are put as a whole word, whose length the compiler knows, and what was too
/// much of it is written over.
#[derive(Debug, Clone, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    at: usize,
}

impl From<Vec<u8>> for Buffer {
    /// Empty, with the bytes of `room` as its room.
    fn from(room: Vec<u8>) -> Buffer {
        Buffer { bytes: room, at: 0 }
    }
}

impl Buffer {
    /// What was put.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.at]
    }

    /// Bytes that were put.
    #[inline]
    pub fn len(&self) -> usize {
        self.at
    }

    /// Whether nothing was put.
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// What was put, and the room behind it.
    pub fn into_room(self) -> Vec<u8> {
        self.bytes
    }

    /// What was put.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.at);
        self.bytes.shrink_to_fit();
        self.bytes
    }

    /// Keeps the first `len` bytes, and the room.
    pub fn truncate(&mut self, len: usize) {
        self.at = self.at.min(len);
    }

    /// Gives room back that is beyond `most` bytes.
    pub fn shrink_to(&mut self, most: usize) {
        let most = most.max(self.at);
        if self.bytes.capacity() > most {
            self.bytes.truncate(most);
            self.bytes.shrink_to(most);
        }
    }

    /// Room for `len` bytes behind the end, whatever they are. They count when [`Buffer::used`] says so.
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.at < len {
            self.grow(len);
        }
        &mut self.bytes[self.at..self.at + len]
    }

    /// Appends the first `len` bytes of the room.
    #[inline]
    pub fn used(&mut self, len: usize) {
        debug_assert!(self.at + len <= self.bytes.len());
        self.at += len;
    }

    /// Little by little when there is much, so that little is filled in vain.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        let len = self.at + more;
        self.bytes.resize(len + len.clamp(64, 1 << 20), 0);
    }

    /// Appends the first `used` bytes of `word`.
    #[inline]
    pub fn put<const N: usize>(&mut self, word: [u8; N], used: usize) {
        self.room(N).copy_from_slice(&word);
        self.at += used;
    }

    /// Appends bytes. Short ones, as most are, are copied in line.
    #[inline]
    pub fn put_slice(&mut self, bytes: &[u8]) {
        match bytes.len() {
            0 => {}
            1 => self.put([bytes[0]], 1),
            2..4 => self.put_ends::<2>(bytes),
            4..8 => self.put_ends::<4>(bytes),
            8..16 => self.put_ends::<8>(bytes),
            16..=32 => self.put_ends::<16>(bytes),
            len => {
                self.room(len).copy_from_slice(bytes);
                self.at += len;
            }
        }
    }

    /// Appends N to 2 N bytes.
    #[inline]
    fn put_ends<const N: usize>(&mut self, bytes: &[u8]) {
        if let Some((first, last)) = ends::<N>(bytes) {
            let room = self.room(bytes.len());
            room[..N].copy_from_slice(&first);
            room[bytes.len() - N..].copy_from_slice(&last);
            self.at += bytes.len();
        }
    }

    /// Writes over bytes that were put.
    #[inline]
    pub fn put_at<const N: usize>(&mut self, at: usize, word: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&word);
    }

    /// Appends a number in groups of seven bits, the lowest first.
    pub fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put([value as u8 | 0x80], 1);
            value >>= 7;
        }
        self.put([value as u8], 1);
    }

    pub(crate) fn put_zigzag(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)) as u64);
    }
}

/// The first and the last N bytes. Of N to 2 N bytes they are all, without a loop, though the length is not known beforehand.
#[inline]
pub fn ends<const N: usize>(bytes: &[u8]) -> Option<([u8; N], [u8; N])> {
    Some((*bytes.first_chunk()?, *bytes.last_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_are_copied() {
        let bytes: Vec<u8> = (1..=200).collect();
        for len in 0..=bytes.len() {
            let mut out = Buffer::default();
            out.put(*b"ab", 2);
            out.put_slice(&bytes[..len]);
            out.put(*b"cd", 1);
            assert_eq!(out.bytes(), [b"ab", &bytes[..len], b"c"].concat());
        }
    }

    #[test]
    fn room_that_is_kept_is_used_again() {
        let mut out = Buffer::default();
        out.room(3).copy_from_slice(b"xyz");
        out.used(2);
        out.put_varint(300);
        out.put_at(1, *b"-");
        assert_eq!(out.bytes(), [b'x', b'-', 0xac, 2]);
        out.truncate(1);
        out.shrink_to(0);
        assert_eq!((out.bytes(), out.bytes.len()), (&b"x"[..], 1));
        let mut again = Buffer::from(out.into_room());
        assert!(again.is_empty());
        again.put_slice(b"long enough that it needs more room than there is");
        assert_eq!(again.len(), 49);
        assert_eq!(again.into_bytes().len(), 49);
    }
}
