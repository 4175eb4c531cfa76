//! What files of /proc say: numbers by name, fields by place.

/// The number after `name` and a colon or blanks at the start of a line.
pub fn field(text: &str, name: &str) -> Option<i64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix(|c: char| c == ':' || c.is_ascii_whitespace())?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// Nanoseconds of a clock tick of /proc (USER_HZ is 100 on Linux).
pub const CLOCK_TICK_NS: i64 = 10_000_000;

/// Fields of /proc/PID/stat from the third on: those after the command name, which may hold blanks and parentheses.
pub fn stat_fields(text: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace())
}

/// "name value ..." lines; others are passed over.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, i64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_name() {
        let text = "read_bytes: 12\nread_bytes_x: 13\nMemTotal:  5 kB\npswpin 7\n";
        assert_eq!(field(text, "read_bytes"), Some(12));
        assert_eq!(field(text, "MemTotal"), Some(5));
        assert_eq!(field(text, "pswpin"), Some(7));
        assert_eq!(field(text, "pswp"), None);
    }
}
