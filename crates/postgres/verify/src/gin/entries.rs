//! Leaves of the tree of entries: each entry with its list of rows, or the tree that has them.
//!
//! Source: `GinGetNPosting`, `GinIsPostingTree`, `GinGetPosting` in src/include/access/ginblock.h.

use leadline_page::postgres::index_tuple::{IndexTuple, INDEX_NULL_MASK};
use leadline_page::Tid;

use super::lists::{unpack, Ascending};
use super::tids::tid_at;
use super::tree::Tree;
use crate::blocks::Page;
use crate::index_pages::{items, u16_at, u32_at, u64_at};
use crate::problem::Report;
use crate::target::Target;

/// Instead of a number of rows: they are in a tree.
const TREE: u16 = 0xffff;
const PACKED: u32 = 1 << 31;
const FIRST_NORMAL_OID: u32 = 16384;

/// How the keys of an index are ordered, as far as that is known here: those of whole numbers.
#[derive(Default)]
pub(super) struct Orders {
    /// Several columns: before its key an entry has the number of its column.
    has_columns: bool,
    /// Bytes of keys that are whole numbers with signs.
    number: Option<usize>,
}

impl Orders {
    pub(super) fn of(target: &Target<'_>) -> Orders {
        let attributes = target.attributes();
        let number = match (attributes, target.index().and_then(|index| index.keys.first())) {
            // btint2cmp, btint4cmp, btint8cmp; without one, the type's own order
            ([one], Some(key)) => match (key.function, one.atttypid) {
                (350, 21) => Some(2),
                (351, 23) => Some(4),
                (842, 20) => Some(8),
                (0, 21) if key.opclass < FIRST_NORMAL_OID => Some(2),
                (0, 23) if key.opclass < FIRST_NORMAL_OID => Some(4),
                (0, 20) if key.opclass < FIRST_NORMAL_OID => Some(8),
                _ => None,
            },
            _ => None,
        };
        Orders { has_columns: attributes.len() > 1, number }
    }

    /// What is known of the place of an entry.
    fn place(&self, item: &[u8]) -> Option<i64> {
        let tuple = IndexTuple::parse(item)?;
        if self.has_columns {
            return Some(i64::from(u16_at(item, tuple.data_offset())));
        }
        if tuple.t_info & INDEX_NULL_MASK != 0 {
            return None;
        }
        match self.number? {
            2 => Some((u16_at(item, 8) as i16).into()),
            4 => Some((u32_at(item, 8) as i32).into()),
            _ => Some(u64_at(item, 8) as i64),
        }
    }
}

/// Gives the rows of an entry, unless they are in a tree.
fn each_row(item: &[u8], take: &mut dyn FnMut(Tid)) -> Result<(), &'static str> {
    let Tid { block, posid } = IndexTuple::parse(item).unwrap_or_default().t_tid;
    if posid == TREE || posid == 0 {
        return Ok(());
    }
    let list = item.get((block & !PACKED) as usize..).ok_or("ends beyond its page")?;
    if block & PACKED != 0 {
        return unpack(list, take).map(drop);
    }
    (0..usize::from(posid)).for_each(|i| take(tid_at(list, 6 * i)));
    Ok(())
}

/// The rows of all entries of a leaf.
pub(super) fn tids(page: &Page<'_>, take: &mut dyn FnMut(u16, Tid)) {
    for (number, item) in items(page) {
        // Lists that cannot be are reported before.
        let _ = each_row(item, &mut |tid| take(number, tid));
    }
}

/// Checks the entries of a leaf.
pub(super) fn check(page: &Page<'_>, orders: &Orders, tree: &mut Tree<'_>, report: &mut Report<'_>) {
    let mut last = None;
    for (number, item) in items(page) {
        let Tid { block, posid } = IndexTuple::parse(item).unwrap_or_default().t_tid;
        if posid == TREE {
            tree.root(page.block, number, block, report);
        }
        let mut rows = Ascending::default();
        let outcome = each_row(item, &mut |tid| rows.take(tid));
        let has = u32::from(posid);
        let message = match (outcome, rows.wrong) {
            (Err(why), _) => Some(format!("the list of rows of item {number} of block {} {why}", page.block)),
            (_, Some((before, tid))) => {
                Some(format!("row {tid} follows {before} in item {number} of block {}", page.block))
            }
            _ if posid != TREE && rows.count != has => Some(format!(
                "item {number} of block {} says that it has {has} rows, but has {}",
                page.block, rows.count
            )),
            _ => None,
        };
        if let Some(message) = message {
            tree.found("posting_list", page.block, Some(number), message, "index scans miss rows or fail", report);
        }
        let place = orders.place(item);
        if let (Some(before), Some(place)) = (last, place) {
            let is_wrong = if orders.has_columns { place < before } else { place <= before };
            if is_wrong {
                let what = if orders.has_columns { "column" } else { "key" };
                let message = format!(
                    "the {what} of item {number} of block {} is {place}, but {before} stands before it",
                    page.block
                );
                tree.found("order", page.block, Some(number), message, "index scans miss rows", report);
                return;
            }
        }
        last = place;
    }
}
