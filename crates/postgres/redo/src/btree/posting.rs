//! Items of B-tree leaves that list several rows of one key (posting lists): made, divided, thinned out.
//!
//! Source: `btree_xlog_insert`, `_dedup`, `_updates`, `_vacuum` and `_delete` in `access/nbtree/nbtxlog.c`; `_bt_swap_posting`,
//! `_bt_form_posting`, `_bt_update_posting` and `_bt_dedup_*` in `access/nbtree/nbtdedup.c`; `access/nbtree.h`.

use super::rebuilt::Rebuilt;
use super::{at, clear_flags, first_data_key, flag, opaque, put_u16, HIGH_KEY};
use crate::fields::{self, Fields};
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{aligned, Page, Place};
use crate::Change;

/// `INDEX_ALT_TID_MASK` of `t_info`: the item pointer says something else than a row's place.
pub(super) const ALT_TID: u16 = 0x2000;
/// `BT_IS_POSTING` of the item pointer's offset number.
const IS_POSTING: u16 = 0x2000;
/// `BT_OFFSET_MASK`: how many rows a list has.
const COUNT_MASK: u16 = 0x0FFF;

/// `xl_btree_vacuum`, `xl_btree_delete`: how many items go away, and how many lose some of their rows.
struct Counts {
    deleted: usize,
    updated: usize,
}

fn is_posting(tuple: &[u8]) -> bool {
    itup::info(tuple) & ALT_TID != 0 && itup::offset(tuple) & IS_POSTING != 0
}

/// The key of an item, and the places of its rows: one, or as many as its list has.
fn parts(tuple: &[u8]) -> Result<(&[u8], &[u8])> {
    let wrong = || {
        Misfit::new("B-tree item", "a key and rows within its bytes", format_args!("{} bytes", tuple.len()).to_string())
    };
    let (key, rows) = if is_posting(tuple) {
        let (at, count) = (itup::block(tuple) as usize, usize::from(itup::offset(tuple) & COUNT_MASK));
        (tuple.get(..at), tuple.get(at..at.saturating_add(count * itup::TID)))
    } else {
        (tuple.get(..itup::size(tuple)), tuple.get(..itup::TID))
    };
    match (key, rows) {
        (Some(key), Some(rows)) if key.len() >= itup::HEADER => Ok((key, rows)),
        _ => Err(wrong()),
    }
}

/// `_bt_form_posting`: an item with this key and these rows.
fn form(key: &[u8], rows: &[u8]) -> Result<Vec<u8>> {
    let count = rows.len() / itup::TID;
    let size = if count > 1 { aligned(key.len() + rows.len()) } else { key.len() };
    if size > usize::from(itup::SIZE_MASK) || count == 0 || count > usize::from(COUNT_MASK) {
        return Err(Misfit::new("rows of a B-tree item", "1 to as many as an item may have", count));
    }
    let mut tuple = vec![0; size];
    tuple[..key.len()].copy_from_slice(key);
    let mut info = itup::info(key) & !itup::SIZE_MASK | size as u16;
    if count > 1 {
        info |= ALT_TID;
        tuple[..itup::TID].copy_from_slice(&itup::item_pointer(key.len() as u32, count as u16 | IS_POSTING));
        tuple[key.len()..key.len() + rows.len()].copy_from_slice(rows);
    } else {
        info &= !ALT_TID;
        tuple[..itup::TID].copy_from_slice(rows);
    }
    itup::set_info(&mut tuple, info);
    Ok(tuple)
}

/// `_bt_swap_posting`: the new item's row goes into the list, and the list's last one into the new item.
pub(super) fn divide(list: &mut [u8], new_item: &mut [u8], before: u16) -> Result<()> {
    if !is_posting(list) {
        return Err(Misfit::new("B-tree item to divide", "a list of rows", "one row"));
    }
    let at = itup::block(list) as usize;
    let count = parts(list)?.1.len() / itup::TID;
    let before = usize::from(before);
    if before == 0 || before >= count {
        return Err(Misfit::new("place in a list of rows", format_args!("1 to {}", count.saturating_sub(1)), before));
    }
    let (from, last) = (at + before * itup::TID, at + (count - 1) * itup::TID);
    let mut row = [0; itup::TID];
    row.copy_from_slice(&list[last..last + itup::TID]);
    list.copy_within(from..last, from + itup::TID);
    list[from..from + itup::TID].copy_from_slice(&new_item[..itup::TID]);
    new_item[..itup::TID].copy_from_slice(&row);
    Ok(())
}

/// `XLOG_BTREE_INSERT_POST`.
pub(super) fn insert(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let number = change.main().u16("xl_btree_insert.offnum")?;
    let mut data = change.data();
    let before = data.u16("place in the list of rows")?;
    let mut new_item = data.rest().to_vec();
    if new_item.len() < itup::HEADER {
        return Err(Misfit::new("new B-tree item", "at least its header", new_item.len()));
    }
    divide(itup::item_mut(page, number.wrapping_sub(1))?, &mut new_item, before)?;
    page.add_item(&new_item, Place::Insert(number))?;
    Ok(())
}

/// An item that takes rows of the items behind it.
struct Pending<'p> {
    base: &'p [u8],
    number: u16,
    rows: Vec<u8>,
    items: u16,
}

impl<'p> Pending<'p> {
    /// Begins with another item.
    fn start(&mut self, item: &'p [u8], number: u16) -> Result<()> {
        self.rows.clear();
        self.rows.extend_from_slice(parts(item)?.1);
        (self.base, self.number, self.items) = (&item[..itup::size(item).min(item.len())], number, 1);
        Ok(())
    }

    fn finish(&self, into: &mut Rebuilt) -> Result<()> {
        if self.items == 1 {
            return into.push(self.base);
        }
        into.push(&form(parts(self.base)?.0, &self.rows)?)
    }
}

/// `XLOG_BTREE_DEDUP`: runs of items with one key become one item each. The record has (first item, how many) of each run.
pub(super) fn dedup(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let count = usize::from(change.main().u16("xl_btree_dedup.nintervals")?);
    let mut data = change.data();
    let mut intervals = fields::offsets(&mut data, "BTDedupInterval", 2 * count)?;
    let mut next_interval = move || intervals.next().zip(intervals.next());

    let first = first_data_key(opaque(page)?);
    let mut rebuilt = Rebuilt::of(page)?;
    if first > HIGH_KEY {
        rebuilt.push(itup::item(page, HIGH_KEY)?)?;
    }
    let mut interval = next_interval();
    let mut pending = Pending { base: &[], number: 0, rows: Vec::new(), items: 0 };
    pending.start(itup::item(page, first)?, first)?;
    for number in first + 1..=page.max_offset() {
        let item = itup::item(page, number)?;
        if interval.is_some_and(|(base, items)| base == pending.number && pending.items < items) {
            pending.rows.extend_from_slice(parts(item)?.1);
            pending.items += 1;
            continue;
        }
        pending.finish(&mut rebuilt)?;
        if pending.items > 1 {
            interval = next_interval();
        }
        pending.start(item, number)?;
    }
    pending.finish(&mut rebuilt)?;
    rebuilt.replace(page);
    clear_flags(opaque(page)?, flag::HAS_GARBAGE);
    Ok(())
}

/// `XLOG_BTREE_VACUUM`.
pub(super) fn vacuum(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let counts = Counts { deleted: main.u16("ndeleted")?.into(), updated: main.u16("nupdated")?.into() };
    remove(change, page, &counts)?;
    // 18 clears the cycle as well: `btree_xlog_vacuum`.
    if change.major() >= 18 {
        put_u16(opaque(page)?, at::CYCLE_ID, 0);
    }
    Ok(())
}

/// `XLOG_BTREE_DELETE`. 13 knows no lists that lose a part of their rows, and has a wider count.
pub(super) fn delete(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u32("snapshotConflictHorizon")?;
    let counts = if change.major() >= 14 {
        Counts { deleted: main.u16("ndeleted")?.into(), updated: main.u16("nupdated")?.into() }
    } else {
        Counts { deleted: main.u32("ndeleted")? as usize, updated: 0 }
    };
    remove(change, page, &counts)
}

fn remove(change: &Change<'_, '_>, page: &mut Page<'_>, counts: &Counts) -> Result<()> {
    let mut data = change.data();
    let deleted = fields::offsets(&mut data, "deleted items", counts.deleted)?.collect::<Vec<_>>();
    let updated = fields::offsets(&mut data, "updated items", counts.updated)?;
    for number in updated {
        let thinner = without(itup::item(page, number)?, &mut data)?;
        page.overwrite_index_item(number, &thinner)?;
    }
    if !deleted.is_empty() {
        page.delete_index_items(change.major(), &deleted)?;
    }
    clear_flags(opaque(page)?, flag::HAS_GARBAGE);
    Ok(())
}

/// `_bt_update_posting`: the item without some of its rows, whose places in the list come next in the record.
fn without(tuple: &[u8], data: &mut Fields<'_>) -> Result<Vec<u8>> {
    if !is_posting(tuple) {
        return Err(Misfit::new("B-tree item that loses rows", "a list of rows", "one row"));
    }
    let count = usize::from(data.u16("xl_btree_update.ndeletedtids")?);
    let mut gone = fields::offsets(data, "deleted rows", count)?.peekable();
    let (key, rows) = parts(tuple)?;
    let mut left = Vec::with_capacity(rows.len());
    for (place, row) in rows.chunks_exact(itup::TID).enumerate() {
        if gone.next_if(|next| usize::from(*next) == place).is_none() {
            left.extend_from_slice(row);
        }
    }
    if gone.next().is_some() {
        return Err(Misfit::new("deleted rows", "ascending places in the list", "others"));
    }
    form(key, &left)
}
