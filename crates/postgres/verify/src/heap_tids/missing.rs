//! Visible rows that an index has no entry for.
//!
//! Only of a server that ended in order: of another one, a row may be in the files whose entry was not written yet. GIN has an entry for each
//! row, if only for a null or for no keys at all (`ginExtractEntries`, since 9.1).

use std::ops::Range;

use leadline_errors::Result;
use leadline_page::postgres::heap::{TupleHeader, HEAP_HASNULL, HEAP_ONLY_TUPLE, SIZE as HEADER};
use leadline_page::postgres::line_pointer::{line_pointers, LinePointer, LP_NORMAL, LP_REDIRECT};
use leadline_page::postgres::Kind;
use leadline_rows::xact::Xacts;

use super::Entries;
use crate::blocks::{Blocks, Page, Settled};
use crate::index_pages::ItemBits;
use crate::problem::{Level, Problem, Report};
use crate::target::Target;

/// Looks for them.
pub(super) struct Missing {
    /// Of the index.
    name: String,
    table: String,
    /// The column, from 0, whose nulls have no entry.
    skipped: Option<usize>,
    xacts: Xacts,
    count: u64,
    first: Option<Problem>,
}

impl Missing {
    /// None: a row without an entry would say nothing.
    pub(super) fn of(entries: &Entries<'_>, table: &Target<'_>, heap: &Blocks) -> Option<Missing> {
        let about = entries.index.index()?;
        let is_known = entries.level >= Level::Values && entries.is_whole && heap.settled() == Settled::All;
        if !is_known || about.is_partial {
            return None;
        }
        let column = about.columns.first().and_then(|attnum| usize::try_from(*attnum).ok()?.checked_sub(1));
        // What an expression makes of a row is not known here.
        if entries.skips_nulls && column.is_none() {
            return None;
        }
        Some(Missing {
            name: entries.index.name(),
            table: table.name(),
            skipped: column.filter(|_| entries.skips_nulls),
            xacts: Xacts::new(&table.catalog().dir),
            count: 0,
            first: None,
        })
    }

    /// Goes through the rows of some blocks; `seen`: those with entries.
    pub(super) fn look(&mut self, heap: &mut Blocks, range: Range<u32>, seen: &ItemBits) -> Result<()> {
        let names = heap.again();
        heap.each(range, |page| {
            if !page.is_settled || page.kind != Kind::Heap {
                return Ok(true);
            }
            for (number, lp) in line_pointers(page.bytes, &page.header) {
                let number = number as u16;
                if seen.is_set(page.block, number) || !self.needs_entry(&page, lp) {
                    continue;
                }
                self.count += 1;
                self.first.get_or_insert_with(|| {
                    let message = format!(
                        "row ({},{number}) of table {} has no entry in index {}",
                        page.block, self.table, self.name
                    );
                    names.problem("no_entry", page.block, Some(number), message, "index scans miss the row")
                });
            }
            Ok(true)
        })
    }

    /// The first one, and how many more there are.
    pub(super) fn tell(self, report: &mut Report<'_>) {
        let Some(mut first) = self.first else { return };
        if self.count > 1 {
            first.message += &format!("; nor have {} more rows", self.count - 1);
        }
        report.found(first);
    }

    /// Whether a line pointer leads to a visible row, itself or as the beginning of a HOT chain of which this row is all that is left.
    fn needs_entry(&mut self, page: &Page<'_>, lp: LinePointer) -> bool {
        let is_redirect = lp.flags() == LP_REDIRECT;
        let row = match lp.flags() {
            LP_NORMAL => Some(lp),
            LP_REDIRECT => {
                let to = lp.off().checked_sub(1).and_then(|i| line_pointers(page.bytes, &page.header).nth(i));
                to.map(|(_, to)| to).filter(|to| to.flags() == LP_NORMAL)
            }
            _ => None,
        };
        let Some(item) = row.and_then(|row| row.item(page.bytes)) else { return false };
        let Some(header) = TupleHeader::parse(item) else { return false };
        let is_heap_only = header.t_infomask2 & HEAP_ONLY_TUPLE != 0;
        is_heap_only == is_redirect && self.has_value(&header, item) && self.xacts.status(&header).is_visible()
    }

    fn has_value(&self, header: &TupleHeader, item: &[u8]) -> bool {
        let Some(column) = self.skipped else { return true };
        // A row that is older than the column has the value of its default, or none.
        if column >= usize::from(header.natts()) {
            return false;
        }
        header.t_infomask & HEAP_HASNULL == 0
            || item.get(HEADER + column / 8).is_some_and(|bits| bits >> (column % 8) & 1 != 0)
    }
}
