//! The value that a column is compared with, and how stored values of each type compare with it: as the server's operators do, texts by
//! their bytes.

use std::cmp::Ordering;

use super::parse::Literal;
use crate::value::number::Numeric;
use crate::value::{time, typed, Types};
use leadline_errors::{Error, Kind, Result};

/// The types that can be compared.
const TYPES: &str = "smallint, integer, bigint, oid, real, double precision, numeric, text, varchar, char, name, boolean, date, timestamp, \
                     timestamptz, uuid, and domains over them";
/// Digits that a numeric has at most before and behind its point.
const DIGITS: (usize, usize) = (131_072, 16_383);

#[derive(Debug)]
pub(crate) enum Operand {
    Int {
        bytes: usize,
        than: Whole,
    },
    Unsigned(Whole),
    /// Of both floats, as every real is a double.
    Float {
        bytes: usize,
        than: f64,
    },
    Numeric(Exact),
    /// In UTF-8.
    Text {
        blanks: Blanks,
        than: String,
    },
    Bool(bool),
    Date(i32),
    Timestamp(i64),
    Uuid([u8; 16]),
}

/// Whether blanks at the end of a text count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blanks {
    Count,
    /// Those of char(n), which fill it up.
    Fill,
    /// It is a name: no blanks, but zeros behind it.
    Zeros,
}

impl Operand {
    /// `base`: the built-in type that the column's values compare as those of.
    ///
    /// # Errors
    /// When the type cannot be compared, or the literal is no value for it.
    pub(super) fn new(column: &str, base: Option<u32>, type_name: &str, literal: &Literal) -> Result<Operand> {
        let base = base.unwrap_or(0);
        let wrong = |wanted: &str| {
            let given = match literal {
                Literal::Number(text) => text.clone(),
                Literal::Bool(value) => value.to_string(),
                Literal::Quoted(text) => format!("'{text}'"),
            };
            Error::new(Kind::Usage, format!("cannot compare column {column} of type {type_name} with {given}"))
                .detail(format!("expected {wanted}"))
        };
        let whole = |least: i64, most: i64| {
            let found = match literal {
                Literal::Number(text) => Exact::parse(text).as_ref().and_then(Whole::of),
                // As the input function of the type, which says no to others.
                Literal::Quoted(text) => {
                    let value = text.trim().parse::<i64>().ok().filter(|value| (least..=most).contains(value));
                    value.map(|value| Whole { floor: value.into(), and_more: false })
                }
                Literal::Bool(_) => None,
            };
            found.ok_or_else(|| wrong(&format!("a number; in quotes, a whole number from {least} to {most}")))
        };
        let quoted = match literal {
            Literal::Quoted(text) => Some(text.as_str()),
            _ => None,
        };
        let text = |blanks: Blanks| -> Result<Operand> {
            let than = quoted.ok_or_else(|| wrong("a text in single quotes"))?;
            Ok(Operand::Text { blanks, than: blanks.cut(than.as_bytes()).map_or(than, |cut| &than[..cut]).to_owned() })
        };
        Ok(match base {
            21 => Operand::Int { bytes: 2, than: whole(i16::MIN.into(), i16::MAX.into())? },
            23 => Operand::Int { bytes: 4, than: whole(i32::MIN.into(), i32::MAX.into())? },
            20 => Operand::Int { bytes: 8, than: whole(i64::MIN, i64::MAX)? },
            26 => Operand::Unsigned(whole(0, u32::MAX.into())?),
            700 | 701 => {
                let found = match literal {
                    Literal::Quoted(text) if base == 700 => {
                        text.trim().parse::<f32>().ok().map(|f| (f64::from(f), text))
                    }
                    Literal::Number(text) | Literal::Quoted(text) => text.trim().parse::<f64>().ok().map(|f| (f, text)),
                    Literal::Bool(_) => None,
                };
                let than = found.filter(|(value, text)| is_in_range(*value, text)).map(|(value, _)| value);
                let bytes = if base == 700 { 4 } else { 8 };
                Operand::Float { bytes, than: than.ok_or_else(|| wrong("a number in the range of the type"))? }
            }
            1700 => {
                let found = match literal {
                    Literal::Number(text) => Exact::parse(text),
                    Literal::Quoted(text) => Exact::special(text.trim()).or_else(|| Exact::parse(text.trim())),
                    Literal::Bool(_) => None,
                };
                Operand::Numeric(found.ok_or_else(|| wrong("a number in the range of the type, 'NaN' or 'Infinity'"))?)
            }
            25 | 1043 => text(Blanks::Count)?,
            1042 => text(Blanks::Fill)?,
            19 => text(Blanks::Zeros)?,
            16 => Operand::Bool(
                match literal {
                    Literal::Bool(value) => Some(*value),
                    Literal::Quoted(text) => truth(text.trim()),
                    Literal::Number(_) => None,
                }
                .ok_or_else(|| wrong("true or false"))?,
            ),
            1082 => {
                let found = quoted.and_then(|text| time::parse_date(text.trim()));
                Operand::Date(found.ok_or_else(|| wrong("'YYYY-MM-DD', also with BC behind it, or 'infinity'"))?)
            }
            1114 => {
                let found = quoted.and_then(|text| time::parse_timestamp(text.trim(), false));
                let wanted = "'YYYY-MM-DD HH:MM:SS.ffffff', without a time zone, also with BC behind it, or 'infinity'";
                Operand::Timestamp(found.ok_or_else(|| wrong(wanted))?)
            }
            1184 => {
                let found = quoted.and_then(|text| time::parse_timestamp(text.trim(), true));
                let wanted = "'YYYY-MM-DD HH:MM:SS.ffffff+HH:MM', in UTC where no offset is given, also with BC behind it, or 'infinity'";
                Operand::Timestamp(found.ok_or_else(|| wrong(wanted))?)
            }
            2950 => Operand::Uuid(quoted.and_then(uuid).ok_or_else(|| wrong("a UUID in single quotes"))?),
            _ => {
                return Err(Error::new(
                    Kind::Usage,
                    format!("cannot compare column {column}: values of type {type_name}"),
                )
                .detail(format!("types that can be compared: {TYPES}"))
                .hint(format!("of every type: {column} IS NULL, {column} IS NOT NULL")));
            }
        })
    }

    /// How a stored value compares with it; None when it is none of its type.
    pub(super) fn compare(&self, bytes: &[u8], types: &Types) -> Option<Ordering> {
        Some(match self {
            Operand::Int { bytes: 2, than } => than.order(i16::from_le_bytes(typed::fixed(bytes)?).into()),
            Operand::Int { bytes: 4, than } => than.order(i32::from_le_bytes(typed::fixed(bytes)?).into()),
            Operand::Int { than, .. } => than.order(i64::from_le_bytes(typed::fixed(bytes)?)),
            Operand::Unsigned(than) => than.order(typed::u32(bytes)?.into()),
            Operand::Float { bytes: 4, than } => floats(f32::from_le_bytes(typed::fixed(bytes)?).into(), *than),
            Operand::Float { than, .. } => floats(f64::from_le_bytes(typed::fixed(bytes)?), *than),
            Operand::Numeric(than) => than.order(bytes)?,
            Operand::Text { blanks, than } => {
                let text = blanks.cut(bytes).map_or(bytes, |cut| &bytes[..cut]);
                match &types.encoding {
                    Some(encoding) if !encoding.is_utf8() => encoding.name_of(text).as_str().cmp(than),
                    _ => text.cmp(than.as_bytes()),
                }
            }
            Operand::Bool(than) => typed::bool(bytes)?.cmp(than),
            Operand::Date(than) => i32::from_le_bytes(typed::fixed(bytes)?).cmp(than),
            Operand::Timestamp(than) => i64::from_le_bytes(typed::fixed(bytes)?).cmp(than),
            Operand::Uuid(than) => typed::fixed::<16>(bytes)?.cmp(than),
        })
    }
}

impl Blanks {
    /// Where a text ends, if not at its end.
    fn cut(self, text: &[u8]) -> Option<usize> {
        match self {
            Blanks::Count => None,
            Blanks::Fill => Some(text.iter().rposition(|b| *b != b' ').map_or(0, |last| last + 1)),
            Blanks::Zeros => text.iter().position(|b| *b == 0),
        }
    }
}

/// Whether a text is the number that was made of it, and not one that is too large or too small for the type.
fn is_in_range(value: f64, text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let mantissa = text.split('e').next().unwrap_or_default();
    let is_zero = !mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b));
    (value.is_finite() || text.contains(['i', 'n'])) && (value != 0.0 || is_zero)
}

/// NaN is equal to itself and more than any number.
fn floats(value: f64, than: f64) -> Ordering {
    value.partial_cmp(&than).unwrap_or_else(|| value.is_nan().cmp(&than.is_nan()))
}

/// As the input function of bool has it.
fn truth(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let is = |words: [&str; 6]| words.contains(&text.as_str());
    if is(["true", "t", "yes", "y", "on", "1"]) {
        return Some(true);
    }
    is(["false", "f", "no", "n", "off", "0"]).then_some(false)
}

/// 32 digits, or groups of 8, 4, 4, 4 and 12 of them.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.trim();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    if groups != [8, 4, 4, 4, 12] && groups != [32] {
        return None;
    }
    let digits: Vec<u8> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    bytes.try_into().ok()
}

/// A number that whole numbers are compared with: its floor, and whether it is more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    floor: i128,
    and_more: bool,
}

impl Whole {
    fn of(number: &Exact) -> Option<Whole> {
        let Exact::Finite(Finite { negative, weight, groups }) = number else { return None };
        // Eight groups are more than 64 bits hold.
        let count = usize::try_from(weight + 1).unwrap_or(0);
        let group = |i: usize| i128::from(groups.get(i).copied().unwrap_or(0));
        let before = if count > 8 { 1 << 100 } else { (0..count).fold(0, |all, i| all * 10_000 + group(i)) };
        let and_more = groups.len() > count;
        let floor = if *negative { -before - i128::from(and_more) } else { before };
        Some(Whole { floor, and_more })
    }

    fn order(self, value: i64) -> Ordering {
        let more = if self.and_more { Ordering::Less } else { Ordering::Equal };
        i128::from(value).cmp(&self.floor).then(more)
    }
}

/// A numeric, in the order of the server: NaN is more than infinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exact {
    MinusInfinity,
    Finite(Finite),
    Infinity,
    NaN,
}

/// Groups of four decimal digits, as numerics are stored, without zeros at either end; zero has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finite {
    negative: bool,
    /// The first group counts 10000 to the power of this.
    weight: i32,
    groups: Vec<u16>,
}

impl Exact {
    /// What is no number.
    fn special(text: &str) -> Option<Exact> {
        match text.to_ascii_lowercase().as_str() {
            "nan" => Some(Exact::NaN),
            "infinity" | "inf" | "+infinity" | "+inf" => Some(Exact::Infinity),
            "-infinity" | "-inf" => Some(Exact::MinusInfinity),
            _ => None,
        }
    }

    /// A number as SQL writes it; None when it is none, or has more digits than a numeric.
    fn parse(text: &str) -> Option<Exact> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        // What the last digit counts.
        let mut power = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let (before, behind) = (i64::from(power) + digits.len() as i64, -i64::from(power));
        if before > DIGITS.0 as i64 || behind > DIGITS.1 as i64 {
            return None;
        }
        let zeros = power.rem_euclid(4);
        digits.extend((0..zeros).map(|_| b'0'));
        power -= zeros;
        let first = digits.len() % 4;
        let value = |group: &[u8]| group.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0'));
        let mut groups: Vec<u16> = Vec::with_capacity(digits.len() / 4 + 1);
        groups.extend((first > 0).then(|| value(&digits[..first])));
        groups.extend(digits[first..].chunks(4).map(value));
        let mut weight = groups.len() as i32 - 1 + power / 4;
        let leading = groups.iter().take_while(|group| **group == 0).count();
        groups.drain(..leading);
        weight -= leading as i32;
        while groups.last() == Some(&0) {
            groups.pop();
        }
        let weight = if groups.is_empty() { 0 } else { weight };
        Some(Exact::Finite(Finite { negative, weight, groups }))
    }

    /// How a stored one compares with it; None when it is damaged.
    fn order(&self, bytes: &[u8]) -> Option<Ordering> {
        let rank = |special: &str| match special {
            "-Infinity" => 0,
            "Infinity" => 2,
            _ => 3,
        };
        let own = match self {
            Exact::MinusInfinity => 0,
            Exact::Finite(_) => 1,
            Exact::Infinity => 2,
            Exact::NaN => 3,
        };
        Some(match (Numeric::parse(bytes)?, self) {
            (Err(special), _) => rank(special).cmp(&own),
            (Ok(number), Exact::Finite(than)) => than.order(&number)?,
            (Ok(_), _) => 1.cmp(&own),
        })
    }
}

impl Finite {
    fn order(&self, number: &Numeric<'_>) -> Option<Ordering> {
        let groups = || number.digits.chunks_exact(2).map(|group| u16::from_le_bytes([group[0], group[1]]));
        if groups().any(|group| group > 9999) {
            return None;
        }
        let leading = groups().take_while(|group| *group == 0).count();
        let weight = number.weight - leading as i32;
        let sign = |is_zero: bool, negative: bool| match (is_zero, negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let is_zero = groups().count() == leading;
        let signs = sign(is_zero, number.negative).cmp(&sign(self.groups.is_empty(), self.negative));
        if signs.is_ne() || is_zero {
            return Some(signs);
        }
        // Zeros at the end of what is stored count as none.
        let most = self.groups.len().max(groups().count() - leading);
        let theirs = groups().skip(leading).chain(std::iter::repeat(0)).take(most);
        let ours = self.groups.iter().copied().chain(std::iter::repeat(0)).take(most);
        let size = weight.cmp(&self.weight).then_with(|| theirs.cmp(ours));
        Some(if number.negative { size.reverse() } else { size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::Encoding;
    use std::sync::Arc;
    use Ordering::{Equal, Greater, Less};

    fn operand(base: u32, literal: &Literal) -> Result<Operand> {
        Operand::new("c", Some(base), "t", literal)
    }

    fn number(text: &str) -> Literal {
        Literal::Number(text.into())
    }

    fn quoted(text: &str) -> Literal {
        Literal::Quoted(text.into())
    }

    fn order(base: u32, literal: &Literal, bytes: &[u8]) -> Ordering {
        operand(base, literal).unwrap().compare(bytes, &Types::default()).unwrap()
    }

    #[test]
    fn whole_numbers_compare_with_any_number() {
        let seven = 7i32.to_le_bytes();
        for (text, expected) in [
            ("7", Equal),
            ("7.0", Equal),
            ("70e-1", Equal),
            ("7.00001", Less),
            ("6.9", Greater),
            ("-7", Greater),
            ("99999999999999999999999999999999999999999999", Less),
            ("-1e100", Greater),
            ("0e100", Greater),
        ] {
            assert_eq!(order(23, &number(text), &seven), expected, "{text}");
        }
        let below = (-7i64).to_le_bytes();
        for (text, expected) in [("-7", Equal), ("-7.5", Greater), ("-6.5", Less), ("-0.5", Less), ("0", Less)] {
            assert_eq!(order(20, &number(text), &below), expected, "{text}");
        }
        assert_eq!(order(20, &number("9223372036854775808"), &i64::MAX.to_le_bytes()), Less);
        assert_eq!(order(26, &number("4294967295"), &[0xff; 4]), Equal);
        assert_eq!(order(21, &quoted(" 12 "), &12i16.to_le_bytes()), Equal);
        for wrong in ["7.0", "32768", "", "x", "1e1"] {
            assert!(operand(21, &quoted(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_real_is_compared_as_a_double_unless_the_value_is_in_quotes() {
        let tenth = 0.1f32.to_le_bytes();
        assert_eq!((order(700, &number("0.1"), &tenth), order(700, &quoted("0.1"), &tenth)), (Greater, Equal));
        assert_eq!(order(701, &number("0.1"), &0.1f64.to_le_bytes()), Equal);
        let nan = f64::NAN.to_le_bytes();
        assert_eq!((order(701, &quoted("NaN"), &nan), order(701, &quoted("Infinity"), &nan)), (Equal, Greater));
        assert_eq!(order(701, &quoted("nan"), &f64::INFINITY.to_le_bytes()), Less);
        assert_eq!(order(701, &number("0"), &(-0.0f64).to_le_bytes()), Equal);
        for (base, wrong) in [(701, "1e400"), (701, "1e-400"), (700, "1e40"), (700, "1e-60"), (701, "x")] {
            assert!(operand(base, &quoted(wrong)).is_err(), "{wrong}");
        }
        assert!(operand(701, &number("0e-400")).is_ok());
    }

    /// A numeric with a header of four bytes.
    fn numeric(negative: bool, weight: i16, groups: &[u16]) -> Vec<u8> {
        let header = [if negative { 0x4000 } else { 0 }, weight as u16];
        header.iter().chain(groups).flat_map(|n| n.to_le_bytes()).collect()
    }

    #[test]
    fn numerics_compare_by_their_digits() {
        for (text, negative, weight, groups, expected) in [
            ("12.5", false, 0, &[12, 5000][..], Equal),
            ("12.50", false, 0, &[12, 5000, 0], Equal),
            ("12.51", false, 0, &[12, 5000], Less),
            ("1.2e1", false, 0, &[12, 1], Greater),
            ("120000", false, 1, &[12], Equal),
            ("-0.0005", true, -1, &[5], Equal),
            ("-0.0006", true, -1, &[5], Greater),
            ("1e-9", false, -3, &[1000], Equal),
            ("0", false, 0, &[], Equal),
            ("-0.0", false, 3, &[0, 0], Equal),
            ("0", true, -9, &[1], Less),
            ("00012345678", false, 1, &[1234, 5678], Equal),
            ("1e30", false, 7, &[100], Equal),
        ] {
            assert_eq!(order(1700, &number(text), &numeric(negative, weight, groups)), expected, "{text} {groups:?}");
        }
        let special = |header: u16| header.to_le_bytes();
        for (text, header, expected) in [
            ("NaN", 0xc000, Equal),
            ("infinity", 0xc000, Greater),
            ("-inf", 0xf000, Equal),
            ("-inf", 0xd000, Greater),
            ("1", 0xf000, Less),
            ("1", 0xd000, Greater),
        ] {
            assert_eq!(order(1700, &quoted(text), &special(header)), expected, "{text}");
        }
        assert_eq!(order(1700, &quoted("-Infinity"), &numeric(false, 0, &[1])), Greater);
        let damaged = operand(1700, &number("1")).unwrap().compare(&numeric(false, 0, &[10_000]), &Types::default());
        assert_eq!(damaged, None);
        for wrong in ["1e200000", "1e-20000", "", ".", "1.2.3", "0x1"] {
            assert!(operand(1700, &quoted(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_compare_by_their_bytes_in_utf_8() {
        assert_eq!(order(25, &quoted("B"), b"a"), Greater);
        assert_eq!((order(25, &quoted("a"), b"a "), order(1042, &quoted("a   "), b"a ")), (Greater, Equal));
        assert_eq!(order(19, &quoted("t"), b"t\0\0\0"), Equal);
        let types = Types { encoding: Encoding::of(8, 18).map(Arc::new), ..Types::default() };
        let umlaut = operand(25, &quoted("ü")).unwrap();
        assert_eq!(umlaut.compare(b"\xfc", &types), Some(Equal));
        assert_eq!(types.encoding.as_ref().map(|e| e.unconverted()), Some(0));
        assert!(operand(25, &number("1")).is_err());
    }

    #[test]
    fn the_other_types() {
        assert_eq!((order(16, &Literal::Bool(true), &[0]), order(16, &quoted("OFF"), &[0])), (Less, Equal));
        assert_eq!(order(1082, &quoted("2000-01-02"), &1i32.to_le_bytes()), Equal);
        assert_eq!(order(1082, &quoted("infinity"), &i32::MAX.to_le_bytes()), Equal);
        assert_eq!(order(1114, &quoted("1999-12-31 23:59:59.5"), &(-500_000i64).to_le_bytes()), Equal);
        assert_eq!(order(1184, &quoted("2000-01-01T02:00+02"), &0i64.to_le_bytes()), Equal);
        let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        assert_eq!(order(2950, &quoted(&id.replace('-', "")), &uuid(id).unwrap()), Equal);
        for (base, wrong) in
            [(16, "maybe"), (2950, "a0eebc99"), (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g"), (1082, "today")]
        {
            let error = operand(base, &quoted(wrong)).unwrap_err();
            assert_eq!(error.message, format!("cannot compare column c of type t with '{wrong}'"));
        }
        let error = operand(1186, &quoted("1 day")).unwrap_err();
        assert_eq!(error.hint, "of every type: c IS NULL, c IS NOT NULL");
    }
}
