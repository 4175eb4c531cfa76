//! Dates, times, intervals: counted from 2000-01-01, in days and microseconds.

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
