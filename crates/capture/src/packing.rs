//! The two integer encodings of Parquet that rows of codes and times shrink well with, for one page at a time.
//!
//! Source: parquet-format, Encodings.md: "Run Length Encoding / Bit-Packing Hybrid" and "Delta Encoding". Written anew
//! because the general encoders cost more CPU per value than a recorder may use.

/// Values of a delta block, and of the miniblocks it has; each miniblock has a bit width of its own.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Bits needed to write `largest`; at least 1.
pub(crate) fn bit_width(largest: u64) -> u32 {
    (u64::BITS - largest.leading_zeros()).max(1)
}

/// Appends `values` as runs and bit-packed groups of eight, `width` (1 to 32) bits each.
pub(crate) fn put_hybrid(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&value) = values.get(at) {
        if values.get(at..at + 8).is_some_and(is_run) {
            let run = 8 + values[at + 8..].iter().take_while(|v| **v == value).count();
            put_varint((run as u64) << 1, out);
            out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
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
        put_varint((packed.len().div_ceil(8) as u64) << 1 | 1, out);
        put_packed(packed, width, out);
    }
}

/// Whether all are the same, without a branch per value.
#[inline]
fn is_run(group: &[u32]) -> bool {
    group.iter().fold(0, |any, value| any | (value ^ group[0])) == 0
}

/// Appends `values` as DELTA_BINARY_PACKED of a column of 64 bits, or of 32 where differences wrap at 32.
pub(crate) fn put_delta(values: &[i64], wide: bool, out: &mut Vec<u8>) {
    put_varint(BLOCK as u64, out);
    put_varint((BLOCK / MINIBLOCK) as u64, out);
    put_varint(values.len() as u64, out);
    put_zigzag(values.first().copied().unwrap_or(0), out);
    let mut above = [0i64; BLOCK];
    let mut at = 0;
    while at + 1 < values.len() {
        let count = (values.len() - 1 - at).min(BLOCK);
        let (before, after) = (&values[at..at + count], &values[at + 1..at + 1 + count]);
        at += count;
        for ((difference, before), after) in above.iter_mut().zip(before).zip(after) {
            *difference = after.wrapping_sub(*before);
        }
        if !wide {
            above.iter_mut().for_each(|difference| *difference = i64::from(*difference as i32));
        }
        let least = above[..count].iter().copied().fold(i64::MAX, i64::min);
        above[..count].iter_mut().for_each(|difference| *difference = difference.wrapping_sub(least));
        above[count..].fill(0);
        put_zigzag(least, out);
        let widths_at = out.len();
        out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
        for (number, miniblock) in above.chunks_exact(MINIBLOCK).enumerate() {
            let any = miniblock.iter().fold(0, |any, value| any | *value as u64);
            if any > 0 {
                let width = bit_width(any);
                out[widths_at + number] = width as u8;
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
fn put_packed<T: Bits>(values: &[T], width: u32, out: &mut Vec<u8>) {
    // Groups are written as whole words, each over the unused end of the one before: room for one word too many.
    const WORD: usize = 16;
    let bytes = width as usize;
    let mut at = out.len();
    let end = at + values.len().div_ceil(8) * bytes;
    out.resize(end + WORD, 0);
    let mut put = |group: [u64; 8]| {
        if width <= 16 {
            let four = |v: &[u64]| v[0] | v[1] << width | v[2] << (2 * width) | v[3] << (3 * width);
            let packed = u128::from(four(&group[..4])) | u128::from(four(&group[4..])) << (4 * width);
            out[at..at + WORD].copy_from_slice(&packed.to_le_bytes());
            at += bytes;
            return;
        }
        let (mut bits, mut held) = (0u128, 0);
        for value in group {
            bits |= u128::from(value) << held;
            held += width;
            if held >= 64 {
                out[at..at + 8].copy_from_slice(&(bits as u64).to_le_bytes());
                at += 8;
                bits >>= 64;
                held -= 64;
            }
        }
        out[at..at + 8].copy_from_slice(&(bits as u64).to_le_bytes());
        at += held as usize / 8;
    };
    let groups = values.chunks_exact(8);
    let rest = groups.remainder();
    groups.for_each(|group| put(std::array::from_fn(|i| group[i].bits())));
    if !rest.is_empty() {
        put(std::array::from_fn(|i| rest.get(i).map_or(0, |v| v.bits())));
    }
    out.truncate(end);
}

fn put_zigzag(value: i64, out: &mut Vec<u8>) {
    put_varint(((value << 1) ^ (value >> 63)) as u64, out);
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
