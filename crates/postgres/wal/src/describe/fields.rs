//! Fields read one after the other as C lays them out: each number at a multiple of its size.

use std::borrow::Cow;

use leadline_bytes::{Bytes, Endian, Result, Truncated};

use crate::kept::List;
use crate::record::{Record, EPOCH_US};
use leadline_datadir::Lsn;
use leadline_datadir::RelFile as Relation;

/// What a field says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// A name, an LSN, a time.
    Text(Cow<'static, str>),
    /// Many of a kind.
    List(Vec<Value>),
    /// Something with fields of its own.
    Fields(Fields),
}

/// Name and value.
pub type Field = (&'static str, Value);

/// In the order of the record.
pub type Fields = Vec<Field>;

/// Server time to Unix time, microseconds.
pub(super) fn unix_us(timestamp: i64) -> i64 {
    timestamp.saturating_add(EPOCH_US)
}

/// Unix microseconds as text: `2026-11-21T23:10:14.123456Z`.
pub fn time_text(unix_us: i64) -> String {
    let (days, us) = (unix_us.div_euclid(86_400_000_000), unix_us.rem_euclid(86_400_000_000));
    // Days to a date of the Gregorian calendar, in eras of 400 years that begin in March.
    let day = days + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (second, us) = (us / 1_000_000, us % 1_000_000);
    if !(0..=9999).contains(&year) {
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        return format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z");
    }
    // One in each commit: `format!` takes a tenth of the time that a commit takes to print.
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let digits =
        [(4, year), (7, month), (10, date), (13, second / 3600), (16, second / 60 % 60), (19, second % 60), (26, us)];
    for (end, mut number) in digits {
        for digit in text[..end].iter_mut().rev() {
            if number == 0 {
                break;
            }
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads fields and keeps them with their names.
pub(super) struct Reading<'a> {
    bytes: Bytes<'a>,
    fields: Fields,
    /// Bytes of the main data that were not kept; 0 while those of a block are read.
    left_out: usize,
    /// What would be said of them: how many things of which lists, then the bytes.
    unsaid: Fields,
}

/// A method for each width: reads at a multiple of the width, keeps the value, and gives it.
macro_rules! numbers {
    ($($name:ident),*) => {
        $(
            pub(super) fn $name(&mut self, what: &'static str) -> Result<$name> {
                self.bytes.align(size_of::<$name>());
                let value = self.bytes.$name(what)?;
                self.put(what, Value::Int(value as i64));
                Ok(value)
            }
        )*
    };
}

impl<'a> Reading<'a> {
    /// Begins with the main data.
    pub(super) fn new(record: &Record<'a>) -> Reading<'a> {
        let bytes = Bytes::new(record.main_data(), Endian::Little);
        Reading { bytes, fields: Vec::with_capacity(8), left_out: record.left_out(), unsaid: Vec::new() }
    }

    pub(super) fn finish(mut self) -> Fields {
        if !self.unsaid.is_empty() {
            self.put("left_out", Value::Fields(self.unsaid.clone()));
        }
        self.fields
    }

    /// Says where the fields end too early: with the record, or with what is kept of it.
    pub(super) fn cut(&mut self, truncated: &Truncated) {
        match self.left_out {
            0 => self.put("truncated", Value::Text(truncated.to_string().into())),
            _ => self.say_bytes(),
        }
    }

    /// So many things of a list are in what is not kept.
    fn say(&mut self, what: &'static str, count: usize) {
        self.unsaid.insert(self.unsaid.len().saturating_sub(1), (what, Value::Int(count as i64)));
        self.say_bytes();
    }

    fn say_bytes(&mut self) {
        if self.unsaid.last().is_none_or(|(name, _)| *name != "bytes") {
            self.unsaid.push(("bytes", Value::Int(self.left_out as i64)));
        }
    }

    pub(super) fn put(&mut self, name: &'static str, value: Value) {
        self.fields.push((name, value));
    }

    /// Goes on in other bytes, those of a block for instance.
    pub(super) fn turn_to(&mut self, bytes: &'a [u8]) {
        self.bytes = Bytes::new(bytes, Endian::Little);
        self.left_out = 0;
    }

    /// The bytes not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.rest()
    }

    pub(super) fn skip(&mut self, what: &'static str, len: usize) -> Result<()> {
        self.bytes.take(what, len).map(|_| ())
    }

    pub(super) fn align(&mut self, to: usize) {
        self.bytes.align(to);
    }

    numbers!(u8, u16, u32, u64, i32, i64);

    /// A number nobody asks for by itself: a count, a flag word.
    pub(super) fn count(&mut self, what: &'static str) -> Result<usize> {
        self.bytes.align(4);
        Ok(self.bytes.i32(what)?.max(0) as usize)
    }

    pub(super) fn short_count(&mut self, what: &'static str) -> Result<usize> {
        self.bytes.align(2);
        Ok(self.bytes.u16(what)?.into())
    }

    /// Four bytes wherever they are.
    pub(super) fn u32_unaligned(&mut self, what: &'static str) -> Result<u32> {
        let value = self.bytes.u32(what)?;
        self.put(what, Value::Int(value.into()));
        Ok(value)
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8> {
        self.bytes.u8(what)
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool> {
        let value = self.bytes.u8(what)? != 0;
        self.put(what, Value::Bool(value));
        Ok(value)
    }

    pub(super) fn lsn(&mut self, what: &'static str) -> Result<()> {
        self.bytes.align(8);
        let value = self.bytes.u64(what)?;
        self.put(what, Value::Text(Lsn(value).to_string().into()));
        Ok(())
    }

    pub(super) fn time(&mut self, what: &'static str) -> Result<()> {
        self.bytes.align(8);
        let value = self.bytes.i64(what)?;
        self.put(what, Value::Text(time_text(unix_us(value)).into()));
        Ok(())
    }

    /// `pg_time_t`: Unix seconds.
    pub(super) fn unix_time(&mut self, what: &'static str) -> Result<()> {
        self.bytes.align(8);
        let value = self.bytes.i64(what)?;
        self.put(what, Value::Text(time_text(value.saturating_mul(1_000_000)).into()));
        Ok(())
    }

    /// `relfilelocator` as the server writes it: tablespace/database/relation.
    pub(super) fn relation(&mut self, what: &'static str) -> Result<Relation> {
        self.bytes.align(4);
        let found = Relation { spc: self.bytes.u32(what)?, db: self.bytes.u32(what)?, rel: self.bytes.u32(what)? };
        self.put(what, Value::Text(found.to_string().into()));
        Ok(found)
    }

    /// A text that ends with a zero byte, or with the record.
    pub(super) fn text(&mut self, what: &'static str) -> Result<()> {
        let rest = self.bytes.rest();
        let length = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        if length == rest.len() && self.left_out > 0 {
            self.say_bytes();
        }
        let text = String::from_utf8_lossy(self.bytes.take(what, length)?).into_owned();
        let _ = self.bytes.u8(what);
        self.put(what, Value::Text(text.into()));
        Ok(())
    }

    /// So many things of a kind, each read by `one`. Their number is bounded by the bytes there are.
    pub(super) fn list(
        &mut self,
        what: &'static str,
        count: usize,
        mut one: impl FnMut(&mut Bytes<'a>) -> Result<Value>,
    ) -> Result<()> {
        let mut values = Vec::new();
        let mut outcome = Ok(());
        for _ in 0..count {
            match one(&mut self.bytes) {
                Ok(value) => values.push(value),
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        if outcome.is_err() && self.left_out > 0 {
            self.say(what, count - values.len());
        }
        self.put(what, Value::List(values));
        outcome
    }

    /// A list that was read before.
    pub(super) fn put_list<T>(&mut self, what: &'static str, list: &List<T>, one: impl Fn(&T) -> Value) {
        if !list.is_empty() {
            self.put(what, Value::List(list.known.iter().map(one).collect()));
        }
        if list.left_out > 0 {
            self.say(what, list.left_out);
        }
    }

    /// So many numbers of four bytes.
    pub(super) fn words(&mut self, what: &'static str, count: usize) -> Result<()> {
        self.bytes.align(4);
        self.list(what, count, |bytes| Ok(Value::Int(bytes.u32(what)?.into())))
    }

    /// So many line pointer numbers.
    pub(super) fn offsets(&mut self, what: &'static str, count: usize) -> Result<()> {
        self.list(what, count, |bytes| Ok(Value::Int(bytes.u16(what)?.into())))
    }
}

/// The names of the bits that are set.
pub(super) fn bits(value: u8, names: &'static [(u8, &str)]) -> Value {
    Value::List(names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, n)| Value::Text((*n).into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time_text(unix_us(0)), "2000-01-01T00:00:00.000000Z");
        assert_eq!(time_text(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(time_text(1_795_302_614_123_456), "2026-11-21T23:10:14.123456Z");
        assert_eq!(time_text(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(time_text(253_402_300_799_999_999), "9999-12-31T23:59:59.999999Z");
        assert_eq!(time_text(253_402_300_800_000_000), "10000-01-01T00:00:00.000000Z");
        assert_eq!(time_text(-62_167_219_200_000_000), "0000-01-01T00:00:00.000000Z");
        assert_eq!(time_text(-62_167_219_200_000_001), "-001-12-31T23:59:59.999999Z");
    }

    #[test]
    fn numbers_stand_at_multiples_of_their_size() {
        let bytes = Bytes::new(&[1, 9, 2, 0, 9, 9, 9, 9, 3, 0, 0, 0, 0, 0, 0, 0], Endian::Little);
        let mut reading = Reading { bytes, fields: Vec::new(), left_out: 0, unsaid: Vec::new() };
        reading.u8("a").unwrap();
        reading.u16("b").unwrap();
        reading.u64("c").unwrap();
        assert!(reading.u8("d").is_err());
        assert_eq!(reading.finish(), [("a", Value::Int(1)), ("b", Value::Int(2)), ("c", Value::Int(3))]);
    }
}
