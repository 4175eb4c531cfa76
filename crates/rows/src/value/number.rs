//! Numbers.

use std::fmt::LowerExp;
use std::str::FromStr;

use super::show;

pub(super) fn u32(b: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*b.first_chunk()?))
}

pub(super) fn f64(b: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(*b.first_chunk()?))
}

/// The fewest digits that give the same number again; with an exponent below 1e-4 and from 1e`most` on.
pub(super) fn float<F: LowerExp + FromStr + PartialEq + Into<f64> + Copy>(
    value: F,
    most: i32,
    out: &mut String,
) -> Option<()> {
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
    let shortest = off_the_middle(value, format!("{value:e}"), most);
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

/// The server never prints a number that lies in the very middle between this value and the next, which only a reader that
/// rounds to even gets right: 1e23 is 9.999999999999999e+22. Then as many digits as it takes.
fn off_the_middle<F: LowerExp + FromStr + PartialEq + Into<f64> + Copy>(
    value: F,
    shortest: String,
    most: i32,
) -> String {
    // So few digits are in the middle only where values are at most 1/2 (double) or 1/8 (single precision) apart.
    let (least, digits) = if most > 6 { (2f64.powi(52), 17) } else { (2f64.powi(20), 9) };
    if value.into().abs() < least {
        return shortest;
    }
    let is_middle =
        |text: &str| beside(text).is_none_or(|both| both.iter().any(|t| t.parse::<F>().ok() != Some(value)));
    if !is_middle(&shortest) {
        return shortest;
    }
    let longer = (1..=digits).map(|n| format!("{value:.*e}", n - 1));
    let mut longer = longer.filter(|text| text.parse::<F>().ok() == Some(value) && !is_middle(text));
    longer.next().unwrap_or(shortest)
}

/// Numbers that are less than a trace larger and smaller than that of a text such as 1.5e7.
fn beside(text: &str) -> Option<[String; 2]> {
    let (digits, exponent) = text.split_once('e')?;
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    let (before, last) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
    let (point, last) = (if digits.contains('.') { "" } else { "." }, last.parse::<u8>().ok()?.checked_sub(1)?);
    // More digits than the exact middle of two values has.
    let nines = "9".repeat(800);
    Some([format!("{digits}{point}{:0800}1e{exponent}", 0), format!("{before}{last}{point}{nines}e{exponent}")])
}

/// Hundredths, as the C locale prints them.
pub(super) fn money(b: &[u8], out: &mut String) -> Option<()> {
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

/// Digits of base 10000 behind a header of two or four bytes (numeric.c).
pub(super) fn numeric(b: &[u8], out: &mut String) -> Option<()> {
    let (header, rest) = b.split_first_chunk()?;
    let header = u16::from_le_bytes(*header);
    let (negative, scale, weight, digits) = match header & 0xc000 {
        0xc000 => {
            out.push_str(match header & 0xf000 {
                0xc000 => "NaN",
                0xd000 => "Infinity",
                0xf000 => "-Infinity",
                _ => return None,
            });
            return Some(());
        }
        0x8000 => {
            let weight = i32::from(header & 0x3f) - if header & 0x40 != 0 { 64 } else { 0 };
            (header & 0x2000 != 0, usize::from(header & 0x1f80) >> 7, weight, rest)
        }
        sign => {
            let (weight, digits) = rest.split_first_chunk()?;
            (sign == 0x4000, usize::from(header & 0x3fff), i32::from(i16::from_le_bytes(*weight)), digits)
        }
    };
    let digit = |i: i32| {
        let at = usize::try_from(i).ok()?.checked_mul(2)?;
        digits.get(at..).and_then(|d| d.first_chunk()).map(|d| u16::from_le_bytes(*d))
    };
    if negative {
        out.push('-');
    }
    if weight < 0 {
        out.push('0');
    }
    for i in 0..=weight {
        let group = digit(i).unwrap_or(0);
        if group > 9999 {
            return None;
        }
        if i == 0 {
            show(group, out)?;
        } else {
            show(format_args!("{group:04}"), out)?;
        }
    }
    if scale > 0 {
        out.push('.');
        let end = out.len() + scale;
        let mut i = weight + 1;
        while out.len() < end {
            let group = digit(i).unwrap_or(0);
            if group > 9999 {
                return None;
            }
            show(format_args!("{group:04}"), out)?;
            i += 1;
        }
        out.truncate(end);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(print: impl Fn(&mut String) -> Option<()>) -> String {
        let mut out = String::new();
        print(&mut out).unwrap();
        out
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
        assert_eq!(numeric(&10000u16.to_le_bytes().repeat(3), &mut String::new()), None);
    }
}
