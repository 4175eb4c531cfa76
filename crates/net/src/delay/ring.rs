//! Bytes on their way: a ring that grows up to a bound, and never shrinks.

/// A queue of bytes.
pub(super) struct Ring {
    data: Vec<u8>,
    head: usize,
    len: usize,
    most: usize,
}

const FIRST: usize = 64 << 10;

impl Ring {
    /// Holds at most `most` bytes.
    pub(super) fn new(most: usize) -> Ring {
        Ring { data: Vec::new(), head: 0, len: 0, most: most.max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many more it takes.
    pub(super) fn room(&self) -> usize {
        self.most - self.len
    }

    /// Free memory behind the last byte, of which `filled` then says how much is used; empty only without room.
    pub(super) fn free(&mut self) -> &mut [u8] {
        if self.len == self.data.len() {
            self.grow();
        }
        if self.len == 0 {
            self.head = 0; // the same memory again: it is in the cache
        }
        let size = self.data.len();
        let (from, to) = match self.head + self.len {
            at if at < size => (at, size),
            at => (at - size, self.head),
        };
        &mut self.data[from..to]
    }

    pub(super) fn filled(&mut self, n: usize) {
        self.len += n;
    }

    /// The first bytes, at most `n`: as many as lie behind one another.
    pub(super) fn front(&self, n: usize) -> &[u8] {
        let n = n.min(self.len).min(self.data.len() - self.head);
        &self.data[self.head..self.head + n]
    }

    pub(super) fn drop_front(&mut self, n: usize) {
        self.len -= n;
        self.head += n;
        if self.head >= self.data.len() {
            self.head -= self.data.len();
        }
    }

    fn grow(&mut self) {
        let size = (2 * self.data.len()).clamp(FIRST, self.most.max(FIRST)).min(self.most);
        let mut data = Vec::with_capacity(size);
        data.extend_from_slice(&self.data[self.head..]);
        data.extend_from_slice(&self.data[..self.head]);
        data.resize(size, 0);
        (self.data, self.head) = (data, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_the_order_they_went_in_while_it_turns_and_grows() {
        let (mut ring, mut put, mut got) = (Ring::new(200_000), 0_u64, 0_u64);
        let mut step = 1_usize;
        for _ in 0..20_000 {
            step = (step * 7919 + 13) % 9_001;
            let free = ring.free();
            let n = free.len().min(step);
            for byte in &mut free[..n] {
                *byte = put as u8;
                put += 1;
            }
            ring.filled(n);
            let front = ring.front(step * 2 / 3 + 1);
            let n = front.len();
            for byte in front {
                assert_eq!(*byte, got as u8);
                got += 1;
            }
            ring.drop_front(n);
        }
        assert!(put > 10_000_000 && put - got == ring.len() as u64, "{put} {got}");
        assert!(ring.len() <= 200_000);
    }

    #[test]
    fn it_is_full_at_its_bound() {
        let mut ring = Ring::new(100_000);
        while ring.room() > 0 {
            let n = ring.free().len();
            assert!(n > 0);
            ring.filled(n);
        }
        assert_eq!((ring.len(), ring.free().len()), (100_000, 0));
    }
}
