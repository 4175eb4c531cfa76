//! What was counted in one relation.

use std::collections::BTreeSet;

use crate::reason::Reason;

const REASONS: usize = Reason::ALL.len();

/// Rows, pages and bytes of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Count {
    pub rows: u64,
    pub pages: u64,
    /// Values of dropped columns; values packed the other way, as stored; pages of an index. 0 where nothing is stored in excess.
    pub bytes: u64,
}

/// What was counted in one relation, or in one page of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// By the number of the reason.
    pub counts: [Count; REASONS],
    /// Rows and pages with any reason, each once.
    pub any: Count,
    /// Of those rows: their transaction had not ended when the files were written.
    pub in_progress: u64,
    /// Of those rows: nothing tells whether they are visible.
    pub unknown: u64,
    /// Why.
    pub reasons: BTreeSet<String>,
    /// Pages looked at.
    pub pages: u64,
    /// Pages that are none of a table, also when read again.
    pub unread_pages: u64,
    /// Tuples whose bytes do not fit the columns, also when read again.
    pub unread_rows: u64,
    /// Pages that the file had when it was opened and had not any more when their turn came.
    pub gone_pages: u64,
    /// The relation's file was gone when its turn came.
    pub vanished: bool,
}

impl Tally {
    /// Of one reason.
    pub fn of(&self, reason: Reason) -> Count {
        self.counts[reason as usize]
    }

    /// So many rows more, which are old for each reason in a mask.
    pub(crate) fn count(&mut self, reasons: u16, rows: u64) {
        self.any.rows += rows;
        for (bit, count) in self.counts.iter_mut().enumerate() {
            count.rows += if reasons >> bit & 1 == 1 { rows } else { 0 };
        }
    }

    /// Ends a page: each reason that it has rows of has one page more.
    pub(crate) fn end_page(&mut self) {
        for count in self.counts.iter_mut().chain([&mut self.any]) {
            count.pages = u64::from(count.rows > 0);
        }
        self.pages = 1;
    }

    /// Whether something on this page cannot be, as when it was read while it was being written.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.unread_pages + self.unread_rows > 0
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        for (mine, theirs) in self.counts.iter_mut().chain([&mut self.any]).zip(other.counts.iter().chain([&other.any]))
        {
            mine.rows += theirs.rows;
            mine.pages += theirs.pages;
            mine.bytes += theirs.bytes;
        }
        self.in_progress += other.in_progress;
        self.unknown += other.unknown;
        self.reasons.extend(other.reasons.iter().cloned());
        self.pages += other.pages;
        self.unread_pages += other.unread_pages;
        self.unread_rows += other.unread_rows;
        self.gone_pages += other.gone_pages;
        self.vanished |= other.vanished;
    }
}
