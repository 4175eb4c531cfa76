//! Values as numbers, for files that have types of their own. None for what such a type cannot hold.

use super::number::{self, Numeric};
use super::time::DAY;

/// Days from 1970-01-01 to 2000-01-01, from which PostgreSQL counts.
const EPOCH_DAYS: i32 = 10_957;

/// Days since 1970-01-01.
pub(crate) fn date(b: &[u8]) -> Option<i32> {
    let day = i32::from_le_bytes(*b.first_chunk()?);
    // The ends are the infinities.
    day.checked_add(EPOCH_DAYS).filter(|_| day != i32::MIN)
}

/// Microseconds since 1970-01-01 00:00. The last 30 years that PostgreSQL has, of 294276, are not among them.
pub(crate) fn timestamp(b: &[u8]) -> Option<i64> {
    let us = i64::from_le_bytes(*b.first_chunk()?);
    us.checked_add(i64::from(EPOCH_DAYS) * DAY).filter(|_| us != i64::MIN)
}

/// Microseconds since midnight; 24:00:00 is no time elsewhere.
pub(crate) fn time(b: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(*b.first_chunk()?)).filter(|us| (0..DAY).contains(us))
}

/// A numeric of `precision` digits, `scale` of them behind the point, without its point.
pub(crate) fn decimal(b: &[u8], precision: u8, scale: u8) -> Option<i128> {
    let number = Numeric::parse(b)?.ok()?;
    if let Some(value) = short_decimal(&number, precision, scale) {
        return Some(value);
    }
    let mut value: i128 = 0;
    let mut power = 4 * number.weight + i32::from(scale);
    for group in number.digits.chunks_exact(2) {
        let group = u16::from_le_bytes([group[0], group[1]]);
        if group > 9999 {
            return None;
        }
        value = match power {
            // Digits behind the last one of this scale have to be zeros.
            ..=-4 if group == 0 => value,
            ..=-4 => return None,
            -3..=-1 => {
                let unit = 10u16.pow(power.unsigned_abs());
                if group % unit != 0 {
                    return None;
                }
                value.checked_mul(10i128.pow((4 + power).unsigned_abs()))?.checked_add((group / unit).into())?
            }
            _ => value.checked_mul(10_000)?.checked_add(group.into())?,
        };
        power -= 4;
    }
    // Zeros at the end are not stored.
    if value != 0 {
        match power {
            0.. => value = value.checked_mul(10i128.checked_pow(power.unsigned_abs() + 4)?)?,
            -3..=-1 => value = value.checked_mul(10i128.pow((4 + power).unsigned_abs()))?,
            _ => {}
        }
    }
    let value = if number.negative { -value } else { value };
    (value.unsigned_abs() < 10u128.checked_pow(precision.into())?).then_some(value)
}

/// Of a number with at most four groups of digits, as most have; None when it has more, or does not fit.
#[inline]
fn short_decimal(number: &Numeric<'_>, precision: u8, scale: u8) -> Option<i128> {
    let groups = number.digits.len() / 2;
    if groups > 4 || precision > 18 {
        return None;
    }
    let mut value = 0u64;
    for group in number.digits.chunks_exact(2) {
        let group = u16::from_le_bytes([group[0], group[1]]);
        if group > 9999 {
            return None;
        }
        value = value * 10_000 + u64::from(group);
    }
    // What the last group counts.
    let power = 4 * (number.weight + 1 - groups as i32) + i32::from(scale);
    let unit = *POWERS.get(power.unsigned_abs() as usize)?;
    let value = match power {
        0.. => value.checked_mul(unit)?,
        _ if value.is_multiple_of(unit) => value / unit,
        _ => return None,
    };
    let value = i64::try_from(value).ok().filter(|v| (*v as u64) < POWERS[usize::from(precision)])?;
    Some(i128::from(if number.negative { -value } else { value }))
}

/// Powers of ten that 64 bits hold.
const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut i = 1;
    while i < 20 {
        powers[i] = 10 * powers[i - 1];
        i += 1;
    }
    powers
};

/// Precision and scale that a numeric was declared with, when a decimal of 38 digits can hold it.
pub(crate) fn precision(atttypmod: i32) -> Option<(u8, u8)> {
    let declared = u32::try_from(atttypmod.checked_sub(4)?).ok()?;
    // A scale of 11 bits with a sign since 15; before, and beyond, it never is so large.
    let (precision, scale) = (declared >> 16 & 0xffff, declared & 0x7ff);
    let fits = (1..=38).contains(&precision) && scale <= precision;
    fits.then_some((precision as u8, scale as u8))
}

/// One of PostgreSQL's numbers of fixed width.
pub(crate) fn fixed<const N: usize>(b: &[u8]) -> Option<[u8; N]> {
    b.first_chunk().copied()
}

/// A truth value.
pub(crate) fn bool(b: &[u8]) -> Option<bool> {
    b.first().map(|b| *b != 0)
}

/// An unsigned number of four bytes.
pub(crate) fn u32(b: &[u8]) -> Option<u32> {
    number::u32(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(parts: &[u16]) -> Vec<u8> {
        parts.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    #[test]
    fn decimals_are_exact_or_none() {
        let short = |scale: u16, weight: i32, digits: &[u16]| {
            let header = 0x8000 | scale << 7 | (weight as u16 & 0x3f) | if weight < 0 { 0x40 } else { 0 };
            numeric(&[&[header], digits].concat())
        };
        assert_eq!(decimal(&short(2, 0, &[12, 5000]), 12, 2), Some(1250));
        assert_eq!(decimal(&short(2, 0, &[12, 5000]), 12, 6), Some(12_500_000));
        assert_eq!(decimal(&short(2, 0, &[12, 5000]), 12, 0), None);
        assert_eq!(decimal(&short(0, 2, &[7]), 12, 0), Some(700_000_000));
        assert_eq!(decimal(&short(0, 2, &[7]), 12, 3), Some(700_000_000_000));
        assert_eq!(decimal(&short(0, 2, &[7]), 9, 0), Some(700_000_000));
        assert_eq!(decimal(&short(0, 2, &[7]), 8, 0), None);
        assert_eq!(decimal(&short(9, -2, &[7]), 9, 9), Some(70));
        assert_eq!(decimal(&short(4, -1, &[7]), 9, 4), Some(7));
        assert_eq!(decimal(&short(4, -1, &[70]), 9, 3), Some(7));
        assert_eq!(decimal(&short(4, -1, &[71]), 9, 3), None);
        assert_eq!(decimal(&short(0, 0, &[]), 9, 3), Some(0));
        assert_eq!(decimal(&short(0, 9, &[99; 10]), 38, 0), Some(99_009_900_990_099_009_900_990_099_009_900_990_099));
        assert_eq!(decimal(&short(0, 9, &[99; 10]), 37, 0), None);
        assert_eq!(decimal(&numeric(&[0x4000, 0, 3]), 5, 1), Some(-30));
        for special in [0xc000, 0xd000, 0xf000] {
            assert_eq!(decimal(&numeric(&[special]), 38, 0), None);
        }
        assert_eq!(decimal(&short(0, 0, &[10_000]), 38, 0), None);
        // The short way equals the other, which a precision above 18 takes.
        for digits in [&[1u16][..], &[9999, 9999, 9999, 9999], &[12, 0, 5000], &[1, 0], &[0, 7]] {
            for (weight, scale) in (-5..6).flat_map(|w| (0..=18).map(move |s| (w, s))) {
                let bytes = short(scale, weight, digits);
                let long = decimal(&bytes, 38, scale as u8).filter(|v| v.unsigned_abs() < 10u128.pow(18));
                assert_eq!(decimal(&bytes, 18, scale as u8), long, "{digits:?} {weight} {scale}");
            }
        }
        assert_eq!(decimal(&[], 38, 0), None);
    }

    #[test]
    fn infinities_and_what_lies_behind_the_end_are_none() {
        assert_eq!(date(&0i32.to_le_bytes()), Some(10_957));
        assert_eq!(date(&(-730_120i32).to_le_bytes()), Some(-719_163));
        assert_eq!((date(&i32::MAX.to_le_bytes()), date(&i32::MIN.to_le_bytes())), (None, None));
        assert_eq!(timestamp(&0i64.to_le_bytes()), Some(946_684_800_000_000));
        let last = i64::MAX - 946_684_800_000_000;
        assert_eq!(timestamp(&last.to_le_bytes()), Some(i64::MAX));
        for us in [last + 1, i64::MAX, i64::MIN] {
            assert_eq!(timestamp(&us.to_le_bytes()), None);
        }
        assert_eq!((time(&DAY.to_le_bytes()), time(&(DAY - 1).to_le_bytes())), (None, Some(DAY - 1)));
    }

    #[test]
    fn declared_precisions() {
        assert_eq!(precision((12 << 16 | 2) + 4), Some((12, 2)));
        assert_eq!(precision((38 << 16) + 4), Some((38, 0)));
        assert_eq!(precision(-1), None);
        assert_eq!(precision((39 << 16) + 4), None);
        assert_eq!(precision((2 << 16 | 5) + 4), None);
        assert_eq!(precision((5 << 16 | (-2i32 & 0x7ff)) + 4), None); // numeric(5,-2)
    }
}
