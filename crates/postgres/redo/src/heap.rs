//! Resource manager Heap: rows inserted, deleted, updated and locked.
//!
//! Source: `access/heap/heapam_xlog.c` (`heapam.c` before 18), `access/heapam_xlog.h`; the same in 13 to 18.

mod update;

use leadline_wal::Record;

use crate::fields::{self, Fields};
use crate::misfit::{Misfit, Result};
use crate::page::{flags, max_heap_rows, Page, Place};
use crate::target::fork;
use crate::tuple::{Tid, Tuple, HEADER};
use crate::visibility::{self, ALL_FROZEN, VALID_BITS};
use crate::{Change, Effect};

const INSERT: u8 = 0x00;
const DELETE: u8 = 0x10;
const UPDATE: u8 = 0x20;
const HOT_UPDATE: u8 = 0x40;
const CONFIRM: u8 = 0x50;
const LOCK: u8 = 0x60;
const INPLACE: u8 = 0x70;
/// `XLOG_HEAP_OPMASK`.
pub(crate) const KIND: u8 = 0x70;
/// `XLOG_HEAP_INIT_PAGE`: the page is made anew.
pub(crate) const INIT_PAGE: u8 = 0x80;

/// Flags of DELETE.
const DELETE_IS_SUPER: u8 = 0x08;
const DELETE_IS_PARTITION_MOVE: u8 = 0x10;
/// Of INSERT, DELETE and MULTI_INSERT: the page was all-visible.
pub(crate) const ALL_VISIBLE_CLEARED: u8 = 0x01;
/// Of LOCK and LOCK_UPDATED: the page was all-frozen.
const ALL_FROZEN_CLEARED: u8 = 0x01;

pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    if change.block.fork == fork::VISIBILITY {
        return clear_named_map(change, page, cleared_visibility);
    }
    match change.opcode() & KIND {
        INSERT => insert(change, page)?,
        DELETE => delete(change, page)?,
        UPDATE | HOT_UPDATE => update::redo(change, page)?,
        CONFIRM => confirm(change, page)?,
        LOCK => lock(change, page)?,
        INPLACE => inplace(change, page)?,
        // `TRUNCATE` is for logical decoding and names no block.
        _ => return Ok(Effect::Nothing),
    }
    Ok(Effect::Changed)
}

/// Says which bits of the visibility map a record clears: for a block id, which bits.
pub(crate) type Cleared = fn(&Record<'_>, &mut dyn FnMut(u8, u8));

/// Since July 2026 minors: the record names the page of the visibility map it clears bits on.
pub(crate) fn clear_named_map(change: &Change<'_, '_>, page: &mut Page<'_>, cleared: Cleared) -> Result<Effect> {
    let (size, map) = (page.size() as u32, change.block.block);
    if page.is_new() {
        page.init(0)?;
    }
    let mut outcome = Ok(());
    let mut put = |id: u8, bits: u8| {
        let heap = change.record.block(id).filter(|heap| visibility::page_of(size, heap.block) == map);
        if let Some(heap) = heap {
            outcome = visibility::clear(page, heap.block, bits).map(|_| ());
        }
    };
    cleared(change.record, &mut put);
    outcome.map(|()| Effect::Changed)
}

/// `xl_heap_header` and `xl_multi_insert_tuple`: what a record keeps of a row's header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowHeader {
    pub infomask2: u16,
    pub infomask: u16,
    pub hoff: u8,
}

impl RowHeader {
    #[inline]
    pub(crate) fn read(from: &mut Fields<'_>) -> Result<RowHeader> {
        let header = from.array::<5>("xl_heap_header")?;
        Ok(RowHeader {
            infomask2: u16::from_le_bytes([header[0], header[1]]),
            infomask: u16::from_le_bytes([header[2], header[3]]),
            hoff: header[4],
        })
    }

    /// A new row: what is not in the record is zero, and it points to itself.
    #[inline]
    pub(crate) fn write(&self, row: &mut [u8], xmin: u32, xmax: u32, own: Tid) -> Result<()> {
        let mut tuple = Tuple::new(row)?;
        tuple.set_xmin(xmin);
        tuple.set_xmax(xmax);
        tuple.set_ctid(own);
        tuple.set_infomask2(self.infomask2);
        tuple.set_infomask(self.infomask);
        tuple.set_hoff(self.hoff);
        tuple.set_first_cid();
        Ok(())
    }
}

/// Room for a new row of so many bytes.
#[inline]
pub(crate) fn add_row(page: &mut Page<'_>, length: usize, number: u16) -> Result<std::ops::Range<usize>> {
    let most = max_heap_rows(page.size());
    if usize::from(number) > most {
        return Err(Misfit::new("offset number of a new row", format_args!("1 to {most}"), number));
    }
    Ok(page.add_space(length, Place::Overwrite(number))?.0)
}

/// Puts a row with these columns on the page.
#[inline]
pub(crate) fn insert_row(
    change: &Change<'_, '_>,
    page: &mut Page<'_>,
    header: RowHeader,
    columns: &[u8],
    number: u16,
) -> Result<()> {
    let range = add_row(page, HEADER + columns.len(), number)?;
    let row = &mut page.bytes_mut()[range];
    row[HEADER..].copy_from_slice(columns);
    header.write(row, change.record.xid, 0, Tid { block: change.block.block, number })
}

fn insert(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let (number, marks) = (main.u16("offnum")?, main.u8("flags")?);
    if change.opcode() & INIT_PAGE != 0 {
        page.init(0)?;
    }
    let mut data = change.data();
    let header = RowHeader::read(&mut data)?;
    insert_row(change, page, header, data.rest(), number)?;
    if marks & ALL_VISIBLE_CLEARED != 0 {
        page.set_flag(flags::ALL_VISIBLE, false);
    }
    Ok(())
}

/// `xl_heap_delete` and `xl_heap_lock`, and without the flags `xl_heap_update` begin alike.
struct Mark {
    xmax: u32,
    number: u16,
    infobits: u8,
    flags: u8,
}

impl Mark {
    #[inline]
    fn read(mut main: Fields<'_>) -> Result<Mark> {
        Ok(Mark {
            xmax: main.u32("xmax")?,
            number: main.u16("offnum")?,
            infobits: main.u8("infobits_set")?,
            flags: main.u8("flags")?,
        })
    }
}

fn delete(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mark = Mark::read(change.main())?;
    let mut row = Tuple::new(page.item_mut(mark.number)?)?;
    row.set_xmax_bits(mark.infobits);
    row.set_hot_updated(false);
    if mark.flags & DELETE_IS_SUPER == 0 {
        row.set_xmax(mark.xmax);
    } else {
        row.set_xmin(0);
    }
    row.set_first_cid();
    let own = Tid { block: change.block.block, number: mark.number };
    row.set_ctid(if mark.flags & DELETE_IS_PARTITION_MOVE != 0 { Tid::MOVED_PARTITIONS } else { own });
    set_prunable(page, change.record.xid);
    if mark.flags & ALL_VISIBLE_CLEARED != 0 {
        page.set_flag(flags::ALL_VISIBLE, false);
    }
    Ok(())
}

/// `PageSetPrunable`: the oldest transaction after whose end there may be something to prune.
#[inline]
pub(crate) fn set_prunable(page: &mut Page<'_>, xid: u32) {
    let known = page.prune_xid();
    if known == 0 || precedes(xid, known) {
        page.set_prune_xid(xid);
    }
}

/// `TransactionIdPrecedes`: on the circle of numbers, but for the three special ones.
#[inline]
fn precedes(a: u32, b: u32) -> bool {
    const FIRST_NORMAL: u32 = 3;
    if a < FIRST_NORMAL || b < FIRST_NORMAL {
        return a < b;
    }
    (a.wrapping_sub(b) as i32) < 0
}

fn confirm(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let number = change.main().u16("offnum")?;
    Tuple::new(page.item_mut(number)?)?.set_ctid(Tid { block: change.block.block, number });
    Ok(())
}

fn lock(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mark = Mark::read(change.main())?;
    let mut row = Tuple::new(page.item_mut(mark.number)?)?;
    row.set_xmax_bits(mark.infobits);
    if row.is_locked_only() {
        row.set_hot_updated(false);
        row.set_ctid(Tid { block: change.block.block, number: mark.number });
    }
    row.set_xmax(mark.xmax);
    row.set_first_cid();
    Ok(())
}

/// `XLOG_HEAP2_LOCK_UPDATED`: a later version of a locked row is locked too; its links stay.
pub(crate) fn lock_updated(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mark = Mark::read(change.main())?;
    let mut row = Tuple::new(page.item_mut(mark.number)?)?;
    row.set_xmax_bits(mark.infobits);
    row.set_xmax(mark.xmax);
    Ok(())
}

fn inplace(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let number = change.main().u16("offnum")?;
    let columns = change.record.data_of(change.block);
    let row = page.item_mut(number)?;
    let hoff = Tuple::new(row)?.hoff();
    let old = row.len().checked_sub(hoff);
    match row.get_mut(hoff..) {
        Some(place) if place.len() == columns.len() => place.copy_from_slice(columns),
        _ => return Err(Misfit::new("length of the columns", old.unwrap_or(0), columns.len())),
    }
    Ok(())
}

/// The bits of the visibility map that the record clears: for a block id, which bits.
pub(crate) fn cleared_visibility(record: &Record<'_>, put: &mut dyn FnMut(u8, u8)) {
    let main = record.main_data();
    let flag = |at: usize, bit: u8| main.get(at).is_some_and(|flags| flags & bit != 0);
    match record.info & KIND {
        INSERT if flag(2, ALL_VISIBLE_CLEARED) => put(0, VALID_BITS),
        DELETE if flag(7, ALL_VISIBLE_CLEARED) => put(0, VALID_BITS),
        LOCK if flag(7, ALL_FROZEN_CLEARED) => put(0, ALL_FROZEN),
        UPDATE | HOT_UPDATE => {
            if flag(7, update::OLD_ALL_VISIBLE_CLEARED) {
                put(update::old_block(record), VALID_BITS);
            }
            if flag(7, update::NEW_ALL_VISIBLE_CLEARED) {
                put(0, VALID_BITS);
            }
        }
        _ => {}
    }
}

/// Likewise of a LOCK_UPDATED record.
pub(crate) fn cleared_by_lock_updated(record: &Record<'_>, put: &mut dyn FnMut(u8, u8)) {
    let marks = Mark::read(fields::of(record.main_data())).map_or(0, |mark| mark.flags);
    if marks & ALL_FROZEN_CLEARED != 0 {
        put(0, ALL_FROZEN);
    }
}

/// Whether the server writes down the free space of the page after it, where little is left.
pub(crate) fn may_fill_a_page(info: u8) -> bool {
    matches!(info & KIND, INSERT | UPDATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_ordered_on_a_circle() {
        assert!(precedes(10, 11) && !precedes(11, 10) && !precedes(10, 10));
        assert!(precedes(u32::MAX, 3) && !precedes(3, u32::MAX));
        assert!(precedes(2, u32::MAX) && !precedes(u32::MAX, 1));
    }
}
