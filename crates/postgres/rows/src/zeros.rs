//! Pages of only zeros: a server adds some to a file before it needs them, and a disk that loses a page gives zeros for it.

use std::ops::Range;

use crate::damage::in_words;

/// Those of a relation, as far as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zeros {
    /// Runs of blocks, each behind the one that was met before it.
    runs: Vec<Range<u32>>,
    /// Behind the last page with anything in it.
    used: u32,
}

impl Zeros {
    /// The next page: whether it is one.
    pub(crate) fn met(&mut self, block: u32, is_new: bool) {
        if !is_new {
            self.used = self.used.max(block.saturating_add(1));
            return;
        }
        match self.runs.last_mut() {
            Some(run) if run.end == block => run.end += 1,
            _ => self.runs.push(block..block.saturating_add(1)),
        }
    }

    pub(crate) fn add(&mut self, other: &Zeros) {
        self.runs.extend(other.runs.iter().cloned());
        self.runs.sort_by_key(|run| run.start);
        self.used = self.used.max(other.used);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.end - run.start)).sum()
    }

    /// Those before a page that is in use: how many, and where. Zeros at the end are what a server adds.
    pub fn before_used(&self) -> Option<(u64, String)> {
        let before: Vec<Range<u32>> =
            self.runs.iter().filter(|run| run.start < self.used).map(|run| run.start..run.end.min(self.used)).collect();
        let count = before.iter().map(|run| u64::from(run.end - run.start)).sum();
        (count > 0).then(|| (count, in_words(before.into_iter().flatten(), count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_count_before_a_page_that_is_in_use() {
        let mut all = Zeros::default();
        for block in [7, 8, 9] {
            all.met(block, true);
        }
        assert_eq!((all.count(), all.before_used()), (3, None));
        let mut others = Zeros::default();
        for block in 0..5 {
            others.met(block, block == 2);
        }
        all.add(&others);
        assert_eq!((all.count(), all.before_used()), (4, Some((1, "block 2".into()))));
        all.met(12, false);
        assert_eq!(all.before_used(), Some((4, "blocks 2, 7, 8, 9".into())));
    }
}
