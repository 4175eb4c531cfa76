//! Problems on their way to the report: looked at again when the server may have been writing, and few of each sort.

use std::collections::BTreeMap;

use leadline_errors::Result;
use leadline_page::postgres::Kind;

use crate::blocks::{Blocks, Settled};
use crate::problem::{Report, Sure};

/// Problems of one class that are told of one index.
const MOST: usize = 5;

/// A problem of an index.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub class: &'static str,
    pub block: u32,
    pub item: Option<u16>,
    /// Other blocks of the index that it follows from.
    pub others: Vec<u32>,
    pub message: String,
    pub means: &'static str,
    pub sure: Sure,
}

impl Found {
    pub(crate) fn new(class: &'static str, block: u32, message: String, means: &'static str) -> Found {
        Found { class, block, item: None, others: Vec::new(), message, means, sure: Sure::Certain }
    }

    pub(crate) fn item(self, item: u16) -> Found {
        Found { item: Some(item), ..self }
    }

    pub(crate) fn and(self, others: &[u32]) -> Found {
        Found { others: others.to_vec(), ..self }
    }
}

/// Problems of one index as they are found: the first ones of each class.
#[derive(Debug, Default)]
pub(crate) struct AllFound {
    all: Vec<Found>,
    counts: BTreeMap<&'static str, usize>,
}

impl AllFound {
    pub(crate) fn push(&mut self, found: Found) {
        let count = self.counts.entry(found.class).or_default();
        *count += 1;
        if *count <= MOST {
            self.all.push(found);
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Found> {
        self.all.iter()
    }

    /// Adds what another thread found.
    pub(crate) fn append(&mut self, other: AllFound) {
        let mut left_out = other.counts;
        for found in other.all {
            left_out.entry(found.class).and_modify(|count| *count -= 1);
            self.push(found);
        }
        for (class, count) in left_out {
            *self.counts.entry(class).or_default() += count;
        }
    }

    /// Tells them.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn tell(mut self, blocks: &mut Blocks, report: &mut Report<'_>) -> Result<()> {
        self.all.sort_by_key(|found| (found.block, found.item));
        let mut told: BTreeMap<&str, usize> = BTreeMap::new();
        for found in self.all {
            if !still_settled(blocks, &found)? {
                report.skipped("pages that changed while they were read", 1);
                continue;
            }
            *told.entry(found.class).or_default() += 1;
            let mut problem = blocks.problem(found.class, found.block, found.item, found.message, found.means);
            problem.sure = found.sure;
            report.found(problem);
        }
        let more: usize =
            self.counts.iter().map(|(class, count)| count - told.get(class).unwrap_or(&0).min(count)).sum();
        report.skipped("further problems of the same class in the same index", more as u64);
        Ok(())
    }
}

/// Without checksums, a page that is half written can look as if it were of before the checkpoint. Read again it does not.
fn still_settled(blocks: &mut Blocks, found: &Found) -> Result<bool> {
    if blocks.settled() == Settled::All {
        return Ok(true);
    }
    for block in std::iter::once(&found.block).chain(&found.others) {
        if !blocks.read(*block)?.is_some_and(|page| page.is_settled || page.kind == Kind::New) {
            return Ok(false);
        }
    }
    Ok(true)
}
