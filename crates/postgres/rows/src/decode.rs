//! From blocks of a relation's files to values: which rows are there, and the bytes of each column of them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use leadline_bytes::ReadBuffer;
use leadline_page::postgres::{is_new, Header};

use crate::cell::{Place, Value};
use crate::cells::{Cells, Layout, Rows};
use crate::filter::{Filter, Verdict};
use crate::heap_file::{tuples, HeapFile, Tuple};
use crate::losses::Losses;
use crate::outside::Outside;
use crate::relation::Relation;
use crate::settle::{settle, settle_twice, Settled};
use crate::xact::{Status, Xacts};
use crate::zeros::Zeros;
use leadline_errors::Result;

/// Blocks read at a time: they stay in the processor's cache until their rows are taken.
const BLOCKS: usize = 16;

/// What could not be read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unread {
    /// Pages that are none of a table, and what is left of one at the end of the last file.
    pub pages: u64,
    /// Blocks that were there at first, and were not when they were to be read.
    pub gone: u64,
    /// Pages that were different each time they were read, and wrong: a running server was writing them.
    pub torn: u64,
    /// Pages that have another checksum than their bytes. Their rows are given as they are.
    pub checksums: u64,
    /// Tuples whose bytes do not fit the columns.
    pub rows: u64,
    /// Values that were stored outside and are not all there, or cannot be unpacked.
    pub values: u64,
    /// Values that were stored outside of rows that no snapshot sees, and were vacuumed away before these: no damage.
    pub vacuumed: u64,
    /// Blocks that the relation's files did not have from the first: a file is gone, or ends too early.
    pub missing: u64,
    /// Pages of only zeros.
    pub zeros: Zeros,
    /// Rows that are given although a value that a condition needs is lost.
    pub undecided: u64,
    /// Rows that are given although it is not known whether they are visible.
    pub unknown: u64,
    /// Rows that are given and name transactions that there were not yet.
    pub future: u64,
    /// Why it is not known.
    pub reasons: BTreeSet<String>,
    /// Pages of toast tables whose checksum is wrong, and that values were taken from.
    pub toast_checksums: BTreeSet<(u32, u32)>,
    /// Which they are, but for blocks that are gone and pages whose rows are given.
    pub losses: Losses,
}

impl Unread {
    /// Counts what is missing in the middle, and what is left of a block at the end of the last file.
    pub(crate) fn and_end_of(mut self, heap: &HeapFile) -> Unread {
        for (hole, words) in heap.holes.iter().zip(heap.holes_in_words()) {
            self.missing += u64::from(hole.end - hole.start);
            self.losses.page(hole.start, &words);
        }
        if heap.is_cut {
            self.pages += 1;
            self.losses.page(heap.blocks, "the file ends in the middle of it");
        }
        self
    }

    /// Says of which partition the blocks are that are named so far.
    pub(crate) fn of_partition(mut self, name: &str) -> Unread {
        self.zeros.end(name);
        self.losses.of_partition(name);
        self
    }

    pub(crate) fn add(&mut self, other: &Unread) {
        self.pages += other.pages;
        self.gone += other.gone;
        self.torn += other.torn;
        self.checksums += other.checksums;
        self.rows += other.rows;
        self.values += other.values;
        self.vacuumed += other.vacuumed;
        self.missing += other.missing;
        self.zeros.add(&other.zeros);
        self.undecided += other.undecided;
        self.unknown += other.unknown;
        self.future += other.future;
        self.reasons.extend(other.reasons.iter().cloned());
        self.toast_checksums.extend(&other.toast_checksums);
        self.losses.add(&other.losses);
    }
}

/// Takes the rows of one page after the other.
pub(crate) trait Sink {
    fn rows(&mut self, rows: &mut Rows<'_>) -> Result<()>;
}

/// Takes one row after the other: `begin`, a value for each column, `end`.
pub(crate) trait RowSink {
    fn begin(&mut self, place: &Place);
    fn value(&mut self, column: usize, value: Value<'_>);
    fn end(&mut self) -> Result<()>;
}

impl<T: RowSink> Sink for T {
    #[inline]
    fn rows(&mut self, rows: &mut Rows<'_>) -> Result<()> {
        for (i, place) in rows.places().iter().enumerate() {
            self.begin(place);
            for column in 0..rows.columns() {
                self.value(column, rows.value(column, i)?);
            }
            self.end()?;
        }
        Ok(())
    }
}

/// Reads rows, with file handles and buffers of its own.
pub(crate) struct Decoder {
    relation: Arc<Relation>,
    dead: bool,
    /// Without checksums, two reads that differ are all that tells of a page that is being written.
    read_twice: bool,
    heap: HeapFile,
    xacts: Xacts,
    layout: Layout,
    cells: Cells,
    outside: Outside,
    buffer: ReadBuffer,
    second: ReadBuffer,
    unread: Unread,
    filter: Option<Arc<Filter>>,
    /// How many rows more it may give; none: all.
    left: Option<u64>,
    /// The block behind the one with the last of them.
    end: Option<u32>,
}

impl Decoder {
    pub(crate) fn new(relation: &Arc<Relation>, dead: bool) -> Decoder {
        let heap = relation.heap.again();
        let read_twice = !relation.dir.checksums && relation.dir.may_be_running();
        let buffer = ReadBuffer::new(BLOCKS * heap.block_size);
        Decoder {
            relation: Arc::clone(relation),
            dead,
            read_twice,
            xacts: Xacts::at(&relation.dir, relation.moment),
            layout: Layout::new(relation.attributes.iter().map(|(a, column)| (a.storage, *column))),
            cells: Cells::default(),
            outside: Outside::new(relation),
            second: if read_twice { buffer.clone() } else { ReadBuffer::default() },
            buffer,
            unread: Unread::default(),
            filter: None,
            left: None,
            end: None,
            heap,
        }
    }

    /// The same, which gives only rows of which the filter is true, and no more than so many.
    pub(crate) fn choosing(mut self, filter: Option<Arc<Filter>>, limit: Option<u64>) -> Decoder {
        (self.filter, self.left) = (filter, limit);
        self
    }

    /// How many rows more it may give.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }

    /// The block behind the one with the last row that it may give, when it has given that.
    pub(crate) fn end(&self) -> Option<u32> {
        self.end
    }

    /// What could not be read so far.
    pub(crate) fn unread(&self) -> Unread {
        let mut unread = self.unread.clone();
        (unread.values, unread.vacuumed) = (self.outside.lost, self.outside.vacuumed);
        unread.reasons.clone_from(self.xacts.reasons());
        unread.toast_checksums = self.outside.wrong_checksums();
        unread.losses.add(&self.outside.losses);
        unread
    }

    /// Whether there was a row whose status is not known.
    pub(crate) fn has_unknown(&self) -> bool {
        self.unread.unknown > 0
    }

    /// The rows of some blocks.
    pub(crate) fn blocks(&mut self, blocks: Range<u32>, sink: &mut impl Sink) -> Result<()> {
        let size = self.heap.block_size;
        let mut block = blocks.start;
        while block < blocks.end && self.end.is_none() {
            let mut buffer = std::mem::take(&mut self.buffer);
            let wanted = BLOCKS.min((blocks.end - block) as usize) * size;
            let read = self.heap.read(block, &mut buffer[..wanted])?;
            if read == 0 {
                self.buffer = buffer;
                let hole = self.heap.holes.iter().find(|hole| hole.contains(&block)).map(|hole| hole.end);
                let next = hole.unwrap_or_else(|| self.heap.next_file(block)).min(blocks.end);
                // What was missing from the first is counted once, for the whole relation.
                self.unread.gone += if hole.is_none() { u64::from(next - block) } else { 0 };
                block = next;
                continue;
            }
            if self.read_twice {
                let mut second = std::mem::take(&mut self.second);
                let again = self.heap.read(block, &mut second[..read * size])?;
                second[again * size..read * size].copy_from_slice(&buffer[again * size..read * size]);
                self.second = second;
            }
            for (i, page) in buffer.chunks_exact_mut(size).take(read).enumerate() {
                let at = block + i as u32;
                if self.end.is_none() && self.settle(at, i, page) {
                    self.page(page, at, sink)?;
                }
            }
            self.buffer = buffer;
            block += read as u32;
        }
        Ok(())
    }

    /// Reads a page again that is wrong; false when it is torn.
    fn settle(&mut self, block: u32, i: usize, page: &mut [u8]) -> bool {
        let size = page.len();
        let heap = &mut self.heap;
        let read = |page: &mut [u8]| matches!(heap.read(block, page), Ok(1));
        let settled = if self.read_twice {
            settle_twice(page, &mut self.second[i * size..(i + 1) * size], read)
        } else if self.relation.dir.checksums {
            settle(page, block, read)
        } else {
            Settled::Sound
        };
        if settled == Settled::Torn {
            self.unread.torn += 1;
            self.unread.losses.page(block, "the running server was writing it at each read");
        }
        // That the front of a page is zeros is told when its rows are looked for.
        let has_header = Header::parse(page).is_some_and(|header| header.pd_upper != 0);
        self.unread.checksums += u64::from(settled == Settled::Damaged && has_header);
        settled != Settled::Torn
    }

    pub(crate) fn page(&mut self, page: &[u8], block: u32, sink: &mut impl Sink) -> Result<()> {
        let Some(items) = tuples(page) else {
            self.unread.pages += 1;
            self.unread.losses.page(block, "this is not a table page");
            return Ok(());
        };
        self.unread.zeros.met(block, Header::parse(page).is_some_and(|header| is_new(page, &header)));
        // No more items than line pointers.
        let most = items.size_hint().1.unwrap_or(0);
        if self.cells.start(page, &self.layout, most).is_none() {
            self.unread.pages += 1;
            self.unread.losses.page(block, "too long for a page");
            return Ok(());
        }
        for (lp, item) in items {
            if self.left == Some(0) {
                break;
            }
            let Some(tuple) = Tuple::parse(item) else {
                self.unread.rows += 1;
                self.unread.losses.row(block, lp, "its header has impossible values");
                continue;
            };
            let status = self.xacts.status(&tuple.header);
            if !self.dead && !status.is_shown() {
                continue;
            }
            let place = Place { block, lp, xmin: tuple.header.t_xmin, xmax: tuple.header.t_xmax, status };
            if self.cells.cut(page, &tuple, &self.layout, place).is_none() {
                self.unread.rows += 1;
                self.unread.losses.row(block, lp, "its bytes do not match the columns");
                continue;
            }
            if let Some(filter) = &self.filter {
                let held = |attribute| self.cells.last(page, &self.layout, attribute);
                match filter.verdict(held, &self.relation.types, &mut self.outside)? {
                    Verdict::Wanted => {}
                    // Vacuum takes the values of rows that no snapshot sees before the rows.
                    Verdict::Undecided => self.unread.undecided += u64::from(status.is_shown()),
                    Verdict::NotWanted => {
                        self.cells.take_back();
                        continue;
                    }
                }
            }
            self.left = self.left.map(|left| left - 1);
            self.unread.unknown += u64::from(status == Status::Unknown);
            self.unread.future += u64::from(self.xacts.is_of_the_future(&tuple.header));
        }
        if self.left == Some(0) {
            self.end = Some(block + 1);
        }
        sink.rows(&mut self.cells.rows(page, &self.layout, &mut self.outside))
    }
}
