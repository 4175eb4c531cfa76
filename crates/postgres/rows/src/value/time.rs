//! Dates, times, intervals: counted from 2000-01-01, in days and microseconds.

use std::ops::Range;

use super::number::unsigned;
use super::{show, Text};

pub(super) const DAY: i64 = 86_400_000_000;

/// Year (0 is 1 BC), month and day of a day counted from 2000-01-01, in the Gregorian calendar forwards and backwards.
fn civil(day: i64) -> (i64, i64, i64) {
    // From 1 March of year 0 on, so that the day that comes and goes is the last of its year.
    let day = day + 730_425;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, of_month)
}

/// The day counted from 2000-01-01; None when the calendar has none such.
fn day_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let from_march = year - i64::from(month <= 2);
    let (era, of_era) = (from_march.div_euclid(400), from_march.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let found = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 730_425;
    (civil(found) == (year, month, day)).then_some(found)
}

/// Days and microseconds that the server has.
const DAYS: Range<i64> = -2_451_545..2_147_483_494 - 2_451_545;
const MICROSECONDS: Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;

/// `YYYY-MM-DD`, or an infinity.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    if let Some(is_future) = infinity(text) {
        return Some(if is_future { i32::MAX } else { i32::MIN });
    }
    let (text, before) = without_era(text);
    i32::try_from(parse_day(text, before)?).ok()
}

/// `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]]`, or an infinity. `zoned`: an offset from UTC may follow.
pub(crate) fn parse_timestamp(text: &str, zoned: bool) -> Option<i64> {
    if let Some(is_future) = infinity(text) {
        return Some(if is_future { i64::MAX } else { i64::MIN });
    }
    let (text, before) = without_era(text);
    let (day, time) = text.split_once([' ', 'T']).map_or((text, None), |(day, time)| (day, Some(time.trim_start())));
    let (time, offset) = match time.and_then(|time| Some((time, time.find(['+', '-', 'Z'])?))) {
        Some((time, at)) if zoned => (Some(time[..at].trim_end()), parse_offset(&time[at..])?),
        _ => (time, 0),
    };
    let time = time.map_or(Some(0), parse_time)?;
    let us = parse_day(day, before)?.checked_mul(DAY)?.checked_add(time)?.checked_sub(offset)?;
    MICROSECONDS.contains(&us).then_some(us)
}

/// Whether it is the one in the future.
fn infinity(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word).then_some(word == "infinity");
    is("infinity").or_else(|| is("-infinity"))
}

/// Without what says whether it is before Christ.
fn without_era(text: &str) -> (&str, bool) {
    match text.len().checked_sub(3).and_then(|at| text.split_at_checked(at)) {
        Some((rest, end)) if end.eq_ignore_ascii_case(" BC") => (rest.trim_end(), true),
        _ => (text, false),
    }
}

fn parse_day(text: &str, before: bool) -> Option<i64> {
    let [year, month, day] = text.split('-').collect::<Vec<_>>()[..] else { return None };
    let year = digits(year, 4, 7)?;
    let year = if before { 1 - year } else { year };
    let is_year = before == (year <= 0);
    let found = day_of(year, digits(month, 1, 2)?, digits(day, 1, 2)?)?;
    (is_year && DAYS.contains(&found)).then_some(found)
}

fn parse_time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').map_or((text, None), |(clock, fraction)| (clock, Some(fraction)));
    let parts: Vec<&str> = clock.split(':').collect();
    let ([hours, minutes], seconds) = match parts[..] {
        [hours, minutes] if fraction.is_none() => ([hours, minutes], "0"),
        [hours, minutes, seconds] => ([hours, minutes], seconds),
        _ => return None,
    };
    let [hours, minutes, seconds] = [digits(hours, 1, 2)?, digits(minutes, 2, 2)?, digits(seconds, 1, 2)?];
    let us = match fraction {
        Some(fraction) => digits(fraction, 1, 6)? * 10i64.pow(6 - fraction.len() as u32),
        None => 0,
    };
    let is_time = hours < 24 && minutes < 60 && seconds < 60;
    is_time.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + us)
}

/// `Z`, `+HH`, `+HHMM` or `+HH:MM`, in microseconds.
fn parse_offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, rest) = if let Some(rest) = text.strip_prefix('+') { (1, rest) } else { (-1, text.strip_prefix('-')?) };
    let (hours, minutes) = match rest.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if rest.len() == 4 => rest.split_at_checked(2)?,
        None => (rest, "00"),
    };
    let (hours, minutes) = (digits(hours, 2, 2)?, digits(minutes, 2, 2)?);
    (hours < 16 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000_000)
}

/// A number of so many digits.
fn digits(text: &str, least: usize, most: usize) -> Option<i64> {
    let is_one = (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_one.then(|| text.parse().ok()).flatten()
}

/// The day; true when it is before Christ, which is said behind the time.
fn put_day(day: i64, out: &mut Text) -> Option<bool> {
    let (year, month, day) = civil(day);
    let before = year <= 0;
    let year = if before { 1 - year } else { year };
    unsigned(year.unsigned_abs(), 4, out)?;
    out.push('-');
    unsigned(month.unsigned_abs(), 2, out)?;
    out.push('-');
    unsigned(day.unsigned_abs(), 2, out)?;
    Some(before)
}

fn put_fraction(us: i64, out: &mut Text) -> Option<()> {
    if us != 0 {
        out.push('.');
        unsigned(us.unsigned_abs(), 6, out)?;
        out.trim_zeros();
    }
    Some(())
}

fn put_time(us: i64, out: &mut Text) -> Option<()> {
    let seconds = us.unsigned_abs() / 1_000_000;
    unsigned(seconds / 3600, 2, out)?;
    out.push(':');
    unsigned(seconds / 60 % 60, 2, out)?;
    out.push(':');
    unsigned(seconds % 60, 2, out)?;
    put_fraction(us % 1_000_000, out)
}

pub(super) fn date(b: &[u8], out: &mut Text) -> Option<()> {
    let day = i32::from_le_bytes(*b.first_chunk()?);
    match day {
        i32::MAX => out.push_str("infinity"),
        i32::MIN => out.push_str("-infinity"),
        day if put_day(day.into(), out)? => out.push_str(" BC"),
        _ => {}
    }
    Some(())
}

pub(super) fn timestamp(b: &[u8], zone: &str, out: &mut Text) -> Option<()> {
    let us = i64::from_le_bytes(*b.first_chunk()?);
    if us == i64::MAX || us == i64::MIN {
        out.push_str(if us > 0 { "infinity" } else { "-infinity" });
        return Some(());
    }
    let before = put_day(us.div_euclid(DAY), out)?;
    out.push(' ');
    put_time(us.rem_euclid(DAY), out)?;
    out.push_str(zone);
    if before {
        out.push_str(" BC");
    }
    Some(())
}

pub(super) fn time(b: &[u8], out: &mut Text) -> Option<()> {
    let us = i64::from_le_bytes(*b.first_chunk()?);
    (0..=DAY).contains(&us).then(|| put_time(us, out))?
}

/// A time, and the zone in seconds west of Greenwich.
pub(super) fn timetz(b: &[u8], out: &mut Text) -> Option<()> {
    time(b, out)?;
    let west = i32::from_le_bytes(*b.get(8..)?.first_chunk()?);
    let east = west.unsigned_abs();
    show(format_args!("{}{:02}", if west <= 0 { '+' } else { '-' }, east / 3600), out)?;
    if east % 3600 != 0 {
        show(format_args!(":{:02}", east / 60 % 60), out)?;
    }
    if east % 60 != 0 {
        show(format_args!(":{:02}", east % 60), out)?;
    }
    Some(())
}

/// Microseconds, days, months: each with its sign, none when it is zero.
pub(super) fn interval(b: &[u8], out: &mut Text) -> Option<()> {
    let us = i64::from_le_bytes(*b.first_chunk()?);
    let days = i32::from_le_bytes(*b.get(8..)?.first_chunk()?);
    let months = i32::from_le_bytes(*b.get(12..)?.first_chunk()?);
    match (us, days, months) {
        (i64::MAX, i32::MAX, i32::MAX) => return show("infinity", out),
        (i64::MIN, i32::MIN, i32::MIN) => return show("-infinity", out),
        _ => {}
    }
    let (mut any, mut after_negative) = (false, false);
    for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if value != 0 {
            let space = if any { " " } else { "" };
            let plus = if after_negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            show(format_args!("{space}{plus}{value} {unit}{plural}"), out)?;
            (any, after_negative) = (true, value < 0);
        }
    }
    if !any || us != 0 {
        let sign = match (us < 0, after_negative) {
            (true, _) => "-",
            (false, true) => "+",
            _ => "",
        };
        let (seconds, fraction) = (us.unsigned_abs() / 1_000_000, us.unsigned_abs() % 1_000_000);
        let space = if any { " " } else { "" };
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        show(format_args!("{space}{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60), out)?;
        put_fraction(fraction as i64, out)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_calendar_follow_one_another() {
        assert_eq!(civil(0), (2000, 1, 1));
        assert_eq!(civil(366 - 5 * 146_097), (1, 1, 1));
        let mut before = civil(-800_000);
        for day in -799_999..800_000 {
            let now = civil(day);
            let next = now.2 == before.2 + 1 && now.1 == before.1 && now.0 == before.0;
            let month = now.2 == 1 && now.1 == before.1 + 1 && now.0 == before.0 && before.2 >= 28;
            let year = now.2 == 1 && now.1 == 1 && before == (now.0 - 1, 12, 31);
            assert!(next || month || year, "{before:?} then {now:?}");
            before = now;
        }
    }

    #[test]
    fn days_and_times_are_read_as_they_are_printed() {
        for day in (-800_000..800_000).step_by(37) {
            let (mut text, bytes) = (Text::new(), i32::to_le_bytes(day));
            date(&bytes, &mut text).unwrap();
            assert_eq!(parse_date(&text.into_string()), Some(day));
            let us = i64::from(day) * DAY + i64::from(day.unsigned_abs()) * 104_729;
            let mut texts = [Text::new(), Text::new()];
            timestamp(&us.to_le_bytes(), "", &mut texts[0]).unwrap();
            timestamp(&us.to_le_bytes(), "+00", &mut texts[1]).unwrap();
            let [plain, zoned] = texts.map(Text::into_string);
            assert_eq!(
                (parse_timestamp(&plain, false), parse_timestamp(&zoned, true)),
                (Some(us), Some(us)),
                "{zoned}"
            );
        }
        assert_eq!(parse_date("5874897-12-31"), Some(2_145_031_948));
        assert_eq!((parse_date("infinity"), parse_date("-Infinity")), (Some(i32::MAX), Some(i32::MIN)));
        assert_eq!(parse_timestamp("2000-01-01", false), Some(0));
        assert_eq!(parse_timestamp("2000-01-01 00:30 -0130", true), Some(2 * 3_600_000_000));
        assert_eq!(parse_timestamp("2000-01-01T01:00:00.5Z", true), Some(3_600_500_000));
        for wrong in [
            "",
            "2001-02-29",
            "0000-01-01",
            "24-01-01",
            "2024-13-01",
            "2024-01-00",
            "2024-01-01 BC BC",
            "5874898-01-01",
            "é BC",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
        for wrong in [
            "2024-01-01 24:00",
            "2024-01-01 1:60",
            "2024-01-01 10",
            "2024-01-01 10:00.5",
            "2024-01-01 10:00:00.1234567",
        ] {
            assert_eq!(parse_timestamp(wrong, true), None, "{wrong}");
        }
        assert_eq!(
            (parse_timestamp("2024-01-01 10:00+02", false), parse_timestamp("294277-01-01", false)),
            (None, None)
        );
    }

    #[test]
    fn signs_of_an_interval() {
        let text = |us: i64, days: i32, months: i32| {
            let bytes = [&us.to_le_bytes()[..], &days.to_le_bytes(), &months.to_le_bytes()].concat();
            let mut out = Text::new();
            interval(&bytes, &mut out).unwrap();
            out.into_string()
        };
        assert_eq!(text(0, 0, 0), "00:00:00");
        assert_eq!(text(-1, 3, -14), "-1 years -2 mons +3 days -00:00:00.000001");
        assert_eq!(text(90_000_500_000, 1, 12), "1 year 1 day 25:00:00.5");
    }
}
