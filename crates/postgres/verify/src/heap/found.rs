//! Problems of one relation, told so that one damage does not make thousands.

use std::collections::{BTreeMap, HashSet};

use leadline_errors::Result;

use crate::blocks::{Blocks, Page};
use crate::problem::{Problem, Report, Sure};

/// Of a class in one relation so many are told; more are counted.
const MOST: u64 = 10;
/// Transactions that are remembered.
const MOST_TOLD: usize = 10_000;

/// Where a problem is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub block: u32,
    /// The line pointer, from 1; 0: the page.
    pub item: u16,
}

/// Takes the problems of a relation.
pub(crate) struct Found<'r, 'a> {
    report: &'r mut Report<'a>,
    names: Blocks,
    counts: BTreeMap<&'static str, u64>,
    /// Transactions that were told of: one may have written all rows.
    told: HashSet<(&'static str, u32)>,
    /// Problems of one page, where a running server may have been writing it while it was read.
    held: Option<Vec<Problem>>,
}

impl<'r, 'a> Found<'r, 'a> {
    pub(crate) fn new(report: &'r mut Report<'a>, names: Blocks) -> Found<'r, 'a> {
        Found { report, names, counts: BTreeMap::new(), told: HashSet::new(), held: None }
    }

    /// Something is wrong.
    pub(crate) fn certain(&mut self, class: &'static str, at: At, message: String, means: &'static str) {
        self.tell(class, at, message, means, Sure::Certain);
    }

    /// Something is wrong with a transaction, which is told once.
    pub(crate) fn of_transaction(
        &mut self,
        class: &'static str,
        xid: u32,
        at: At,
        message: String,
        means: &'static str,
    ) {
        if self.told.len() < MOST_TOLD && !self.told.insert((class, xid)) {
            self.report.skipped(format!("problems of the class {class} with a transaction that was told of"), 1);
            return;
        }
        self.certain(class, at, message, means);
    }

    /// Something is wrong that a server can have written by a fault of its own.
    pub(crate) fn likely(&mut self, class: &'static str, at: At, message: String, means: &'static str) {
        self.tell(class, at, message, means, Sure::Likely);
    }

    fn tell(&mut self, class: &'static str, at: At, message: String, means: &'static str, sure: Sure) {
        let item = (at.item > 0).then_some(at.item);
        let mut problem = self.names.problem(class, at.block, item, message, means);
        problem.sure = sure;
        match &mut self.held {
            Some(held) => held.push(problem),
            None => self.pass(problem),
        }
    }

    fn pass(&mut self, problem: Problem) {
        let count = self.counts.entry(problem.class).or_default();
        *count += 1;
        if *count <= MOST {
            self.report.found(problem);
        }
    }

    /// From now on problems are of one page, and wait for [`Found::settle`].
    pub(crate) fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Tells what was held, if the page is still as it was.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn settle(&mut self, page: &Page<'_>, is_same: impl FnOnce() -> Result<bool>) -> Result<()> {
        let held = self.held.take().unwrap_or_default();
        if held.is_empty() {
            return Ok(());
        }
        let again = self.names.read(page.block)?;
        if again.is_some_and(|again| again.bytes == page.bytes) && is_same()? {
            held.into_iter().for_each(|problem| self.pass(problem));
        } else {
            self.report.skipped("pages that changed while they were read", 1);
        }
        Ok(())
    }

    /// Something could not be compared.
    pub(crate) fn skipped(&mut self, why: impl Into<String>, count: u64) {
        self.report.skipped(why, count);
    }

    /// Who asked does not want to know more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.report.is_stopped()
    }

    /// Counts what was not told.
    pub(crate) fn finish(self) {
        for (class, count) in &self.counts {
            let why = format!("problems of the class {class} beyond {MOST} in one relation");
            self.report.skipped(why, count.saturating_sub(MOST));
        }
    }
}
