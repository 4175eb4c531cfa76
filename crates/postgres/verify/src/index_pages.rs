//! What the checks of index pages share: which pages can be compared, their items, and bits for items.

use leadline_errors::Result;
use leadline_page::postgres::line_pointer::line_pointers;
use leadline_page::postgres::Kind;

use crate::blocks::{Blocks, Page, Settled};
use crate::problem::Report;
use crate::target::Target;

/// `InvalidBlockNumber`.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Pages of an index that is checked: each takes up to 64 bytes of memory.
const MOST_PAGES: u32 = 6 << 20;

/// Problems of one sort that are told of one index; the rest is counted.
const MOST_TOLD: u64 = 10;

/// The blocks of an index, if it can be checked.
///
/// # Errors
/// When it has no file, or the file system says no.
pub(crate) fn open(target: &Target<'_>, report: &mut Report<'_>) -> Result<Option<Blocks>> {
    // One that is not valid is being built, or its build failed: nobody reads it.
    if !target.index().is_some_and(|index| index.is_valid) {
        report.skipped("indexes that are not valid", 1);
        return Ok(None);
    }
    let blocks = target.blocks()?;
    if blocks.count() == 0 && blocks.settled() == Settled::All {
        let message = "the index has no blocks, but each index has one at least".into();
        report.found(blocks.problem("meta", 0, None, message, "index scans fail"));
        return Ok(None);
    }
    if blocks.count() > MOST_PAGES {
        report.skipped("pages of indexes that are too large", blocks.count().into());
        return Ok(None);
    }
    Ok(Some(blocks))
}

/// Tells which pages can be compared, and counts the others.
pub(crate) struct Comparable {
    settled: Settled,
    changed: u64,
    damaged: u64,
    foreign: Few,
    count: u32,
    settled_pages: u32,
}

impl Comparable {
    pub(crate) fn of(blocks: &Blocks) -> Comparable {
        Comparable {
            settled: blocks.settled(),
            changed: 0,
            damaged: 0,
            foreign: Few::default(),
            count: blocks.count(),
            settled_pages: 0,
        }
    }

    /// Whether a page can be compared with others.
    pub(crate) fn take(&mut self, page: &Page<'_>) -> bool {
        // While an index is built, its pages have no LSN, or 1 (`GistBuildLSN`), until all are logged at the end: a file may still have one
        // of those.
        let is_settled = page.is_settled && (self.settled == Settled::All || page.header.pd_lsn > 1);
        self.settled_pages += u32::from(is_settled);
        if !is_settled && page.kind != Kind::New {
            match self.settled {
                Settled::All => self.damaged += 1,
                _ => self.changed += 1,
            }
        }
        is_settled
    }

    /// The same of a page of an index that is read from its first to its last. One of another index or a table is reported, and cannot be
    /// compared. `is_own`: whether a page of this kind can be this block.
    pub(crate) fn take_own(
        &mut self,
        page: &Page<'_>,
        is_own: fn(u32, Kind) -> bool,
        names: &Blocks,
        report: &mut Report<'_>,
    ) -> bool {
        if !self.take(page) {
            return false;
        }
        let is_own = is_own(page.block, page.kind);
        if !is_own {
            self.damaged += 1;
            self.settled_pages -= 1;
            if self.foreign.take(page.block) {
                let message =
                    format!("block {} is a {} page, which does not belong there", page.block, page.kind.as_str());
                report.found(names.problem("kind", page.block, None, message, "index scans and inserts fail"));
            }
        }
        is_own
    }

    /// Whether all blocks were there and could be compared. Files in the middle may be missing, and a file becomes empty when its relation
    /// is dropped meanwhile.
    pub(crate) fn are_all(&self) -> bool {
        self.are_all_but(0)
    }

    /// The same, but for some blocks of which that is known otherwise.
    pub(crate) fn are_all_but(&self, known: u32) -> bool {
        self.settled_pages + known == self.count
    }

    /// Tells of those that could not be compared.
    pub(crate) fn tell(&self, report: &mut Report<'_>) {
        report.skipped("pages changed after the last checkpoint", self.changed);
        report.skipped("damaged pages", self.damaged);
    }
}

/// How many problems there are so far.
pub(crate) fn found(report: &Report<'_>) -> u64 {
    report.classes.values().sum()
}

/// The items of a page of an index with their numbers, dead ones too: those only spare scans a look at the table.
pub(crate) fn items<'a>(page: &Page<'a>) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
    let bytes = page.bytes;
    line_pointers(bytes, &page.header).filter_map(move |(number, lp)| Some((number as u16, lp.item(bytes)?)))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// A block, or that there is none, in words.
pub(crate) fn block_name(block: u32) -> String {
    if block == NO_BLOCK {
        "no block".into()
    } else {
        format!("block {block}")
    }
}

/// How often one sort of problem was met in an index: one damage makes few problems.
#[derive(Default)]
pub(crate) struct Few {
    last: Option<u32>,
    told: u64,
    untold: u64,
}

impl Few {
    /// Whether one more is told: one of each block, up to some blocks.
    pub(crate) fn take(&mut self, block: u32) -> bool {
        let is_told = self.last != Some(block) && self.told < MOST_TOLD;
        self.last = Some(block);
        self.told += u64::from(is_told);
        self.untold += u64::from(!is_told);
        is_told
    }

    /// Whether no more are told.
    pub(crate) fn is_full(&self) -> bool {
        self.told >= MOST_TOLD
    }

    /// Counts those that were not told.
    pub(crate) fn tell(&self, report: &mut Report<'_>) {
        report.skipped("further problems of the same sort in an index", self.untold);
    }
}

/// Pages that lead to one page: which of them is wrong is not known, so that no page is told of twice.
#[derive(Default)]
pub(crate) struct Twice(Vec<u32>);

impl Twice {
    /// Whether it is told that both lead to the same page.
    pub(crate) fn take(&mut self, first: u32, second: u32) -> bool {
        let is_told = !self.0.contains(&first) && !self.0.contains(&second) && self.0.len() < 2 * MOST_TOLD as usize;
        if is_told {
            self.0.extend([first, second]);
        }
        is_told
    }
}

/// A bit for each item of some blocks.
pub(crate) struct ItemBits {
    first: u32,
    words: usize,
    bits: Vec<u64>,
}

impl ItemBits {
    /// `items`: the most that a page has.
    pub(crate) fn new(blocks: std::ops::Range<u32>, items: usize) -> ItemBits {
        let words = (items + 1).div_ceil(64);
        ItemBits { first: blocks.start, words, bits: vec![0; words * blocks.len()] }
    }

    fn place(&self, block: u32, item: u16) -> Option<(usize, u64)> {
        let word = usize::from(item) / 64;
        let row = block.checked_sub(self.first)? as usize;
        (word < self.words).then_some((row * self.words + word, 1 << (item % 64)))
    }

    /// Sets a bit; whether it was set before. None: there is no such item.
    pub(crate) fn set(&mut self, block: u32, item: u16) -> Option<bool> {
        let (at, bit) = self.place(block, item)?;
        let word = self.bits.get_mut(at)?;
        let before = *word & bit != 0;
        *word |= bit;
        Some(before)
    }

    pub(crate) fn is_set(&self, block: u32, item: u16) -> bool {
        self.place(block, item).and_then(|(at, bit)| Some(self.bits.get(at)? & bit != 0)).unwrap_or(false)
    }

    /// The items of a block whose bits are set.
    pub(crate) fn of_block(&self, block: u32) -> impl Iterator<Item = u16> + use<'_> {
        let row = block.checked_sub(self.first).map_or(usize::MAX, |row| row as usize);
        let words = row.checked_mul(self.words).and_then(|at| self.bits.get(at..at + self.words)).unwrap_or(&[]);
        let of_word = |(i, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (i * 64 + bit) as u16)
        };
        words.iter().enumerate().flat_map(of_word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_of_each_page_is_told() {
        let (mut few, mut twice) = (Few::default(), Twice::default());
        assert_eq!([1, 1, 2, 1].map(|block| few.take(block)), [true, false, true, true]);
        assert_eq!((3..20).filter(|block| few.take(*block)).count(), 7);
        assert!(few.is_full());
        assert!(twice.take(1, 2) && !twice.take(3, 1) && twice.take(3, 4));
    }

    #[test]
    fn bits_of_items_are_apart() {
        let mut bits = ItemBits::new(10..12, 291);
        assert_eq!((bits.set(10, 1), bits.set(10, 1), bits.set(11, 291)), (Some(false), Some(true), Some(false)));
        assert_eq!((bits.set(9, 1), bits.set(12, 1), bits.set(10, 400)), (None, None, None));
        assert!(bits.is_set(11, 291) && !bits.is_set(10, 291) && !bits.is_set(40, 1));
        assert_eq!(bits.of_block(11).collect::<Vec<_>>(), [291]);
        assert_eq!(bits.of_block(40).count() + bits.of_block(1).count(), 0);
    }
}
