//! Numbers, bytes and pages that are the same in every run: what tests and fuzz seeds are made of.
//!
//! It depends on nothing, so that the tests of every crate can use it.
//!
//! ```
//! use leadline_testdata::{noise, Random};
//! assert_eq!(noise(&mut Random(1), 100), noise(&mut Random(1), 100));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// A generator of numbers (splitmix64), made of its seed.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait)] // an iterator would have an end to ask for
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A place among `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

/// Bytes of a style: mostly zeros, ones, small numbers or anything. Counts and lengths are made of such bytes.
pub fn noise(random: &mut Random, length: usize) -> Vec<u8> {
    let style = random.below(4);
    let mut out: Vec<u8> = (0..length)
        .map(|_| match style {
            0 => 0,
            1 => 0xFF,
            2 => random.below(4) as u8,
            _ => random.next() as u8,
        })
        .collect();
    for _ in 0..random.below(8) {
        if !out.is_empty() {
            let at = random.index(out.len());
            out[at] = random.next() as u8;
        }
    }
    out
}

/// Writes two bytes of a page, as PostgreSQL has them.
pub fn put(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// A page of PostgreSQL: random bytes with a header and line pointers that mostly make sense, so that the items are reached.
pub fn plausible(random: &mut Random, size: usize, special: &[u8]) -> Vec<u8> {
    let mut page: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
    let items = random.index(12);
    let lower = 24 + 4 * items;
    let special_at = size - special.len();
    let upper = (lower + random.index(special_at - lower)).next_multiple_of(8).min(special_at);
    page[..24].fill(0);
    put(&mut page, 12, lower as u16);
    put(&mut page, 14, upper as u16);
    put(&mut page, 16, special_at as u16);
    put(&mut page, 18, size as u16 | 4);
    page[special_at..].copy_from_slice(special);
    for i in 0..items {
        let off = upper + random.index(special_at - upper + 1) / 8 * 8;
        let len = random.index(special_at.saturating_sub(off) + 9);
        let flags = if random.below(4) == 0 { random.below(4) as u32 } else { 1 };
        let lp = (off & 0x7fff) as u32 | flags << 15 | (len as u32 & 0x7fff) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&lp.to_le_bytes());
    }
    page
}
