//! The two integer encodings of Parquet that rows of codes and times shrink well with, for one page at a time.
//!
//! Source: parquet-format, Encodings.md: "Run Length Encoding / Bit-Packing Hybrid" and "Delta Encoding".

use std::ops::{BitOr, BitXor};

use crate::buffer::Buffer;

/// Values of a delta block, and of the miniblocks it has; each miniblock has a bit width of its own.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// A value of a column, as a signed number. 32 bits without sign keep their bits when narrowed again.
pub trait Int: Copy + Default + Eq + BitXor<Output = Self> + BitOr<Output = Self> {
    /// The value in 64 bits.
    fn wide(self) -> i64;
}

impl Int for i64 {
    #[inline]
    fn wide(self) -> i64 {
        self
    }
}

impl Int for i32 {
    #[inline]
    fn wide(self) -> i64 {
        i64::from(self)
    }
}

impl Int for u32 {
    #[inline]
    fn wide(self) -> i64 {
        i64::from(self as i32)
    }
}

/// Bits needed to write `largest`; at least 1.
pub fn bit_width(largest: u64) -> u32 {
    (u64::BITS - largest.leading_zeros()).max(1)
}

/// Appends `values` as runs and bit-packed groups of eight, `width` (1 to 32) bits each.
pub fn put_hybrid(values: &[u32], width: u32, out: &mut Buffer) {
    let mut at = 0;
    while let Some(&value) = values.get(at) {
        if values.get(at..at + 8).is_some_and(is_run) {
            let run = 8 + values[at + 8..].iter().take_while(|v| **v == value).count();
            out.put_varint((run as u64) << 1);
            out.put(value.to_le_bytes(), width.div_ceil(8) as usize);
            at += run;
            continue;
        }
        // Packed values go on in eights until a run begins; only the very last eight may be short.
        let start = at;
        at += 8;
        while values.get(at..at + 8).is_some_and(|group| !is_run(group)) {
            at += 8;
        }
        if at + 8 > values.len() {
            at = values.len();
        }
        let packed = &values[start..at];
        out.put_varint((packed.len().div_ceil(8) as u64) << 1 | 1);
        put_packed(packed, width, out);
    }
}

/// Whether all are the same, without a branch per value.
#[inline]
fn is_run(group: &[u32]) -> bool {
    group.iter().fold(0, |any, value| any | (value ^ group[0])) == 0
}

/// Appends `values` as DELTA_BINARY_PACKED of a column of 64 bits, or of 32 where differences wrap at 32.
pub fn put_delta<T: Int>(values: &[T], wide: bool, out: &mut Buffer) {
    out.put_varint(BLOCK as u64);
    out.put_varint((BLOCK / MINIBLOCK) as u64);
    out.put_varint(values.len() as u64);
    out.put_zigzag(values.first().map_or(0, |v| v.wide()));
    let mut above = [0i64; BLOCK];
    let mut at = 0;
    while at + 1 < values.len() {
        let count = (values.len() - 1 - at).min(BLOCK);
        let (before, after) = (&values[at..at + count], &values[at + 1..at + 1 + count]);
        at += count;
        for ((difference, before), after) in above.iter_mut().zip(before).zip(after) {
            *difference = after.wide().wrapping_sub(before.wide());
        }
        if !wide {
            above.iter_mut().for_each(|difference| *difference = i64::from(*difference as i32));
        }
        let least = above[..count].iter().copied().fold(i64::MAX, i64::min);
        above[..count].iter_mut().for_each(|difference| *difference = difference.wrapping_sub(least));
        above[count..].fill(0);
        out.put_zigzag(least);
        let widths = [0, 1, 2, 3].map(|i| {
            let any = above[i * MINIBLOCK..(i + 1) * MINIBLOCK].iter().fold(0, |any, value| any | *value as u64);
            u64::BITS - any.leading_zeros()
        });
        out.put(widths.map(|width| width as u8), widths.len());
        for (miniblock, width) in above.chunks_exact(MINIBLOCK).zip(widths) {
            if width > 0 {
                put_packed(miniblock, width, out);
            }
        }
    }
}

/// A value to pack: its bits as an unsigned number.
trait Bits: Copy {
    fn bits(self) -> u64;
}

impl Bits for u32 {
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Bits for i64 {
    fn bits(self) -> u64 {
        self as u64
    }
}

/// Appends values of `width` bits, the first in the lowest bits; the last group of eight is filled up with zeros.
fn put_packed<T: Bits>(values: &[T], width: u32, out: &mut Buffer) {
    let groups = values.chunks_exact(8);
    let rest = groups.remainder();
    for group in groups {
        put_group(std::array::from_fn(|i| group[i].bits()), width, out);
    }
    if !rest.is_empty() {
        put_group(std::array::from_fn(|i| rest.get(i).map_or(0, |v| v.bits())), width, out);
    }
}

/// Appends eight values of `width` bits: `width` bytes.
#[inline]
fn put_group(group: [u64; 8], width: u32, out: &mut Buffer) {
    if width <= 16 {
        let four = |v: &[u64]| v[0] | v[1] << width | v[2] << (2 * width) | v[3] << (3 * width);
        let packed = u128::from(four(&group[..4])) | u128::from(four(&group[4..])) << (4 * width);
        return out.put(packed.to_le_bytes(), width as usize);
    }
    let (mut bits, mut held) = (0u128, 0);
    for value in group {
        bits |= u128::from(value) << held;
        held += width;
        if held >= 64 {
            out.put((bits as u64).to_le_bytes(), 8);
            bits >>= 64;
            held -= 64;
        }
    }
    out.put((bits as u64).to_le_bytes(), held as usize / 8);
}
