//! The timelines that WAL went along, as a history file tells them, and which of them a segment is taken from.
//!
//! ```text
//! timeline 1  ────────┬───── abandoned
//! timeline 2          └────┬───── abandoned
//! timeline 3               └──────────
//! ```
//!
//! Source: `readTimeLineHistory` and `tliOfPointInHistory` in `access/transam/timeline.c`, `XLogFileReadAnyTLI` in
//! `access/transam/xlogrecovery.c`.

use leadline_datadir::Lsn;

/// The name of a timeline's history file.
pub fn history_name(timeline: u32) -> String {
    format!("{timeline:08X}.history")
}

/// The name of a segment by its number, counted from the beginning of the WAL.
pub fn segment_name(timeline: u32, number: u64, segment_size: u64) -> String {
    let per_high = 0x1_0000_0000 / segment_size;
    format!("{timeline:08X}{:08X}{:08X}", number / per_high, number % per_high)
}

/// A timeline with those it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// Oldest first, each with where it begins; that of the oldest is 0.
    parts: Vec<(u32, Lsn)>,
}

impl Lineage {
    /// One that came from no other, or of which nothing more is known.
    pub fn alone(timeline: u32) -> Lineage {
        Lineage { parts: vec![(timeline, Lsn(0))] }
    }

    /// Reads the history file of a timeline; the error says what is wrong with it.
    pub fn parse(timeline: u32, text: &str) -> std::result::Result<Lineage, String> {
        let mut parts = Vec::new();
        let mut begins = Lsn(0);
        for line in text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_ascii_whitespace();
            let number = words.next().and_then(|word| word.parse().ok());
            let number: u32 = number.ok_or_else(|| format!("no timeline number in: {line}"))?;
            let end = words.next().and_then(|word| word.parse().ok());
            let end: Lsn = end.ok_or_else(|| format!("no LSN after the timeline in: {line}"))?;
            if parts.last().is_some_and(|(last, _)| number <= *last) || number >= timeline {
                return Err(format!("timeline {number} is not in order"));
            }
            if end < begins {
                return Err(format!("timeline {number} ends at {end}, before it begins"));
            }
            parts.push((number, begins));
            begins = end;
        }
        parts.push((timeline, begins));
        Ok(Lineage { parts })
    }

    /// The newest timeline.
    pub fn timeline(&self) -> u32 {
        self.parts.last().map_or(0, |part| part.0)
    }

    /// The timeline that has what is written at an LSN.
    pub fn at(&self, lsn: Lsn) -> u32 {
        let part = self.parts.iter().rev().find(|(_, begins)| *begins <= lsn);
        part.or(self.parts.first()).map_or(0, |part| part.0)
    }

    /// Where a timeline was left for the next one; none for the newest, and for others that are not in this lineage.
    pub fn left(&self, timeline: u32) -> Option<Lsn> {
        let at = self.parts.iter().position(|part| part.0 == timeline)?;
        self.parts.get(at + 1).map(|next| next.1)
    }

    /// Whether a timeline is one of these.
    pub fn has(&self, timeline: u32) -> bool {
        self.parts.iter().any(|part| part.0 == timeline)
    }

    /// The timelines whose segment of this number can hold the WAL, newest first, each with the LSN up to which it does.
    ///
    /// The segment in which a timeline begins is a copy of its parent's up to there. The parent's own is as good up to there.
    pub fn of_segment(&self, number: u64, segment_size: u64) -> Vec<(u32, Option<Lsn>)> {
        let mut found = Vec::new();
        let mut limit = None;
        for (timeline, begins) in self.parts.iter().rev() {
            if begins.0 / segment_size > number {
                continue;
            }
            found.push((*timeline, limit));
            if begins.0 / segment_size < number || begins.0 == 0 {
                break;
            }
            limit = Some(*begins);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    #[test]
    fn a_history_says_whose_each_place_is() {
        let text =
            "# made by hand\n1\t0/2000100\tno recovery target specified\n\n2\t0/50000A0\tat restore point \"x\"\n";
        let of = Lineage::parse(4, text).unwrap();
        assert_eq!(of.timeline(), 4);
        assert_eq!([0, 0x200_00FF, 0x200_0100, 0x500_009F, 0x500_00A0].map(|lsn| of.at(Lsn(lsn))), [1, 1, 2, 2, 4]);
        assert_eq!((of.left(1), of.left(4), of.left(3)), (Some(Lsn(0x200_0100)), None, None));
        assert!(of.has(2) && !of.has(3));
        assert_eq!(of.of_segment(1, SEGMENT), [(1, None)]);
        assert_eq!(of.of_segment(2, SEGMENT), [(2, None), (1, Some(Lsn(0x200_0100)))]);
        assert_eq!(of.of_segment(3, SEGMENT), [(2, None)]);
        assert_eq!(of.of_segment(9, SEGMENT), [(4, None)]);
        assert_eq!(Lineage::alone(7).of_segment(3, SEGMENT), [(7, None)]);
    }

    #[test]
    fn two_switches_in_one_segment() {
        let of = Lineage::parse(3, "1 0/2000100 a\n2 0/2000200 b").unwrap();
        let (first, second) = (Some(Lsn(0x200_0100)), Some(Lsn(0x200_0200)));
        assert_eq!(of.of_segment(2, SEGMENT), [(3, None), (2, second), (1, first)]);
    }

    #[test]
    fn a_history_out_of_order_is_none() {
        for (text, wrong) in [
            ("one 0/100", "no timeline number in: one 0/100"),
            ("1 here", "no LSN after the timeline in: 1 here"),
            ("2 0/100\n1 0/200", "timeline 1 is not in order"),
            ("3 0/100", "timeline 3 is not in order"),
            ("1 0/200\n2 0/100", "timeline 2 ends at 0/100, before it begins"),
        ] {
            assert_eq!(Lineage::parse(3, text), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn names() {
        assert_eq!(segment_name(2, 0x1FE, SEGMENT), "0000000200000001000000FE");
        assert_eq!(history_name(0x1A), "0000001A.history");
    }
}
