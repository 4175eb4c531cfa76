//! Bits of a page: truth values, and which values there are.

use leadline_parquet::Buffer;

/// Bits one behind the other, the first the lowest of its word.
#[derive(Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    pub count: usize,
    pub ones: usize,
}

impl Bits {
    /// Appends the lowest `count` bits of a word; those above are zeros.
    #[inline]
    pub(super) fn push(&mut self, word: u64, count: usize) {
        let within = self.count % 64;
        match self.words.last_mut() {
            Some(last) if within > 0 => {
                *last |= word << within;
                if within + count > 64 {
                    self.words.push(word >> (64 - within));
                }
            }
            _ if count > 0 => self.words.push(word),
            _ => {}
        }
        self.count += count;
        self.ones += word.count_ones() as usize;
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
        (self.count, self.ones) = (0, 0);
    }

    /// Bytes that they fill.
    pub(super) fn len(&self) -> usize {
        self.count.div_ceil(8)
    }

    pub(super) fn put(&self, out: &mut Buffer) {
        let mut left = self.len();
        for word in &self.words {
            out.put(word.to_le_bytes(), left.min(8));
            left -= left.min(8);
        }
    }

    /// Appends them as definition levels: one run when all are the same, else all bits as they are.
    pub(super) fn levels(&self, out: &mut Buffer) {
        let at = out.len();
        out.put([0; 4], 4);
        if self.ones == 0 || self.ones == self.count {
            out.put_varint((self.count as u64) << 1);
            out.put([u8::from(self.ones > 0)], 1);
        } else {
            out.put_varint((self.len() as u64) << 1 | 1);
            self.put(out);
        }
        let len = (out.len() - at - 4) as u32;
        out.put_at(at, len.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_one_run_or_all_bits() {
        let levels = |bits: &[bool]| {
            let (mut all, mut out) = (Bits::default(), Buffer::default());
            bits.iter().for_each(|bit| all.push(u64::from(*bit), 1));
            all.levels(&mut out);
            out.into_bytes()
        };
        assert_eq!(levels(&[true; 100]), [3, 0, 0, 0, 0xc8, 1, 1]);
        assert_eq!(levels(&[false; 3]), [2, 0, 0, 0, 6, 0]);
        assert_eq!(levels(&[true, false, true, true, true, true, true, true, false, true]), [3, 0, 0, 0, 5, 0xfd, 2]);
    }

    #[test]
    fn words_are_put_together_wherever_they_begin() {
        let mut bits = 88_172_645_463_325_252u64;
        for counts in [[64, 64, 3], [1, 64, 63], [63, 2, 64], [5, 0, 7], [60, 4, 8]] {
            let (mut at_once, mut one_by_one) = (Bits::default(), Bits::default());
            for count in counts {
                bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let word = bits & u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
                at_once.push(word, count);
                (0..count).for_each(|i| one_by_one.push(word >> i & 1, 1));
            }
            assert_eq!((at_once.count, at_once.ones), (one_by_one.count, one_by_one.ones));
            assert_eq!(at_once.words, one_by_one.words);
        }
    }
}
