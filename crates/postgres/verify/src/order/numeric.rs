//! The order of numerics (src/backend/utils/adt/numeric.c, `cmp_numerics`).

use std::cmp::Ordering;

/// What a numeric is before its digits are looked at, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    MinusInfinity,
    Negative,
    Zero,
    Positive,
    Infinity,
    NaN,
}

/// Digits are of base 10000; the first one counts 10000 to the power of `weight`.
struct Parts<'a> {
    sort: Sort,
    weight: i32,
    digits: &'a [u8],
}

impl Parts<'_> {
    fn of(bytes: &[u8]) -> Option<Parts<'_>> {
        let head = u16::from_le_bytes(*bytes.first_chunk()?);
        let special = |sort| Some(Parts { sort, weight: 0, digits: &[] });
        let (is_negative, weight, mut digits) = match head & 0xc000 {
            0xc000 => {
                return match head & 0xf000 {
                    0xd000 => special(Sort::Infinity),
                    0xf000 => special(Sort::MinusInfinity),
                    _ => special(Sort::NaN),
                }
            }
            0x8000 => {
                let low = i32::from(head & 0x3f);
                (head & 0x2000 != 0, if head & 0x40 != 0 { low - 64 } else { low }, bytes.get(2..)?)
            }
            sign => {
                let weight = i16::from_le_bytes(*bytes.get(2..)?.first_chunk()?);
                (sign == 0x4000, i32::from(weight), bytes.get(4..)?)
            }
        };
        let mut weight = weight;
        while digits.first_chunk() == Some(&[0u8, 0]) {
            digits = &digits[2..];
            weight -= 1;
        }
        if digits.len() < 2 {
            return special(Sort::Zero);
        }
        Some(Parts { sort: if is_negative { Sort::Negative } else { Sort::Positive }, weight, digits })
    }

    fn digit(&self, i: usize) -> u16 {
        self.digits.get(2 * i..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
    }
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> Option<Ordering> {
    let (a, b) = (Parts::of(a)?, Parts::of(b)?);
    let sorts = a.sort.cmp(&b.sort);
    if sorts != Ordering::Equal || !matches!(a.sort, Sort::Negative | Sort::Positive) {
        return Some(sorts);
    }
    let count = a.digits.len().max(b.digits.len()).div_ceil(2);
    let digits = || (0..count).map(|i| a.digit(i).cmp(&b.digit(i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
    let absolute = a.weight.cmp(&b.weight).then_with(digits);
    Some(if a.sort == Sort::Negative { absolute.reverse() } else { absolute })
}
