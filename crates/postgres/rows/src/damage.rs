//! What is wrong with the catalogs that a relation was read through: they are files like its own, and lose pages like these.

use std::collections::{BTreeMap, BTreeSet};

use crate::heap_file::Passed;

/// Blocks that are named.
const NAMED: usize = 5;

/// What was wrong with the catalogs read so far.
#[derive(Debug, Clone, Default)]
pub struct Damage {
    catalogs: BTreeMap<String, InCatalog>,
    said: BTreeSet<String>,
}

/// What was met in one catalog.
#[derive(Debug, Clone, Default)]
pub(crate) struct InCatalog {
    pub passed: Passed,
    /// Rows whose bytes do not fit the columns.
    pub rows: u64,
    /// Rows that count although it is not known whether they are visible.
    pub unknown: u64,
}

impl Damage {
    /// What the last look through a catalog met.
    pub(crate) fn met(&mut self, catalog: String, found: InCatalog) {
        self.catalogs.insert(catalog, found);
    }

    /// Something that a catalog should have and has not.
    pub(crate) fn say(&mut self, what: String) {
        self.said.insert(what);
    }

    /// What is wrong, one line each. Empty pages alone are nothing wrong: the server adds some before it needs them.
    pub fn lines(&self) -> Vec<String> {
        self.text(!self.said.is_empty())
    }

    /// What may be why something is not there.
    pub(crate) fn excuses(&self) -> Vec<String> {
        self.text(true)
    }

    fn text(&self, with_empty: bool) -> Vec<String> {
        let mut lines: Vec<String> = self.said.iter().cloned().collect();
        for (catalog, found) in &self.catalogs {
            let passed = &found.passed;
            let mut line = |what: String| lines.push(format!("{catalog}: {what}"));
            for hole in &passed.holes {
                line(format!("blocks {} to {} are missing", hole.start, hole.end - 1));
            }
            if !passed.damaged.is_empty() {
                line(format!("no table page: {}; its rows are lost", blocks(&passed.damaged)));
            }
            if !passed.checksums.is_empty() {
                line(format!("wrong checksum: {}; its rows are used as stored", blocks(&passed.checksums)));
            }
            if with_empty && !passed.empty.is_empty() {
                line(format!("only zeros: {}", blocks(&passed.empty)));
            }
            match passed.rows + found.rows {
                0 => {}
                1 => line("1 row cannot be decoded".into()),
                rows => line(format!("{rows} rows cannot be decoded")),
            }
            match found.unknown {
                0 => {}
                1 => line("the status of 1 row is not known; it is used".into()),
                unknown => line(format!("the status of {unknown} rows is not known; they are used")),
            }
        }
        lines
    }
}

fn blocks(all: &[u32]) -> String {
    in_words(all.iter().copied(), all.len() as u64)
}

/// The first of so many blocks by their numbers, and how many more there are.
pub(crate) fn in_words(all: impl Iterator<Item = u32>, count: u64) -> String {
    let named: Vec<String> = all.take(NAMED).map(|block| block.to_string()).collect();
    let more = if count > NAMED as u64 { format!(" and {} more", count - NAMED as u64) } else { String::new() };
    format!("block{} {}{more}", if count == 1 { "" } else { "s" }, named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_pages_are_told_where_something_is_missing() {
        let mut damage = Damage::default();
        let passed = Passed { empty: vec![7], ..Passed::default() };
        damage.met("pg_attribute".into(), InCatalog { passed, ..InCatalog::default() });
        assert_eq!(damage.lines(), Vec::<String>::new());
        assert_eq!(damage.excuses(), ["pg_attribute: only zeros: block 7"]);
        let passed = Passed { checksums: (1..=7).collect(), damaged: vec![3], rows: 1, ..Passed::default() };
        damage.met("pg_class".into(), InCatalog { passed, rows: 1, unknown: 1 });
        damage.say("column 2 is missing".into());
        assert_eq!(
            damage.lines(),
            [
                "column 2 is missing",
                "pg_attribute: only zeros: block 7",
                "pg_class: no table page: block 3; its rows are lost",
                "pg_class: wrong checksum: blocks 1, 2, 3, 4, 5 and 2 more; its rows are used as stored",
                "pg_class: 2 rows cannot be decoded",
                "pg_class: the status of 1 row is not known; it is used",
            ]
        );
    }
}
