//! Bytes that seeds are made of: noise of a style, and pages of it that mostly make sense.

use crate::types::SCALARS;
use crate::Random;

/// Bytes of a style: mostly zeros, ones, small numbers or anything.
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
            let at = random.below(out.len() as u64) as usize;
            out[at] = random.next() as u8;
        }
    }
    out
}

pub(crate) fn put(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// A page of random bytes with a header and line pointers that mostly make sense, so that the items are reached.
pub(crate) fn plausible(random: &mut Random, size: usize, special: &[u8]) -> Vec<u8> {
    let mut page: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
    let below = |random: &mut Random, limit: usize| random.below(limit as u64) as usize;
    let items = below(random, 12);
    let lower = 24 + 4 * items;
    let special_at = size - special.len();
    let upper = (lower + below(random, special_at - lower)).next_multiple_of(8).min(special_at);
    page[..24].fill(0);
    put(&mut page, 12, lower as u16);
    put(&mut page, 14, upper as u16);
    put(&mut page, 16, special_at as u16);
    put(&mut page, 18, size as u16 | 4);
    page[special_at..].copy_from_slice(special);
    for i in 0..items {
        let off = upper + below(random, special_at - upper + 1) / 8 * 8;
        let len = below(random, special_at.saturating_sub(off) + 9);
        let flags = if random.below(4) == 0 { random.below(4) as u32 } else { 1 };
        let lp = (off & 0x7fff) as u32 | flags << 15 | (len as u32 & 0x7fff) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&lp.to_le_bytes());
    }
    page
}

/// Where a type stands among those that the columns of a table are chosen from.
pub(crate) fn column(oid: u32) -> u8 {
    SCALARS.iter().position(|known| *known == oid).expect("a known type") as u8
}
