//! The rows that entries of an index lead to: whether the table has such a row at all.
//!
//! VACUUM takes entries out of indexes before it frees their line pointers (`lazy_vacuum` in vacuumlazy.c), and truncates only pages without
//! line pointers in use (`count_nondeletable_pages`): whatever an index leads to is there, dead at the least. An entry leads to the first
//! row of a HOT chain, never to a row that only the chain leads to (`heapam_index_build_range_scan`).

mod missing;

use std::ops::Range;

use leadline_errors::{Kind, Result};
use leadline_page::postgres::heap::{TupleHeader, HEAP_ONLY_TUPLE};
use leadline_page::postgres::line_pointer::{line_pointers, LP_NORMAL, LP_UNUSED};
use leadline_page::postgres::Kind as PageKind;
use leadline_page::Tid;

use crate::blocks::{Blocks, Page, Settled};
use crate::heap::HEAP;
use crate::index_pages::ItemBits;
use crate::problem::{Level, Report};
use crate::target::Target;

/// Blocks of a table whose line pointers are held at a time: 80 bytes each, of 8 kB.
const WINDOW: u32 = 2 << 20;

/// Entries that lead nowhere and are told of one index.
const MOST_TOLD: usize = 10;

/// Whether several entries may lead to one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// Each row has as many as it has keys.
    Right,
    /// Each row has one.
    Wrong,
}

/// Takes block and item of an entry, and the row that it leads to.
pub(crate) type TakeTid<'a> = dyn FnMut(u32, u16, Tid) + 'a;

/// An index whose entries are compared with its table.
pub(crate) struct Entries<'a> {
    pub(crate) index: Target<'a>,
    /// The blocks of the index, for the names of its files.
    pub(crate) names: &'a Blocks,
    pub(crate) repeats: Repeats,
    /// All of its pages could be compared, and nothing is wrong with them: a row without an entry has none.
    pub(crate) is_whole: bool,
    /// Rows with a null in its first column have no entry.
    pub(crate) skips_nulls: bool,
    pub(crate) level: Level,
}

impl Entries<'_> {
    /// Compares all entries of an index with the line pointers of its table. `each_tid` goes through the entries on pages that can be
    /// compared; it is called once for each part of a large table.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn check(
        &self,
        report: &mut Report<'_>,
        mut each_tid: impl FnMut(&mut TakeTid<'_>) -> Result<()>,
    ) -> Result<()> {
        let table = self.index.index().and_then(|about| self.index.other(about.table));
        let Some(table) = table.filter(|table| table.class.relam == HEAP) else { return Ok(()) };
        let mut heap = match table.blocks() {
            Ok(heap) => heap,
            Err(e) if matches!(e.kind, Kind::NotFound) => return Ok(()),
            Err(e) => return Err(e),
        };
        let count = heap.count();
        let mut rows_without = missing::Missing::of(self, &table, &heap);
        let mut start = 0u32;
        loop {
            let range = start..start.saturating_add(WINDOW).min(count);
            let rows = Rows::of(&mut heap, range.clone())?;
            let mut bad = Bad::default();
            let is_seen_needed = self.repeats == Repeats::Wrong || rows_without.is_some();
            let mut seen = ItemBits::new(if is_seen_needed { range.clone() } else { 0..0 }, heap.most_rows().into());
            each_tid(&mut |block, item, tid| {
                let entry = (block, item, tid);
                if tid.block >= count {
                    // The end of a table in use moves: a file may have become shorter after the checkpoint.
                    bad.beyond(entry, start == 0 && rows.is_whole);
                } else if rows.range.contains(&tid.block) {
                    if rows.bits.is_set(tid.block, 0) && !rows.bits.is_set(tid.block, tid.posid) {
                        bad.nowhere(entry);
                    } else if seen.set(tid.block, tid.posid) == Some(true) && self.repeats == Repeats::Wrong {
                        bad.again(entry);
                    }
                }
            })?;
            bad.tell(&mut heap, &table.name(), self.names, report)?;
            if let Some(rows_without) = &mut rows_without {
                rows_without.look(&mut heap, range.clone(), &seen)?;
            }
            start = range.end;
            if start >= count || report.is_stopped() {
                break;
            }
        }
        if let Some(rows_without) = rows_without {
            rows_without.tell(report);
        }
        Ok(())
    }
}

/// What is known of the line pointers of some blocks.
struct Rows {
    range: Range<u32>,
    /// Item 0 of a block: it can be compared. The others: an index may lead there.
    bits: ItemBits,
    is_whole: bool,
}

impl Rows {
    fn of(heap: &mut Blocks, range: Range<u32>) -> Result<Rows> {
        let mut bits = ItemBits::new(range.clone(), heap.most_rows().into());
        let is_whole = heap.settled() == Settled::All;
        heap.each(range.clone(), |page| {
            if page.is_settled
                && (is_whole || page.header.pd_lsn > 1)
                && matches!(page.kind, PageKind::Heap | PageKind::New)
            {
                bits.set(page.block, 0);
                line_pointers(page.bytes, &page.header)
                    .filter(|(_, lp)| may_lead(&page, lp.flags(), lp.item(page.bytes)))
                    .for_each(|(number, _)| {
                        bits.set(page.block, number as u16);
                    });
            }
            Ok(true)
        })?;
        Ok(Rows { range, bits, is_whole })
    }
}

fn may_lead(page: &Page<'_>, flags: u8, item: Option<&[u8]>) -> bool {
    let is_heap_only =
        || item.and_then(TupleHeader::parse).is_some_and(|tuple| tuple.t_infomask2 & HEAP_ONLY_TUPLE != 0);
    page.kind == PageKind::Heap && flags != LP_UNUSED && !(flags == LP_NORMAL && is_heap_only())
}

/// An entry, by its block and item, and the row that it leads to.
type Entry = (u32, u16, Tid);

/// Entries that lead nowhere: the first of each block, of the index and of the table. Entries that lead where another one does, or beyond the
/// end of the table: the first, and how many.
#[derive(Default)]
struct Bad {
    nowhere: Vec<Entry>,
    untold: u64,
    again: (u64, Option<Entry>),
    beyond: (u64, Option<Entry>),
}

impl Bad {
    fn beyond(&mut self, entry: Entry, is_known: bool) {
        if is_known {
            self.beyond.0 += 1;
            self.beyond.1.get_or_insert(entry);
        }
    }

    fn nowhere(&mut self, entry: Entry) {
        let is_told = |told: &Entry| told.0 == entry.0 || told.2.block == entry.2.block;
        if self.nowhere.len() < MOST_TOLD && !self.nowhere.iter().any(is_told) {
            self.nowhere.push(entry);
        } else {
            self.untold += 1;
        }
    }

    fn again(&mut self, entry: Entry) {
        self.again.0 += 1;
        self.again.1.get_or_insert(entry);
    }

    fn tell(self, heap: &mut Blocks, table: &str, names: &Blocks, report: &mut Report<'_>) -> Result<()> {
        let means = "an index scan fails, or finds a row that has not this key";
        let more = |count: u64, what: &str| {
            if count > 1 {
                format!("; {} more entries {what}", count - 1)
            } else {
                String::new()
            }
        };
        if let (count, Some((block, item, tid))) = self.beyond {
            let more = more(count, "lead beyond its end");
            let message = format!("{}, but table {table} has {} blocks{more}", leads(block, item, tid), heap.count());
            report.found(names.problem("heap_tid", block, item_of(item), message, means));
        }
        for (block, item, tid) in self.nowhere {
            let found = match heap.read(tid.block)? {
                Some(page) => match line_pointers(page.bytes, &page.header).nth(usize::from(tid.posid).wrapping_sub(1))
                {
                    None => format!("which has only {} line pointers", page.header.line_pointers(page.bytes.len())),
                    Some((_, lp)) if lp.flags() == LP_UNUSED => "whose line pointer is unused".into(),
                    Some(_) => "which is a heap-only tuple".into(),
                },
                None => "which is not there".into(),
            };
            let message = format!("{} of table {table}, {found}", leads(block, item, tid));
            report.found(names.problem("heap_tid", block, item_of(item), message, means));
        }
        if let (count, Some((block, item, tid))) = self.again {
            let more = more(count, "lead where others do");
            let message =
                format!("{} of table {table}, to which another entry leads too{more}", leads(block, item, tid));
            let means = "a row may come back twice, and others are lost";
            report.found(names.problem("heap_tid", block, item_of(item), message, means));
        }
        report.skipped("further problems of the same sort in an index", self.untold);
        Ok(())
    }
}

/// Where an entry leads to. Rows in trees of GIN are no items.
fn leads(block: u32, item: u16, tid: Tid) -> String {
    if item == 0 {
        format!("block {block} leads to {tid}")
    } else {
        format!("item {item} of block {block} leads to {tid}")
    }
}

fn item_of(item: u16) -> Option<u16> {
    (item != 0).then_some(item)
}
