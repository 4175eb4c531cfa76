//! Records too long to be held whole: up to 1020 MB (`XLogRecordMaxSize`) of which nearly all is main data, the last thing in them.
//!
//! Their CRC is computed as they are read. Kept are the front with all block data and images, the first bytes of main data, and
//! the few pieces behind them with what comes next (`crate::describe::missing`). What is not kept is counted; who needs
//! all of a list reads it from the WAL once more, a bit at a time ([`crate::Again`]).

use crate::record::BEFORE_MAIN;

/// What is kept of a long record, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// From the record's beginning, while it is put together: what there can be before the main data, and `main`.
    pub front: usize,
    /// From the beginning of the main data.
    pub main: usize,
    /// Of each piece behind it.
    pub piece: usize,
}

/// What is kept unless a test says otherwise. A MiB of main data has 65,536 invalidation messages or 262,144 subtransactions. To print
/// them takes about a hundred times as much memory, of which there are to be less than 300 MB.
pub const KEPT: Kept = Kept { front: BEFORE_MAIN + (1 << 20), main: 1 << 20, piece: 1 << 16 };

/// A list of which only the first things may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T> {
    /// The first ones.
    pub known: Vec<T>,
    /// How many more there are.
    pub left_out: usize,
    /// Where in the main data those begin.
    pub rest_at: usize,
}

impl<T> List<T> {
    /// A list of nothing.
    pub(crate) fn none() -> List<T> {
        List { known: Vec::new(), left_out: 0, rest_at: 0 }
    }

    /// Where it begins, when nothing of it is kept.
    pub(crate) fn unknown(&self) -> Option<usize> {
        (self.known.is_empty() && self.left_out > 0).then_some(self.rest_at)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.left_out == 0
    }
}
