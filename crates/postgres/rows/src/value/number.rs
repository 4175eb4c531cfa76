//! Numbers.

use std::fmt::LowerExp;
use std::str::FromStr;

use super::{show, Text};

/// Four digits of a number below 10000; of any other, four bytes.
#[inline]
fn four(value: u16) -> u32 {
    // Two numbers below 100 side by side, then their tens and ones. 103 / 1024 is a tenth for them.
    let pairs = u32::from(value / 100) | u32::from(value % 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f;
    tens | (pairs - tens * 10) << 8 | 0x3030_3030
}

/// How many of four digits are zeros before the first that is none, but for the last.
#[inline]
fn leading_zeros(value: u16) -> usize {
    usize::from(value < 1000) + usize::from(value < 100) + usize::from(value < 10)
}

/// A number with at least so many digits, of which it never has more than 20.
pub(crate) fn unsigned(mut value: u64, least: usize, out: &mut Text) -> Option<()> {
    if value < 10_000 && least <= 4 {
        let zeros = leading_zeros(value as u16).min(4 - least);
        out.push_word((four(value as u16) >> (8 * zeros)).to_le_bytes(), 4 - zeros);
        return Some(());
    }
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while value >= 10_000 {
        at -= 4;
        digits[at..at + 4].copy_from_slice(&four((value % 10_000) as u16).to_le_bytes());
        value /= 10_000;
    }
    at -= 4;
    digits[at..at + 4].copy_from_slice(&four(value as u16).to_le_bytes());
    at += leading_zeros(value as u16);
    out.push_part(&digits[at.min(digits.len().saturating_sub(least))..]);
    Some(())
}

pub(super) fn signed(value: i64, out: &mut Text) -> Option<()> {
    if value < 0 {
        out.push('-');
    }
    unsigned(value.unsigned_abs(), 1, out)
}

pub(crate) fn u32(b: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*b.first_chunk()?))
}

pub(super) fn f64(b: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(*b.first_chunk()?))
}

/// A float of four or eight bytes.
pub(super) trait Float: LowerExp + Into<f64> + Copy + FromStr + PartialEq {
    /// Bits of the mantissa, with the one that is not stored.
    const BITS: i32;
    /// Exponent of the smallest number that is not zero.
    const LEAST: i32;
}

impl Float for f32 {
    const BITS: i32 = 24;
    const LEAST: i32 = -149;
}

impl Float for f64 {
    const BITS: i32 = 53;
    const LEAST: i32 = -1074;
}

/// `value` = mantissa * 2^exponent, for a positive finite number.
fn parts<F: Float>(value: F) -> (u64, i32) {
    let bits = Into::<f64>::into(value).abs().to_bits();
    let (stored, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    // A float of four bytes is never subnormal among those of eight.
    let (mut mantissa, mut exponent) =
        if stored == 0 { (fraction, -1074) } else { (fraction | 1 << 52, stored - 1075) };
    let drop = (53 - F::BITS).max(F::LEAST - exponent);
    mantissa >>= drop.min(63);
    exponent += drop;
    (mantissa, exponent)
}

/// Whether digits * 10^power is exactly mantissa * 2^exponent.
fn is_same(digits: u128, power: i32, mantissa: u128, exponent: i32) -> bool {
    let Some(fives) = 5u128.checked_pow(power.unsigned_abs()) else { return false };
    let sides = if power >= 0 {
        (digits.checked_mul(fives), Some(mantissa))
    } else {
        (Some(digits), mantissa.checked_mul(fives))
    };
    let (Some(left), Some(right)) = sides else { return false };
    let (l, r) = (left.trailing_zeros(), right.trailing_zeros());
    left >> l == right >> r && l as i32 + power == r as i32 + exponent
}

/// Whether a number in decimal lies exactly in the middle between `value` and a neighbour of it.
fn is_in_the_middle<F: Float>(text: &str, value: F) -> bool {
    let parsed = || {
        let (digits, exponent) = text.trim_start_matches('-').split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let power = exponent.parse::<i32>().ok()? - fraction.len() as i32;
        Some((format!("{whole}{fraction}").parse::<u128>().ok()?, power))
    };
    let Some((digits, power)) = parsed() else { return false };
    let (mantissa, exponent) = parts(value);
    let m = u128::from(mantissa);
    let above = (2 * m + 1, exponent - 1);
    // Below a power of two the neighbours are twice as near.
    let is_power = mantissa == 1 << (F::BITS - 1) && exponent > F::LEAST;
    let below = if is_power { (4 * m - 1, exponent - 2) } else { (2 * m - 1, exponent - 1) };
    [above, below].iter().any(|(mantissa, exponent)| is_same(digits, power, *mantissa, *exponent))
}

/// The fewest digits that give the same number again, as the server chooses them: of two that are equally near the even one,
/// and none that is in the middle between two floats, of which it depends on the reader which one it becomes.
fn shortest<F: Float>(value: F) -> String {
    let first = format!("{value:e}");
    let (mantissa, exponent) = parts(value);
    let odd = exponent + mantissa.trailing_zeros() as i32;
    // Where neither can happen: 17 digits and one more have at least so many bits behind the point.
    if F::BITS == 53 && odd < -25 && Into::<f64>::into(value).abs() < (1u64 << 50) as f64 {
        return first;
    }
    let digits = first.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count();
    for behind in digits - 1..17 {
        let even = format!("{value:.behind$e}");
        let candidate = if even.parse().ok() == Some(value) || behind >= digits { even } else { first.clone() };
        if !is_in_the_middle(&candidate, value) {
            return candidate;
        }
    }
    first
}

/// The fewest digits; with an exponent below 1e-4 and from 1e`most` on.
pub(super) fn float<F: Float>(value: F, most: i32, out: &mut Text) -> Option<()> {
    let wide: f64 = value.into();
    if !wide.is_finite() {
        out.push_str(if wide.is_nan() {
            "NaN"
        } else if wide > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        });
        return Some(());
    }
    let shortest = if wide == 0.0 { format!("{value:e}") } else { shortest(value) };
    let (digits, exponent) = shortest.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    if wide != 0.0 && (exponent < -4 || exponent >= most) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return show(format_args!("{digits}e{sign}{:02}", exponent.abs()), out);
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |d| ("-", d));
    let digits: String = digits.chars().filter(|c| *c != '.').collect();
    out.push_str(sign);
    if exponent < 0 {
        out.push_str("0.");
        out.extend((1..-exponent).map(|_| '0'));
        out.push_str(&digits);
        return Some(());
    }
    let whole = exponent as usize + 1;
    out.extend((0..whole).map(|i| digits.as_bytes().get(i).map_or('0', |d| char::from(*d))));
    if digits.len() > whole {
        out.push('.');
        out.push_str(&digits[whole..]);
    }
    Some(())
}

/// Hundredths, as the C locale prints them.
pub(super) fn money(b: &[u8], out: &mut Text) -> Option<()> {
    let cents = i64::from_le_bytes(*b.first_chunk()?);
    let all = cents.unsigned_abs();
    out.push_str(if cents < 0 { "-$" } else { "$" });
    let whole = (all / 100).to_string();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    show(format_args!(".{:02}", all % 100), out)
}

/// A numeric taken apart: digits of base 10000 behind a header of two or four bytes (numeric.c).
#[allow(missing_docs)]
pub struct Numeric<'a> {
    pub negative: bool,
    /// Decimal digits behind the point.
    pub scale: usize,
    /// The first digit counts 10000 to the power of this.
    pub weight: i32,
    /// Two bytes each.
    pub digits: &'a [u8],
}

impl<'a> Numeric<'a> {
    /// The name of what is no number, or the number.
    pub fn parse(b: &'a [u8]) -> Option<Result<Numeric<'a>, &'static str>> {
        let (header, rest) = b.split_first_chunk()?;
        let header = u16::from_le_bytes(*header);
        Some(match header & 0xc000 {
            0xc000 => Err(match header & 0xf000 {
                0xc000 => "NaN",
                0xd000 => "Infinity",
                0xf000 => "-Infinity",
                _ => return None,
            }),
            0x8000 => {
                let weight = i32::from(header & 0x3f) - if header & 0x40 != 0 { 64 } else { 0 };
                let scale = usize::from(header & 0x1f80) >> 7;
                Ok(Numeric { negative: header & 0x2000 != 0, scale, weight, digits: rest })
            }
            sign => {
                let (weight, digits) = rest.split_first_chunk()?;
                let weight = i32::from(i16::from_le_bytes(*weight));
                Ok(Numeric { negative: sign == 0x4000, scale: usize::from(header & 0x3fff), weight, digits })
            }
        })
    }
}

pub(super) fn numeric(b: &[u8], out: &mut Text) -> Option<()> {
    let Numeric { negative, scale, weight, digits } = match Numeric::parse(b)? {
        Ok(number) => number,
        Err(name) => {
            out.push_str(name);
            return Some(());
        }
    };
    // Groups before the point. Those that are not stored, at either end, are zeros.
    let whole = usize::try_from(weight + 1).unwrap_or(0);
    let (before, behind) = digits.split_at(digits.len().min(2 * whole));
    let mut before = before.chunks_exact(2).map(group);
    // Groups are put as a whole, also the last one, of which less may count.
    let room = out.room(1 + 4 * whole.max(1) + 1 + scale + 3);
    room[0] = b'-';
    let mut at = usize::from(negative);
    let mut most = 0;
    let mut put = |at: usize, group: u16, zeros: usize| {
        most = most.max(group);
        room[at..at + 4].copy_from_slice(&(four(group) >> (8 * zeros)).to_le_bytes());
        at + 4 - zeros
    };
    let first = before.next().unwrap_or(0);
    at = put(at, first, leading_zeros(first));
    let mut left = whole.saturating_sub(1);
    for group in before {
        at = put(at, group, 0);
        left -= 1;
    }
    for _ in 0..left {
        at = put(at, 0, 0);
    }
    if scale > 0 {
        let end = at + 1 + scale;
        let mut next = at + 1;
        let missing = usize::try_from(-weight - 1).unwrap_or(0).min(scale.div_ceil(4));
        let behind = behind.chunks_exact(2).map(group).take(scale.div_ceil(4) - missing);
        for _ in 0..missing {
            next = put(next, 0, 0);
        }
        for group in behind {
            next = put(next, group, 0);
        }
        while next < end {
            next = put(next, 0, 0);
        }
        room[at] = b'.';
        at = end;
    }
    (most <= 9999).then(|| out.used(at))
}

/// One of the digits of base 10000.
#[inline]
fn group(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(print: impl Fn(&mut Text) -> Option<()>) -> String {
        let mut out = Text::new();
        print(&mut out).unwrap();
        out.into_string()
    }

    #[test]
    fn floats_read_back_as_the_same_number() {
        for (value, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (-1.5, "-1.5"),
            (f64::MAX, "1.7976931348623157e+308"),
            (1e22, "1e+22"),
            (1e23, "9.999999999999999e+22"),
            (-1e23, "-9.999999999999999e+22"),
        ] {
            assert_eq!(text(|out| float(value, 15, out)), want);
        }
        assert_eq!(text(|out| float(1e6f32, 6, out)), "1e+06");
        // Each is what PostgreSQL prints: a tie, the middle between two floats, and a tie among the longest.
        for (value, want) in [
            (356_547.62f32, "356547.62"),
            (130_999_584.0, "1.30999584e+08"),
            (-655_591_170.0, "-6.5559117e+08"),
            (1.0e-45, "1e-45"),
            (f32::MAX, "3.4028235e+38"),
            (f32::MIN_POSITIVE, "1.1754944e-38"),
            (0.1, "0.1"),
        ] {
            assert_eq!(text(|out| float(value, 6, out)), want);
        }
        assert_eq!(text(|out| float(1001.0 / f64::from(1 << 20), 15, out)), "0.0009546279907226562");
        assert_eq!(text(|out| float(5e-324, 15, out)), "5e-324");
        let mut bits = 88_172_645_463_325_252u64;
        for _ in 0..10_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(text(|out| float(value, 15, out)).parse(), Ok(value));
            }
        }
    }

    #[test]
    fn whole_numbers_have_as_many_digits_as_are_asked_for() {
        for (value, least, want) in
            [(0, 1, "0"), (0, 4, "0000"), (7, 1, "7"), (10, 1, "10"), (105, 1, "105"), (1200, 6, "001200")]
        {
            assert_eq!(text(|out| unsigned(value, least, out)), want);
        }
        for value in (0..20).map(|n| 10u64.pow(n)).flat_map(|n| [n - 1, n, n + 1]).chain([u64::MAX]) {
            assert_eq!(text(|out| unsigned(value, 1, out)), value.to_string());
        }
    }

    #[test]
    fn numeric_headers_of_both_lengths() {
        let short = |b: &[u16]| {
            let bytes: Vec<u8> = b.iter().flat_map(|n| n.to_le_bytes()).collect();
            text(|out| numeric(&bytes, out))
        };
        assert_eq!(short(&[0x8000 | 2 << 7, 12, 5000]), "12.50");
        assert_eq!(short(&[0xa000 | 4 << 7 | 0x7f, 5]), "-0.0005");
        assert_eq!(short(&[0x8000 | 0x7e | 10 << 7, 7]), "0.0000000700");
        assert_eq!(short(&[0x4000, 2, 1]), "-100000000");
        assert_eq!(short(&[0xc000]), "NaN");
        assert_eq!(short(&[0xf000]), "-Infinity");
        assert_eq!(short(&[0x8000]), "0");
    }

    #[test]
    fn numerics_are_their_groups_one_behind_the_other() {
        let mut bits = 88_172_645_463_325_252u64;
        let mut below = |n: u64| {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits % n
        };
        for _ in 0..20_000 {
            let groups: Vec<u16> = (0..below(9)).map(|_| below(10_010) as u16).collect();
            let (weight, scale, negative) = (below(27) as i32 - 9, below(41) as usize, below(2) == 0);
            let header = [if negative { 0x4000 } else { 0 } | scale as u16, weight as u16];
            let bytes: Vec<u8> = header.iter().chain(&groups).flat_map(|n| n.to_le_bytes()).collect();
            let at = |i: i32| usize::try_from(i).ok().and_then(|i| groups.get(i)).copied().unwrap_or(0);
            let last = weight + scale.div_ceil(4) as i32;
            let mut want = String::from(if negative { "-" } else { "" });
            want += &at(0).min(if weight < 0 { 0 } else { u16::MAX }).to_string();
            want.extend((1..=weight).map(|i| format!("{:04}", at(i))));
            let behind: String = (weight + 1..=last).map(|i| format!("{:04}", at(i))).collect();
            want += if scale > 0 { "." } else { "" };
            want += &behind[..behind.len().min(scale)];
            let wrong = (weight.min(0)..=last).any(|i| at(i) > 9999);
            let mut out = Text::new();
            let printed = numeric(&bytes, &mut out).map(|()| out.into_string());
            assert_eq!(printed, (!wrong).then_some(want), "{weight} {scale} {groups:?}");
        }
        assert_eq!(numeric(&10000u16.to_le_bytes().repeat(3), &mut Text::new()), None);
    }
}
