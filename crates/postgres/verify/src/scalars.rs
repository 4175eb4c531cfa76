//! Values that no server of 13 to 18 makes, of the built-in types whose bytes are not all values.
//!
//! Source: the input functions in src/backend/utils/adt (bool.c, date.c, timestamp.c, numeric.c, varbit.c, network.c, varchar.c),
//! src/include/datatype/timestamp.h.

use leadline_rows::value::Numeric;

const DAY: i64 = 86_400_000_000;
/// Days and microseconds from 2000-01-01 on that the server has.
const DAYS: std::ops::Range<i64> = -2_451_545..2_147_483_494 - 2_451_545;
const MICROSECONDS: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;
/// Seconds from Greenwich that a zone can be.
const ZONE: i32 = 16 * 3600;

/// What is wrong, and whether a server may have written it by a fault of its own.
pub(crate) struct Bad {
    pub what: String,
    pub is_likely: bool,
}

fn certain(what: impl Into<String>) -> Option<Bad> {
    Some(Bad { what: what.into(), is_likely: false })
}

fn likely(what: impl Into<String>) -> Option<Bad> {
    Some(Bad { what: what.into(), is_likely: true })
}

/// Whether [`wrong`] knows something of the type.
pub(crate) fn is_looked_at(oid: u32) -> bool {
    is_text(oid) || matches!(oid, 16 | 19 | 650 | 869 | 1082 | 1083 | 1114 | 1184 | 1266 | 1560 | 1562 | 1700)
}

/// text, json, pg_node_tree, xml, bpchar, varchar
fn is_text(oid: u32) -> bool {
    matches!(oid, 25 | 114 | 142 | 194 | 1042 | 1043)
}

/// What cannot be in a value of a built-in type, given without its header. `typmod`: of the column; -1: none.
///
/// A column that is made narrower in pg_attribute by hand keeps its values: what is only too long for it is likely.
pub(crate) fn wrong(oid: u32, typmod: i32, is_utf8: bool, b: &[u8]) -> Option<Bad> {
    match oid {
        16 if b.first().is_some_and(|b| *b > 1) => certain(format!("a boolean of {}, which is neither 0 nor 1", b[0])),
        19 if !b.contains(&0) => certain("a name that does not end with a zero byte"),
        _ if is_text(oid) => text(oid, typmod, is_utf8, b),
        650 | 869 => inet(b),
        1082 => date(b),
        1083 => time(b),
        1266 => time(b).or_else(|| zone(b)),
        1114 | 1184 => timestamp(b),
        1560 | 1562 => bits(oid == 1560, typmod, b),
        1700 => numeric(typmod, b),
        _ => None,
    }
}

fn i64_at(b: &[u8], at: usize) -> Option<i64> {
    b.get(at..)?.first_chunk().map(|b| i64::from_le_bytes(*b))
}

fn i32_at(b: &[u8], at: usize) -> Option<i32> {
    b.get(at..)?.first_chunk().map(|b| i32::from_le_bytes(*b))
}

fn text(oid: u32, typmod: i32, is_utf8: bool, b: &[u8]) -> Option<Bad> {
    if !is_utf8 {
        return None;
    }
    let text = match std::str::from_utf8(b) {
        Ok(text) => text,
        Err(e) => return likely(format!("a text that is not UTF-8 from byte {} on", e.valid_up_to())),
    };
    if let Some(at) = b.iter().position(|b| *b == 0) {
        return likely(format!("a text with a zero byte at byte {at}"));
    }
    let most = usize::try_from(typmod.saturating_sub(4)).ok().filter(|_| matches!(oid, 1042 | 1043) && typmod >= 4)?;
    if b.len() <= most {
        return None;
    }
    let count = text.chars().count();
    if count > most {
        return likely(format!("a text of {count} characters in a column of {most}"));
    }
    None
}

fn inet(b: &[u8]) -> Option<Bad> {
    let [family, mask, address @ ..] = b else { return certain("an address without its family") };
    let most = match family {
        2 => 32,
        3 => 128,
        _ => return certain(format!("an address of family {family}, which is neither 2 nor 3")),
    };
    if *mask > most {
        return certain(format!("an address with a mask of {mask} bits of {most}"));
    }
    let wanted = usize::from(most) / 8;
    (address.len() != wanted)
        .then(|| format!("an address of {} bytes instead of {wanted}", address.len()))
        .and_then(certain)
}

fn date(b: &[u8]) -> Option<Bad> {
    let day = i32_at(b, 0)?;
    let is_date = matches!(day, i32::MIN | i32::MAX) || DAYS.contains(&day.into());
    (!is_date).then(|| format!("a date of {day} days from 2000-01-01, which is out of range")).and_then(certain)
}

fn timestamp(b: &[u8]) -> Option<Bad> {
    let us = i64_at(b, 0)?;
    let is_timestamp = matches!(us, i64::MIN | i64::MAX) || MICROSECONDS.contains(&us);
    let what = || format!("a timestamp of {us} microseconds from 2000-01-01, which is out of range");
    (!is_timestamp).then(what).and_then(certain)
}

fn time(b: &[u8]) -> Option<Bad> {
    let us = i64_at(b, 0)?;
    let what = || format!("a time of {us} microseconds, which is out of range");
    (!(0..=DAY).contains(&us)).then(what).and_then(certain)
}

fn zone(b: &[u8]) -> Option<Bad> {
    let west = i32_at(b, 8)?;
    let what = || format!("a time zone of {west} seconds, which is out of range");
    (!(1 - ZONE..ZONE).contains(&west)).then(what).and_then(certain)
}

fn bits(is_fixed: bool, typmod: i32, b: &[u8]) -> Option<Bad> {
    let Some((count, bits)) = i32_at(b, 0).zip(b.get(4..)) else { return certain("a bit string without its length") };
    let wanted = i64::from(count).div_euclid(8) + i64::from(count % 8 != 0);
    if count < 0 || wanted != bits.len() as i64 {
        return certain(format!("a bit string of {count} bits in {} bytes", bits.len()));
    }
    let is_right = typmod < 1 || if is_fixed { count == typmod } else { count <= typmod };
    (!is_right).then(|| format!("a bit string of {count} bits in a column of {typmod}")).and_then(likely)
}

fn numeric(typmod: i32, b: &[u8]) -> Option<Bad> {
    let number = match Numeric::parse(b) {
        None => return certain("a numeric without its header"),
        Some(Err(_)) if b.len() > 4 => return certain("a numeric that is no number, with digits"),
        Some(Err(_)) => return None,
        Some(Ok(number)) => number,
    };
    if !number.digits.len().is_multiple_of(2) {
        return certain("a numeric with half a digit");
    }
    let mut digits = number.digits.chunks_exact(2).map(|d| u16::from_le_bytes([d[0], d[1]]));
    if let Some(digit) = digits.clone().find(|digit| *digit > 9999) {
        return certain(format!("a numeric with a digit {digit} of base 10000"));
    }
    // ((precision << 16) | scale) + 4; since 15 the scale has a sign, in 11 bits.
    if typmod < 4 {
        return None;
    }
    let (precision, scale) = ((typmod - 4) >> 16 & 0xffff, (((typmod - 4) & 0x7ff) ^ 1024) - 1024);
    if number.scale as i32 != scale.max(0) {
        return likely(format!("a numeric with {} digits behind the point in a column of {scale}", number.scale));
    }
    let first = digits.next()?;
    let of_first = if first == 0 { 0 } else { first.ilog10() as i32 + 1 };
    let before = 4 * number.weight + of_first;
    let what = || format!("a numeric with {before} digits before the point in a column of {precision} and {scale}");
    (before > precision - scale).then(what).and_then(likely)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(oid: u32, typmod: i32, b: &[u8]) -> Option<String> {
        wrong(oid, typmod, true, b).map(|bad| bad.what)
    }

    #[test]
    fn ends_of_ranges_are_values_and_what_is_behind_them_is_not() {
        for day in [i32::MIN, i32::MAX, -2_451_545, 2_145_031_948] {
            assert_eq!(bad(1082, -1, &day.to_le_bytes()), None, "{day}");
        }
        for day in [i32::MIN + 1, -2_451_546, 2_145_031_949] {
            assert!(bad(1082, -1, &day.to_le_bytes()).is_some(), "{day}");
        }
        assert_eq!(bad(1083, -1, &DAY.to_le_bytes()), None);
        assert!(bad(1083, -1, &(DAY + 1).to_le_bytes()).is_some());
        assert!(bad(1114, -1, &(i64::MAX - 1).to_le_bytes()).is_some());
        assert!(bad(16, -1, &[2]).is_some());
    }

    #[test]
    fn numerics_fit_their_column() {
        let typmod = (4 << 16 | 2) + 4; // numeric(4, 2)
        let of = |scale: u16, weight: u16, digits: &[u16]| {
            let header = 0x8000 | scale << 7 | weight;
            [header].iter().chain(digits).flat_map(|d| d.to_le_bytes()).collect::<Vec<u8>>()
        };
        assert_eq!(bad(1700, typmod, &of(2, 0, &[12, 3400])), None);
        assert!(bad(1700, typmod, &of(2, 0, &[123, 4000])).is_some());
        assert!(bad(1700, typmod, &of(3, 0, &[12])).is_some());
        assert!(bad(1700, -1, &of(2, 0, &[10_000])).is_some());
        // numeric(2, -3): whole thousands, to 99000.
        let typmod = (2 << 16 | (-3 & 0x7ff)) + 4;
        assert_eq!(bad(1700, typmod, &of(0, 1, &[9, 9000])), None);
        assert!(bad(1700, typmod, &of(0, 1, &[10, 0])).is_some());
    }

    #[test]
    fn texts_are_counted_in_characters() {
        assert_eq!(bad(1043, 3 + 4, "äöü".as_bytes()), None);
        assert!(bad(1043, 3 + 4, b"abcd").is_some());
        assert!(bad(25, -1, b"a\xff").is_some() && wrong(25, -1, false, b"a\xff").is_none());
        assert!(bad(650, -1, &[2, 33, 1, 2, 3, 4]).is_some());
        assert_eq!(bad(650, -1, &[2, 24, 1, 2, 3, 4]), None);
        assert!(bad(1560, 9, &[9, 0, 0, 0, 1]).is_some());
    }
}
