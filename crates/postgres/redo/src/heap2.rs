//! Resource manager Heap2: rows inserted many at once, pages pruned and frozen, the visibility map set.
//!
//! What an opcode means changed in 14 and in 17.
//!
//! Source: `access/heap/heapam_xlog.c` (`heapam.c` before 18), `access/heapam_xlog.h` of each major.

mod prune;

use leadline_wal::Record;

use crate::fields::offsets;
use crate::heap::{self, RowHeader, ALL_VISIBLE_CLEARED, INIT_PAGE, KIND};
use crate::misfit::{Misfit, Result};
use crate::page::{flags, Page};
use crate::target::fork;
use crate::visibility;
use crate::{Change, Effect};

const PRUNE_FIRST: u8 = 0x10;
const PRUNE_LAST: u8 = 0x30;
const VISIBLE: u8 = 0x40;
const MULTI_INSERT: u8 = 0x50;
const LOCK_UPDATED: u8 = 0x60;

/// Flag of MULTI_INSERT since 14: the page is all-visible and all-frozen now.
const ALL_FROZEN_SET: u8 = 0x20;

pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    match change.opcode() & KIND {
        VISIBLE => return visible(change, page),
        _ if change.block.fork == fork::VISIBILITY => return heap::clear_named_map(change, page, cleared_visibility),
        PRUNE_FIRST..=PRUNE_LAST => prune::redo(change, page)?,
        MULTI_INSERT => multi_insert(change, page)?,
        LOCK_UPDATED => heap::lock_updated(change, page)?,
        // `REWRITE` and `NEW_CID` are for logical decoding and name no block.
        _ => return Ok(Effect::Nothing),
    }
    Ok(Effect::Changed)
}

/// Block 0 is the page of the visibility map, block 1 the heap's.
fn visible(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    let mut main = change.main();
    main.u32("snapshotConflictHorizon")?;
    let bits = main.u8("flags")?;
    if change.block.id != 0 {
        page.set_flag(flags::ALL_VISIBLE, true);
        // So since the minors of February 2023 (13.10, 14.7, 15.2) and in 16.
        return Ok(if change.context.hint_bits_are_logged { Effect::Changed } else { Effect::Quiet });
    }
    let Some(heap) = change.record.block(1) else {
        return Err(Misfit::new("block of the heap", "block 1 of the record", "none"));
    };
    // Since 16 the flags say too whether it is a catalog.
    let is_set = visibility::set(page, heap.block, bits & visibility::VALID_BITS)?;
    Ok(if is_set { Effect::Changed } else { Effect::Nothing })
}

fn multi_insert(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let marks = main.u8("flags")?;
    main.align(2);
    let count: usize = main.u16("ntuples")?.into();
    let is_init = change.opcode() & INIT_PAGE != 0;
    // On a new page the rows are numbered from 1, and the record does not say so.
    let mut numbers = offsets(&mut main, "offsets", if is_init { 0 } else { count })?;
    if is_init {
        page.init(0)?;
    }
    let mut data = change.data();
    for at in 0..count {
        let number = if is_init { at as u16 + 1 } else { numbers.next().unwrap_or(0) };
        data.align(2);
        let length: usize = data.u16("datalen")?.into();
        let header = RowHeader::read(&mut data)?;
        heap::insert_row(change, page, header, data.take("columns", length)?, number)?;
    }
    if data.left() > 0 {
        return Err(Misfit::new("rows of the record", format_args!("{count}, and no more bytes"), data.left()));
    }
    if marks & ALL_VISIBLE_CLEARED != 0 {
        page.set_flag(flags::ALL_VISIBLE, false);
    }
    if change.major() >= 14 && marks & ALL_FROZEN_SET != 0 {
        page.set_flag(flags::ALL_VISIBLE, true);
    }
    Ok(())
}

/// The bits of the visibility map that the record clears: for a block id, which bits.
pub(crate) fn cleared_visibility(record: &Record<'_>, put: &mut dyn FnMut(u8, u8)) {
    match record.info & KIND {
        MULTI_INSERT if record.main_data().first().is_some_and(|flags| flags & ALL_VISIBLE_CLEARED != 0) => {
            put(0, visibility::VALID_BITS);
        }
        LOCK_UPDATED => heap::cleared_by_lock_updated(record, put),
        _ => {}
    }
}

/// Whether the server writes down the free space of the page after it, where little is left.
pub(crate) fn may_fill_a_page(info: u8) -> bool {
    info & KIND == MULTI_INSERT
}

/// Whether the server writes down the free space of the page after it, even where an image was put in place.
pub(crate) fn frees_space(record: &Record<'_>) -> bool {
    match record.info & KIND {
        VISIBLE => true,
        PRUNE_FIRST..=PRUNE_LAST => prune::frees_space(record),
        _ => false,
    }
}

#[cfg(test)]
const _: () = assert!(INIT_PAGE == 0x80);
