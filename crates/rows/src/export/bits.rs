//! Bits of a page: truth values, and which values there are.

use leadline_parquet::Encoded;

/// Bits one behind the other, the first the lowest of its byte.
#[derive(Default)]
pub(super) struct Bits {
    pub bytes: Vec<u8>,
    pub count: usize,
    pub ones: usize,
}

impl Bits {
    #[inline]
    pub(super) fn push(&mut self, bit: bool) {
        let within = self.count % 8;
        if within == 0 {
            self.bytes.push(u8::from(bit));
        } else if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << within;
        }
        self.count += 1;
        self.ones += usize::from(bit);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.ones) = (0, 0);
    }

    /// Appends them as definition levels: one run when all are the same, else all bits as they are.
    pub(super) fn levels(&self, encoded: &mut Encoded, out: &mut Vec<u8>) {
        encoded.start(0);
        let bits = if self.ones == 0 || self.ones == self.count {
            encoded.put_varint((self.count as u64) << 1);
            encoded.put([u8::from(self.ones > 0)], 1);
            &[]
        } else {
            encoded.put_varint((self.bytes.len() as u64) << 1 | 1);
            self.bytes.as_slice()
        };
        let len = (encoded.bytes().len() + bits.len()) as u32;
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(encoded.bytes());
        out.extend_from_slice(bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_one_run_or_all_bits() {
        let levels = |bits: &[bool]| {
            let (mut all, mut out) = (Bits::default(), Vec::new());
            bits.iter().for_each(|bit| all.push(*bit));
            all.levels(&mut Encoded::default(), &mut out);
            out
        };
        assert_eq!(levels(&[true; 100]), [3, 0, 0, 0, 0xc8, 1, 1]);
        assert_eq!(levels(&[false; 3]), [2, 0, 0, 0, 6, 0]);
        assert_eq!(levels(&[true, false, true, true, true, true, true, true, false, true]), [3, 0, 0, 0, 5, 0xfd, 2]);
    }
}
