//! One page of a btree: the order of its items, what is in them, and what is kept of it.

use std::cmp::Ordering;

use leadline_page::postgres::btree::Opaque;
use leadline_page::postgres::line_pointer::{line_pointers, LinePointer, LP_DEAD, LP_REDIRECT, LP_UNUSED};
use leadline_page::postgres::Kind;
use leadline_page::Tid;

use super::about::About;
use super::edges::Edges;
use super::found::{AllFound, Found};
use super::heap_index::{Marked, Marks, DEAD};
use super::keys::{is_minus_infinity, place, Fast, Keys};
use super::natts::wrong_columns;
use super::rows::{Downlink, Row, State, BTP_HALF_DEAD};
use super::tuple::{Form, Tuple};
use super::unique::Equals;
use crate::blocks::{Page, Settled};

/// What one thread finds and keeps.
pub(crate) struct Pass<'a> {
    pub about: &'a About,
    pub marks: Option<&'a Marks>,
    pub fast: Option<Fast>,
    pub found: AllFound,
    pub edges: Edges,
    pub downlinks: Vec<Downlink>,
    pub equals: Equals,
    /// Pages that nothing is concluded from.
    pub unknown: u64,
    /// Keys whose order is not known.
    pub unordered: u64,
}

const WRONG_ANSWERS: &str = "index scans may return wrong rows or none";
const MISSES: &str = "an index scan misses rows";

impl<'a> Pass<'a> {
    pub(crate) fn new(about: &'a About, marks: Option<&'a Marks>) -> Pass<'a> {
        Pass {
            about,
            marks,
            fast: about.keys.fast(),
            found: AllFound::default(),
            edges: Edges::default(),
            downlinks: Vec::new(),
            equals: Equals::default(),
            unknown: 0,
            unordered: 0,
        }
    }

    /// Reads a page; `block` is not 0.
    pub(crate) fn page(&mut self, page: &Page<'_>) -> Row {
        if !self.is_known(page) {
            self.unknown += 1;
            // Whatever a settled page leads to was in the files at the checkpoint: it cannot be empty.
            let is_new = page.kind == Kind::New && self.about.settled != Settled::None;
            return Row { state: if is_new { State::New } else { State::Unknown }, ..Row::default() };
        }
        let opaque = Opaque::parse(page.special()).unwrap_or_default();
        match page.kind {
            Kind::New => Row { state: State::New, ..Row::default() },
            Kind::BtreeDeleted | Kind::BtreeDeletedOld => Row::of(State::Deleted, &opaque),
            Kind::BtreeLeaf | Kind::BtreeInner => self.live(page, &opaque),
            other => {
                let found = other.as_str();
                let message = format!("expected a page of a btree, found a page of the kind \"{found}\"");
                self.found.push(Found::new("kind", page.block, message, WRONG_ANSWERS));
                Row { state: State::Other, ..Row::default() }
            }
        }
    }

    /// Marks the rows of a page and looks at nothing else.
    pub(crate) fn mark(&mut self, page: &Page<'_>) {
        let opaque = Opaque::parse(page.special()).unwrap_or_default();
        if self.is_known(page) && page.kind == Kind::BtreeLeaf && opaque.btpo_flags & BTP_HALF_DEAD == 0 {
            let row = Row::of(State::Live, &opaque);
            Items::of(self, page, &row, opaque.btpo_next != 0).mark_rows();
        }
    }

    /// What a server with wal_level=minimal builds has no LSN: nobody knows when.
    fn is_known(&self, page: &Page<'_>) -> bool {
        page.is_settled && (self.about.settled == Settled::All || page.header.pd_lsn != 0)
    }

    fn live(&mut self, page: &Page<'_>, opaque: &Opaque) -> Row {
        let is_dead = opaque.btpo_flags & BTP_HALF_DEAD != 0;
        let mut row = Row::of(if is_dead { State::HalfDead } else { State::Live }, opaque);
        let count = page.header.line_pointers(page.bytes.len());
        let high_keys = usize::from(opaque.btpo_next != 0);
        row.items = count.saturating_sub(high_keys).min(usize::from(u16::MAX)) as u16;
        let block = page.block;
        if count < high_keys {
            let message =
                format!("no high key, although its right sibling is block {}; expected one", opaque.btpo_next);
            self.found.push(Found::new("high_key", block, message, WRONG_ANSWERS));
            return Row { state: State::Unknown, ..row };
        }
        if is_dead {
            if row.items > 0 && page.kind == Kind::BtreeLeaf {
                let message = format!("half-dead page with {} items; expected only a high key", row.items);
                self.found.push(Found::new("half_dead", block, message, MISSES));
            }
            return row;
        }
        let downlinks = self.downlinks.len();
        let mut items = Items::of(self, page, &row, high_keys == 1);
        if !items.all() {
            // What is wrong with it is told; it is not compared with its neighbours.
            items.mark_rows();
            row.high_key = items.high_key;
            if page.kind == Kind::BtreeInner {
                self.downlinks.truncate(downlinks);
                row.items = 0;
            }
            return row;
        }
        let (high, first, high_key) = (items.high_item, items.first_item, items.high_key);
        row.high_key = high_key;
        let keys = &self.about.keys;
        self.edges.page(block, &row, high, first, keys, &mut self.found);
        if row.items == 0 && page.kind == Kind::BtreeInner {
            let message = "inner page without a downlink; expected at least one".to_owned();
            self.found.push(Found::new("downlink", block, message, WRONG_ANSWERS));
        }
        row
    }
}

/// Goes through the items of a page.
struct Items<'p, 'a, 'b> {
    pass: &'p mut Pass<'a>,
    page: &'p Page<'b>,
    is_leaf: bool,
    has_high: bool,
    level: u8,
    high_item: Option<&'b [u8]>,
    first_item: Option<&'b [u8]>,
    high_key: u32,
    /// It is told that rows of this page are in the index more than once.
    is_twice: bool,
    /// The last item with the same key as the one before it.
    equal_until: u32,
}

impl<'p, 'a, 'b> Items<'p, 'a, 'b> {
    fn of(pass: &'p mut Pass<'a>, page: &'p Page<'b>, row: &Row, has_high: bool) -> Items<'p, 'a, 'b> {
        let is_leaf = page.kind == Kind::BtreeLeaf;
        let level = row.level;
        Items {
            pass,
            page,
            is_leaf,
            has_high,
            level,
            high_item: None,
            first_item: None,
            high_key: 0,
            is_twice: false,
            equal_until: 0,
        }
    }

    /// Of a leaf with something wrong: the rows that it has nevertheless.
    fn mark_rows(&mut self) {
        let Some(marks) = self.pass.marks.filter(|_| self.is_leaf) else { return };
        for (number, lp) in line_pointers(self.page.bytes, &self.page.header) {
            if number == 1 && self.has_high {
                continue;
            }
            let tuple = lp.item(self.page.bytes).and_then(Tuple::parse);
            match tuple.and_then(|tuple| Some((tuple, self.pass.about.keys.fingerprint(&tuple)?))) {
                Some((tuple, print)) => {
                    let dead = if lp.flags() == LP_DEAD { DEAD } else { 0 };
                    tuple.tids().for_each(|tid| marks.mark_again(tid, print | dead));
                }
                None => self.pass.unknown += 1,
            }
        }
    }

    fn wrong(&mut self, class: &'static str, item: u32, message: String, means: &'static str) {
        self.pass.found.push(Found::new(class, self.page.block, message, means).item(item as u16));
    }

    /// Whether all of them are as they should be.
    fn all(&mut self) -> bool {
        let about = self.pass.about;
        let keys = &about.keys;
        let (bytes, fast) = (self.page.bytes, self.pass.fast);
        let mut high: Option<Tuple<'b>> = None;
        let mut before: Option<(Tuple<'b>, Option<i64>)> = None;
        for (number, lp) in line_pointers(bytes, &self.page.header) {
            let Some((item, tuple)) = self.parse(number, lp) else { return false };
            let is_high = number == 1 && self.has_high;
            let is_first = number == 1 + u32::from(self.has_high);
            let expected = wrong_columns(&tuple, about, self.is_leaf, is_high, is_first);
            if let Some((wanted, found)) = expected {
                self.wrong("columns", number, format!("{found}; expected {wanted}"), WRONG_ANSWERS);
                return false;
            }
            if is_high {
                self.high_key = tuple.pivot_hash(about.version == Some(4));
                (high, self.high_item) = (Some(tuple), Some(item));
                continue;
            }
            if self.is_leaf {
                if !self.rows(number, &tuple, lp.flags() == LP_DEAD) {
                    return false;
                }
            } else if !self.downlink(number, &tuple) {
                return false;
            }
            let has_key = self.is_leaf || !is_first && !is_minus_infinity(&tuple);
            if !has_key {
                continue;
            }
            self.first_item.get_or_insert(item);
            let value = fast.and_then(|fast| fast.of(&tuple));
            if let Some((last, last_value)) = before {
                let is_sure = matches!((last_value, value), (Some(a), Some(b)) if a < b);
                if !is_sure && !self.in_order(keys, &last, &tuple, number) {
                    return false;
                }
                if !is_sure && self.is_leaf {
                    self.note_equal(keys, &last, &tuple, number);
                }
            }
            before = Some((tuple, value));
        }
        match (before, high) {
            (Some((last, _)), Some(high)) => self.below_high(keys, &last, &high),
            _ => true,
        }
    }

    fn parse(&mut self, number: u32, lp: LinePointer) -> Option<(&'b [u8], Tuple<'b>)> {
        let item = lp.item(self.page.bytes);
        if matches!(lp.flags(), LP_UNUSED | LP_REDIRECT) || item.is_none() {
            let message = "line pointer without an item; expected one, because it is in a btree".to_owned();
            self.wrong("line_pointer", number, message, MISSES);
            return None;
        }
        let item = item?;
        let tuple = Tuple::parse(item);
        if tuple.is_none() {
            let message = format!("the parts of the tuple do not fit into its {} bytes", item.len());
            self.wrong("tuple", number, message, WRONG_ANSWERS);
        }
        Some((item, tuple?))
    }

    fn in_order(&mut self, keys: &Keys, last: &Tuple<'_>, tuple: &Tuple<'_>, number: u32) -> bool {
        let wrong = match keys.compare(last, tuple) {
            None => {
                self.pass.unordered += 1;
                return true;
            }
            Some(Ordering::Less) => return true,
            Some(Ordering::Equal) if !keys.has_tids => return true,
            Some(Ordering::Equal) => "equal to",
            Some(Ordering::Greater) => "greater than",
        };
        let by = if keys.compare_columns(last, tuple, common(keys, last, tuple)) == Some(Ordering::Equal) {
            ", because of the row number behind an equal key"
        } else {
            ""
        };
        self.wrong("order", number, format!("key of item {} is {wrong} that of item {number}{by}", number - 1), MISSES);
        false
    }

    /// In a unique index, keeps the rows of two items with equal keys.
    fn note_equal(&mut self, keys: &Keys, last: &Tuple<'_>, tuple: &Tuple<'_>, number: u32) {
        let Some(nulls_are_equal) = self.pass.about.unique else { return };
        let is_equal = keys.compare_columns(last, tuple, keys.columns.len()) == Some(Ordering::Equal);
        if !is_equal || !nulls_are_equal && keys.has_null(tuple) {
            return;
        }
        let block = self.page.block;
        if self.equal_until != number - 1 {
            self.pass.equals.item(block, number - 1, true, last.tids());
        }
        self.pass.equals.item(block, number, false, tuple.tids());
        self.equal_until = number;
    }

    fn below_high(&mut self, keys: &Keys, last: &Tuple<'_>, high: &Tuple<'_>) -> bool {
        let is_wrong = match keys.compare(last, high) {
            None | Some(Ordering::Less) => false,
            Some(Ordering::Equal) => keys.has_tids && !self.is_leaf,
            Some(Ordering::Greater) => true,
        };
        if is_wrong {
            let message = "the last key is greater than the high key".to_owned();
            let last = self.page.header.line_pointers(self.page.bytes.len()) as u32;
            self.wrong("high_key", last, message, MISSES);
        }
        !is_wrong
    }

    /// The rows that an item of a leaf has.
    fn rows(&mut self, number: u32, tuple: &Tuple<'_>, is_dead: bool) -> bool {
        let about = self.pass.about;
        if let Form::Posting(count) = tuple.form {
            if about.allows_posting == Some(false) {
                let message = "posting list, although the meta page says that keys are not deduplicated".to_owned();
                self.wrong("posting", number, message, WRONG_ANSWERS);
                return false;
            }
            let is_ascending = tuple.tids().zip(tuple.tids().skip(1)).all(|(a, b)| place(a) < place(b));
            if count < 2 || !is_ascending {
                let message = if count < 2 {
                    format!("posting list with {count} row numbers; expected at least two")
                } else {
                    "row numbers of the posting list are not ascending".to_owned()
                };
                self.wrong("posting", number, message, "an index scan misses rows or returns some twice");
                return false;
            }
        }
        let beyond = about.heap_blocks.unwrap_or(u32::MAX);
        let is_wrong = |tid: &Tid| tid.posid == 0 || tid.posid > about.most_rows || tid.block >= beyond;
        if let Some(tid) = tuple.tids().find(is_wrong) {
            let wanted = about.heap_blocks.map_or_else(String::new, |n| format!(" of {n} blocks"));
            let message = format!(
                "row number ({},{}) cannot be in a table{wanted} with up to {} rows a block",
                tid.block, tid.posid, about.most_rows
            );
            self.wrong("row_number", number, message, "an index scan fails or misses a row");
            return false;
        }
        if let Some(marks) = self.pass.marks {
            let Some(print) = about.keys.fingerprint(tuple) else {
                let message = "the columns of the tuple do not fit into it".to_owned();
                self.wrong("tuple", number, message, WRONG_ANSWERS);
                return false;
            };
            let dead = if is_dead { DEAD } else { 0 };
            for tid in tuple.tids() {
                if marks.mark(tid, print | dead) == Marked::Again && !std::mem::replace(&mut self.is_twice, true) {
                    let message = format!("row ({},{}) is in the index more than once", tid.block, tid.posid);
                    self.wrong("twice", number, message, "an index scan returns a row twice");
                }
            }
        }
        true
    }

    fn downlink(&mut self, number: u32, tuple: &Tuple<'_>) -> bool {
        let about = self.pass.about;
        let child = tuple.t_tid.block;
        // The files of a running server may have been made empty since.
        let is_beyond = child >= about.blocks && about.settled == Settled::All;
        if child == 0 || child == self.page.block || is_beyond {
            let what = match child {
                0 => "the meta page".to_owned(),
                _ if is_beyond => format!("block {child}, but the index has {} blocks", about.blocks),
                _ => "its own page".to_owned(),
            };
            self.wrong("downlink", number, format!("downlink to {what}"), "an index scan fails or misses rows");
            return false;
        }
        let order = (number - 1 - u32::from(self.has_high)) as u16;
        let separator = if order == 0 { 0 } else { tuple.pivot_hash(about.version == Some(4)) };
        if self.level > 0 && about.keeps_rows {
            self.pass.downlinks.push(Downlink { child, parent: self.page.block, order, separator });
        }
        true
    }
}

fn common(keys: &Keys, a: &Tuple<'_>, b: &Tuple<'_>) -> usize {
    a.natts(keys.natts()).min(b.natts(keys.natts())).min(keys.columns.len())
}
