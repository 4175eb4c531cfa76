//! The rows that an index has: two bytes for each place that a row of a part of the table can be at.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use leadline_page::Tid;

/// Bytes of the marks at a time.
const MOST_BYTES: usize = 150 << 20;

/// Added to the mark of an entry that says that its row is dead to everyone.
pub(crate) const DEAD: u16 = 0x8000;

/// What was at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    /// It is of another part of the table.
    Elsewhere,
    First,
    /// There was a mark already.
    Again,
}

/// The marks of some blocks of a table.
#[derive(Debug)]
pub(crate) struct Marks {
    blocks: Range<u32>,
    per_block: usize,
    /// A number for the key of the row's entry; 0: there is none.
    marks: Vec<AtomicU16>,
}

impl Marks {
    /// Of as many blocks from the first one on as there is room for.
    pub(crate) fn new(first: u32, end: u32, per_block: u16) -> Marks {
        let per_block = usize::from(per_block).max(1);
        let room = MOST_BYTES / 2 / per_block;
        let count = (end.saturating_sub(first) as usize).min(room);
        let marks = std::iter::repeat_with(AtomicU16::default).take(count * per_block).collect();
        Marks { blocks: first..first + count as u32, per_block, marks }
    }

    pub(super) fn blocks(&self) -> Range<u32> {
        self.blocks.clone()
    }

    fn at(&self, tid: Tid) -> Option<&AtomicU16> {
        let within = tid.block.checked_sub(self.blocks.start)? as usize;
        let place = usize::from(tid.posid).checked_sub(1).filter(|place| *place < self.per_block)?;
        self.marks.get(within * self.per_block + place)
    }

    /// Marks the row of an entry.
    #[inline]
    pub(crate) fn mark(&self, tid: Tid, print: u16) -> Marked {
        match self.at(tid) {
            None => Marked::Elsewhere,
            Some(mark) if mark.swap(print, Relaxed) == 0 => Marked::First,
            Some(_) => Marked::Again,
        }
    }

    /// The same, where nobody asks whether it had one.
    pub(crate) fn mark_again(&self, tid: Tid, print: u16) {
        if let Some(mark) = self.at(tid) {
            mark.store(print, Relaxed);
        }
    }

    /// The marks of a block.
    pub(super) fn of_block(&self, block: u32) -> impl Iterator<Item = u16> + '_ {
        let within = block.saturating_sub(self.blocks.start) as usize * self.per_block;
        let marks = self.marks.get(within..within + self.per_block).unwrap_or_default();
        marks.iter().map(|mark| mark.load(Relaxed))
    }
}
