//! Rows against an index: each row that can be seen is in it with its key, and each of its entries points to where a row can be.
//!
//! Source: contrib/amcheck/verify_nbtree.c (`heapallindexed`), src/backend/access/heap/heapam_handler.c. Entries are removed before the line
//! pointer of their row becomes unused (vacuumlazy.c), and no entry points to a version that is heap only.

mod marks;
mod roots;

use std::ops::Range;
use std::path::Path;

use leadline_datadir::Condition;
use leadline_errors::Result;
use leadline_page::postgres::heap::infomask::{MOVED, XMIN_FROZEN};
use leadline_page::postgres::heap::{TupleHeader, HEAP_HASNULL, SIZE};
use leadline_page::postgres::Kind;
use leadline_page::Tid;
use leadline_rows::catalog::Attribute;
use leadline_rows::tuple::{deform, Storage, Stored};
use leadline_rows::varlena::Varlena;
use leadline_rows::xact::{Status, Xacts};

pub(crate) use marks::{Marked, Marks, DEAD};
use roots::{Place, Roots};

use crate::blocks::{Blocks, Page, Settled};
use crate::btree::{add_value, parts, shortened, AllFound, Equals, Found};
use crate::index::Index;
use crate::problem::Report;
use crate::target::Target;

/// Parts of a table, each of which needs a pass over the index.
const MOST_PARTS: u32 = 16;
const MISSES: &str = "an index scan misses the row";

/// A column of an index, as the table has it.
struct Column<'a> {
    /// Its place in the row, from 0.
    at: usize,
    attribute: &'a Attribute,
    /// A name, of which the index has the text alone.
    is_name: bool,
}

/// The table of an index.
pub(crate) struct Heap<'a> {
    target: Target<'a>,
    index: String,
    blocks: Blocks,
    /// Without a predicate: all rows are in the index.
    has_all: bool,
    /// What the keys are made of; None: not only of columns.
    columns: Option<Vec<Column<'a>>>,
    storages: Vec<Storage>,
    /// Transactions before it had ended at the moment of the settled pages.
    oldest_active: Option<u32>,
}

impl<'a> Heap<'a> {
    /// None when rows and index cannot be compared.
    pub(crate) fn of(target: &Target<'a>, index: &Index, report: &mut Report<'_>) -> Option<Heap<'a>> {
        let table = target.other(index.table);
        let Some((table, blocks)) = table.and_then(|table| Some((table, table.blocks().ok()?))) else {
            report.skipped("rows of tables without a file against their indexes", 1);
            return None;
        };
        if blocks.settled() == Settled::None || blocks.settled() != Settled::All && blocks.count() == 0 {
            return None;
        }
        let attributes = table.attributes();
        let column = |(number, own): (&i16, &Attribute)| {
            let at = usize::try_from(*number).ok()?.checked_sub(1)?;
            let attribute = attributes.get(at).filter(|attribute| attribute.is_stored())?;
            let (there, here) = (attribute.storage.attlen, own.storage.attlen);
            let is_name = there == 64 && here == -2;
            (is_name || there == here).then_some(Column { at, attribute, is_name })
        };
        let columns: Option<Vec<_>> = index.columns.iter().zip(target.attributes()).map(column).collect();
        if columns.is_none() {
            report.skipped("keys of rows against indexes of expressions", 1);
        }
        if index.is_partial {
            report.skipped("rows that should be in partial indexes", 1);
        }
        let used = columns.as_ref().map_or(0, |all| all.iter().map(|column| column.at + 1).max().unwrap_or(0));
        let storages = attributes.iter().take(used).map(|attribute| attribute.storage).collect();
        let has_all = !index.is_partial;
        let oldest_active = match blocks.settled() {
            Settled::Before(redo) => oldest_active(&table.catalog().dir.root, redo),
            _ => None,
        };
        Some(Heap { target: table, index: target.name(), blocks, has_all, columns, storages, oldest_active })
    }

    /// How many blocks the table has, if that is the moment of the settled pages.
    pub(crate) fn certain_blocks(&self) -> Option<u32> {
        (self.blocks.settled() == Settled::All).then_some(self.blocks.count())
    }

    /// For the rows from a block on.
    pub(crate) fn marks(&self, first: u32) -> Marks {
        Marks::new(first, self.blocks.count(), self.blocks.most_rows())
    }

    /// The first block behind those of some marks, if there is one that is looked at.
    pub(crate) fn next(&self, marks: &Marks) -> Option<u32> {
        let Range { start, end } = marks.blocks();
        let is_last = end >= self.blocks.count() || end / (end - start).max(1) >= MOST_PARTS;
        (!is_last).then_some(end)
    }

    /// Compares the rows of the marked blocks. `is_complete`: all pages of the index were read. `live` gets those of `equals` that are.
    pub(crate) fn compare(
        &self,
        marks: &Marks,
        is_complete: bool,
        equals: &Equals,
        live: &mut Vec<Tid>,
        report: &mut Report<'_>,
    ) -> Result<()> {
        if self.next(marks).is_none() {
            let left = self.blocks.count() - marks.blocks().end;
            report.skipped("blocks of large tables against their indexes", left.into());
        }
        let outcome: Vec<Result<Part<'_>>> = std::thread::scope(|scope| {
            let one = |blocks: Range<u32>| {
                scope.spawn(|| {
                    let mut part = Part::new(self, marks, is_complete, equals);
                    self.blocks.again().each(blocks, |page| {
                        part.page(&page);
                        Ok(true)
                    })?;
                    Ok(part)
                })
            };
            let threads: Vec<_> = parts(marks.blocks()).into_iter().map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
        });
        let mut found = AllFound::default();
        for part in outcome {
            let part = part?;
            found.append(part.found);
            live.extend(part.live);
            report.skipped("rows with keys that are stored outside of them, against indexes", part.toasted);
            report.skipped("pages of tables that are not compared with an index", part.unknown);
        }
        found.tell(&mut self.blocks.again(), report)
    }
}

/// What pg_control says of the checkpoint with this redo point: a server with wal_level=minimal notes nothing.
fn oldest_active(root: &Path, redo: u64) -> Option<u32> {
    let control = Condition::of(root).control.ok()?;
    (control.redo.0 == redo && control.oldest_active_xid != 0).then_some(control.oldest_active_xid)
}

/// What one thread does.
struct Part<'a> {
    heap: &'a Heap<'a>,
    marks: &'a Marks,
    is_complete: bool,
    equals: &'a Equals,
    live: Vec<Tid>,
    xacts: Xacts,
    roots: Roots,
    here: Vec<u16>,
    found: AllFound,
    toasted: u64,
    unknown: u64,
}

/// The first row of a block with something wrong, and how many there are.
type First = Option<(u16, String, u32)>;

impl<'a> Part<'a> {
    fn new(heap: &'a Heap<'a>, marks: &'a Marks, is_complete: bool, equals: &'a Equals) -> Part<'a> {
        Part {
            heap,
            marks,
            is_complete,
            equals,
            live: Vec::new(),
            xacts: Xacts::new(&heap.target.catalog().dir),
            roots: Roots::default(),
            here: Vec::new(),
            found: AllFound::default(),
            toasted: 0,
            unknown: 0,
        }
    }

    fn page(&mut self, page: &Page<'_>) {
        let is_all = self.heap.blocks.settled() == Settled::All;
        if !page.is_settled || !is_all && page.header.pd_lsn == 0 {
            self.unknown += 1;
            return;
        }
        match page.kind {
            Kind::New => self.roots.read(&[], &Default::default(), page.block),
            Kind::Heap => self.roots.read(page.bytes, &page.header, page.block),
            _ => return,
        }
        self.here.clear();
        self.here.extend(self.marks.of_block(page.block));
        self.entries(page);
        self.rows(page);
    }

    fn tell(&mut self, class: &'static str, page: &Page<'_>, first: First, means: &'static str) {
        let Some((item, message, count)) = first else { return };
        let others = match count - 1 {
            0 => String::new(),
            1 => "; so does another row of the block".to_owned(),
            n => format!("; so do {n} more rows of the block"),
        };
        self.found.push(Found::new(class, page.block, format!("{message}{others}"), means).item(item));
    }

    /// Entries of the index that point to no row.
    fn entries(&mut self, page: &Page<'_>) {
        let mut first: First = None;
        for (i, _) in self.here.iter().enumerate().filter(|(_, mark)| **mark != 0) {
            let what = match self.roots.places.get(i) {
                Some(Place::Row | Place::Pointer) => continue,
                Some(Place::Unused) => "whose line pointer is unused".to_owned(),
                Some(Place::HeapOnly) => "which is heap only".to_owned(),
                None => format!("but the block has {} line pointers", self.roots.places.len()),
            };
            let message =
                || format!("index {} has an entry for row ({},{}), {what}", self.heap.index, page.block, i + 1);
            first.get_or_insert_with(|| (i as u16 + 1, message(), 0)).2 += 1;
        }
        self.tell("index_entry", page, first, "an index scan fails, or returns a row that is not the one looked for");
    }

    /// Rows that can be seen.
    fn rows(&mut self, page: &Page<'_>) {
        let (mut missing, mut others, mut dead): (First, First, First) = (None, None, None);
        let is_all = self.heap.blocks.settled() == Settled::All;
        let mut values = Vec::new();
        for i in 0..self.roots.places.len() {
            let Some(header) = self.roots.header(i) else { continue };
            let root = self.roots.roots[i];
            let mut is_visible = || matches!(self.xacts.status(&header), Status::Live | Status::Frozen);
            if root == 0 || header.t_infomask & MOVED != 0 || !is_visible() {
                continue;
            }
            let entry = Tid { block: page.block, posid: root };
            if !self.equals.is_empty() && self.equals.has(entry) {
                self.live.push(entry);
            }
            let mark = self.here.get(usize::from(root) - 1).copied().unwrap_or(0);
            if mark == 0 {
                if self.heap.has_all && self.is_complete && self.had_ended(&header) {
                    let message = || format!("row ({},{}) is not in index {}", page.block, i + 1, self.heap.index);
                    missing.get_or_insert_with(|| (i as u16 + 1, message(), 0)).2 += 1;
                }
                continue;
            }
            // Of a server that runs, who deleted the row may be in no file yet.
            if mark & DEAD != 0 && is_all {
                let message = || {
                    format!(
                        "row ({},{}) is live, but its entry in index {} says dead",
                        page.block,
                        i + 1,
                        self.heap.index
                    )
                };
                dead.get_or_insert_with(|| (i as u16 + 1, message(), 0)).2 += 1;
            }
            let item = self.roots.item(page.bytes, i);
            let Some(print) = self.print(&header, item, &mut values) else { continue };
            if print != mark & !DEAD {
                let message = || {
                    format!(
                        "row ({},{}) has another key than its entry in index {}",
                        page.block,
                        i + 1,
                        self.heap.index
                    )
                };
                others.get_or_insert_with(|| (i as u16 + 1, message(), 0)).2 += 1;
            }
        }
        self.tell("not_indexed", page, missing, MISSES);
        self.tell("other_key", page, others, MISSES);
        self.tell("dead_entry", page, dead, MISSES);
    }

    /// Whether the transaction that wrote a row had ended at the moment of the settled pages: then its entries had been made.
    fn had_ended(&self, header: &TupleHeader) -> bool {
        if self.heap.blocks.settled() == Settled::All || header.t_infomask & XMIN_FROZEN == XMIN_FROZEN {
            return true;
        }
        self.heap.oldest_active.is_some_and(|oldest| (header.t_xmin.wrapping_sub(oldest) as i32) < 0)
    }

    /// A number for the key that an index has of a row; None when it is not known.
    fn print<'p>(&mut self, header: &TupleHeader, item: &'p [u8], values: &mut Vec<Stored<'p>>) -> Option<u16> {
        let columns = self.heap.columns.as_ref()?;
        let data = item.get(usize::from(header.t_hoff)..)?;
        let bitmap = if header.t_infomask & HEAP_HASNULL != 0 { Some(item.get(SIZE..)?) } else { None };
        deform(data, bitmap, header.natts().into(), &self.heap.storages, values)?;
        let mut hash = 0;
        for column in columns {
            let stored = match (values.get(column.at)?, &column.attribute.missing) {
                (Stored::Missing, Some(missing)) => Stored::Fixed(missing),
                (Stored::Missing, None) => Stored::Null,
                (Stored::Varlena(Varlena::External(_)), _) => {
                    self.toasted += 1;
                    return None;
                }
                (Stored::Fixed(name), _) if column.is_name => Stored::Fixed(name.split(|b| *b == 0).next()?),
                (stored, _) => *stored,
            };
            hash = add_value(hash, stored)?;
        }
        Some(shortened(hash))
    }
}
