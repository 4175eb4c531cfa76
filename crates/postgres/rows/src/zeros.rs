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
    /// Those of partitions that were read before.
    ended: Ended,
}

/// Those of partitions that are read: all, those before pages in use, and where these are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ended {
    count: u64,
    before_used: u64,
    places: Vec<String>,
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
        self.ended.count += other.ended.count;
        self.ended.before_used += other.ended.before_used;
        self.ended.places.extend(other.ended.places.iter().cloned());
    }

    /// All that was met was a partition, which is read.
    pub(crate) fn end(&mut self, partition: &str) {
        let (count, before) = (self.count(), self.before_used());
        let (before_used, place) = before.map_or((0, None), |(n, at)| (n, Some(format!("{partition} {at}"))));
        *self = Zeros { ended: Ended { count, before_used, places: place.into_iter().collect() }, ..Zeros::default() };
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.ended.count + self.runs.iter().map(|run| u64::from(run.end - run.start)).sum::<u64>()
    }

    /// Those before a page that is in use: how many, and where. Zeros at the end are what a server adds.
    pub fn before_used(&self) -> Option<(u64, String)> {
        let before: Vec<Range<u32>> =
            self.runs.iter().filter(|run| run.start < self.used).map(|run| run.start..run.end.min(self.used)).collect();
        let count: u64 = before.iter().map(|run| u64::from(run.end - run.start)).sum();
        let own = (count > 0).then(|| in_words(before.into_iter().flatten(), count));
        let places: Vec<&str> = self.ended.places.iter().map(String::as_str).chain(own.as_deref()).collect();
        let all = count + self.ended.before_used;
        (all > 0).then(|| (all, places.join("; ")))
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
        let (mut first, mut second) = (all.clone(), Zeros::default());
        first.end("public.p1");
        assert_eq!((first.count(), first.before_used()), (4, Some((4, "public.p1 blocks 2, 7, 8, 9".into()))));
        second.met(0, true);
        second.met(1, false);
        second.end("public.p2");
        first.add(&second);
        assert_eq!(
            (first.count(), first.before_used()),
            (5, Some((5, "public.p1 blocks 2, 7, 8, 9; public.p2 block 0".into())))
        );
    }
}
