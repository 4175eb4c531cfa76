//! Redo of hash indexes.
//!
//! Owns: buckets and their overflow pages. The metapage and the bitmaps of free overflow pages are in [`meta`].
//!
//! Source: `access/hash/hash_xlog.c`, `access/hash_xlog.h`, `access/hash.h`, `access/hash/hashpage.c`.

mod meta;

use crate::fields;
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place};
use crate::{Change, Effect};

/// Bytes of `HashPageOpaqueData`.
const OPAQUE: usize = 16;
/// `HASHO_PAGE_ID`.
const PAGE_ID: u16 = 0xFF80;
/// `InvalidBlockNumber`, and `InvalidBucket`.
const INVALID: u32 = u32::MAX;

/// Bits of `hasho_flag`.
mod flag {
    pub(super) const UNUSED: u16 = 0;
    pub(super) const OVERFLOW: u16 = 1 << 0;
    pub(super) const BITMAP: u16 = 1 << 2;
    pub(super) const META: u16 = 1 << 3;
    pub(super) const NEEDS_SPLIT_CLEANUP: u16 = 1 << 6;
    pub(super) const HAS_DEAD_TUPLES: u16 = 1 << 7;
}

/// Offsets in `HashPageOpaqueData`.
pub(crate) mod at {
    /// Of a bucket's first page: the number of buckets when it was last split.
    pub(super) const PREV: usize = 0;
    pub(super) const NEXT: usize = 4;
    pub(super) const BUCKET: usize = 8;
    pub(crate) const FLAG: usize = 12;
    pub(super) const PAGE_ID: usize = 14;
}

/// Values of `xl_info`.
mod op {
    pub(super) const INIT_META_PAGE: u8 = 0x00;
    pub(super) const INIT_BITMAP_PAGE: u8 = 0x10;
    pub(super) const INSERT: u8 = 0x20;
    pub(super) const ADD_OVFL_PAGE: u8 = 0x30;
    pub(super) const SPLIT_ALLOCATE_PAGE: u8 = 0x40;
    pub(super) const SPLIT_PAGE: u8 = 0x50;
    pub(super) const SPLIT_COMPLETE: u8 = 0x60;
    pub(super) const MOVE_PAGE_CONTENTS: u8 = 0x70;
    pub(super) const SQUEEZE_PAGE: u8 = 0x80;
    pub(super) const DELETE: u8 = 0x90;
    pub(super) const SPLIT_CLEANUP: u8 = 0xA0;
    pub(super) const UPDATE_META_PAGE: u8 = 0xB0;
    pub(super) const VACUUM_ONE_PAGE: u8 = 0xC0;
}

/// Takes a page over a record.
pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    match (change.opcode(), change.block.id) {
        (op::INIT_META_PAGE, 0) => meta::init(change, page),
        (op::INIT_BITMAP_PAGE, 0) => meta::init_bitmap(page, change.main().u16("bmsize")?),
        (op::INIT_BITMAP_PAGE, 1) => meta::add_first_bitmap(page),
        (op::INSERT, 0) => insert(change, page),
        (op::INSERT, 1) => meta::count(page, 1.0),
        (op::ADD_OVFL_PAGE, 0) => new_overflow_page(change, page),
        (op::ADD_OVFL_PAGE, 1) => set_u32(page, at::NEXT, block_number(change, 0)?),
        (op::ADD_OVFL_PAGE, 2) => meta::mark_page(change, page, true),
        (op::ADD_OVFL_PAGE, 3) => meta::init_bitmap(page, change.main().u16("bmsize")?),
        (op::ADD_OVFL_PAGE, 4) => meta::add_overflow_page(change, page),
        (op::SPLIT_ALLOCATE_PAGE, 0) | (op::SPLIT_COMPLETE, 0 | 1) => split_flags(change, page),
        (op::SPLIT_ALLOCATE_PAGE, 1) => new_bucket(change, page),
        (op::SPLIT_ALLOCATE_PAGE, 2) => meta::add_bucket(change, page),
        (op::SPLIT_PAGE, 0) => Err(Misfit::new("block of a hash split", "a page image", "none")),
        // The first page of the bucket: only locked, so that no reader is in it.
        (op::MOVE_PAGE_CONTENTS | op::SQUEEZE_PAGE | op::DELETE, 0) => return Ok(Effect::Nothing),
        (op::MOVE_PAGE_CONTENTS, 1) => add_items(change, page, change.main().u16("ntups")?),
        (op::MOVE_PAGE_CONTENTS, 2) => delete_items(change, page),
        (op::SQUEEZE_PAGE, _) => return squeeze(change, page),
        (op::DELETE, 1) => delete(change, page),
        (op::SPLIT_CLEANUP, 0) => clear_flag(page, flag::NEEDS_SPLIT_CLEANUP),
        (op::UPDATE_META_PAGE, 0) => meta::set_count(page, change.main().array("ntuples")?),
        (op::VACUUM_ONE_PAGE, 0) => vacuum_one_page(change, page),
        (op::VACUUM_ONE_PAGE, 1) => meta::count(page, -f64::from(vacuumed(change)?.0)),
        (opcode, id) => Err(unknown_block(opcode, id)),
    }?;
    Ok(Effect::Changed)
}

/// The flags of a split's buckets are not in their images yet.
pub(crate) fn after_image(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    match (change.opcode(), change.block.id) {
        (op::SPLIT_ALLOCATE_PAGE, 0) | (op::SPLIT_COMPLETE, 0 | 1) => split_flags(change, page),
        _ => Ok(()),
    }
}

#[cold]
fn unknown_block(opcode: u8, id: u8) -> Misfit {
    Misfit::new(
        "block of a hash record",
        "one its kind has",
        format_args!("opcode {opcode:#04x}, block {id}").to_string(),
    )
}

fn block_number(change: &Change<'_, '_>, id: u8) -> Result<u32> {
    let block = change.record.block(id);
    block
        .map(|block| block.block)
        .ok_or_else(|| Misfit::new("blocks of a hash record", format_args!("one with id {id}"), "none"))
}

fn opaque<'p>(page: &'p mut Page<'_>) -> Result<&'p mut [u8]> {
    page.special_area("HashPageOpaqueData", OPAQUE)
}

fn set_u32(page: &mut Page<'_>, at: usize, value: u32) -> Result<()> {
    opaque(page)?[at..at + 4].copy_from_slice(&value.to_le_bytes());
    Ok(())
}

fn set_flags(page: &mut Page<'_>, flags: u16) -> Result<()> {
    opaque(page)?[at::FLAG..at::FLAG + 2].copy_from_slice(&flags.to_le_bytes());
    Ok(())
}

fn clear_flag(page: &mut Page<'_>, bit: u16) -> Result<()> {
    let opaque = opaque(page)?;
    let flags = u16::from_le_bytes([opaque[at::FLAG], opaque[at::FLAG + 1]]);
    set_flags(page, flags & !bit)
}

/// `_hash_pageinit` and the fields its callers set.
fn init(page: &mut Page<'_>, prev: u32, bucket: u32, flags: u16) -> Result<()> {
    page.init(OPAQUE)?;
    set_u32(page, at::PREV, prev)?;
    set_u32(page, at::NEXT, INVALID)?;
    set_u32(page, at::BUCKET, bucket)?;
    set_flags(page, flags)?;
    opaque(page)?[at::PAGE_ID..].copy_from_slice(&PAGE_ID.to_le_bytes());
    Ok(())
}

fn insert(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let number = change.main().u16("xl_hash_insert.offnum")?;
    page.add_item(change.data().rest(), Place::Insert(number))?;
    Ok(())
}

fn new_overflow_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let bucket = change.data().u32("bucket of an overflow page")?;
    init(page, block_number(change, 1)?, bucket, flag::OVERFLOW)
}

/// `xl_hash_split_allocate_page`.
struct SplitAllocate {
    new_bucket: u32,
    old_flags: u16,
    new_flags: u16,
    flags: u8,
}

impl SplitAllocate {
    fn parse(change: &Change<'_, '_>) -> Result<SplitAllocate> {
        let mut main = change.main();
        Ok(SplitAllocate {
            new_bucket: main.u32("xl_hash_split_allocate_page.new_bucket")?,
            old_flags: main.u16("xl_hash_split_allocate_page.old_bucket_flag")?,
            new_flags: main.u16("xl_hash_split_allocate_page.new_bucket_flag")?,
            flags: main.u8("xl_hash_split_allocate_page.flags")?,
        })
    }
}

/// What is set in a bucket's first page when its split begins or ends, whether or not the page was just restored.
fn split_flags(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    if change.opcode() == op::SPLIT_ALLOCATE_PAGE {
        let split = SplitAllocate::parse(change)?;
        set_u32(page, at::PREV, split.new_bucket)?;
        return set_flags(page, split.old_flags);
    }
    let mut main = change.main();
    let (old, new) = (main.u16("old_bucket_flag")?, main.u16("new_bucket_flag")?);
    set_flags(page, if change.block.id == 0 { old } else { new })
}

fn new_bucket(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let split = SplitAllocate::parse(change)?;
    init(page, split.new_bucket, split.new_bucket, split.new_flags)
}

/// So many offset numbers, and then as many items to insert there.
fn add_items(change: &Change<'_, '_>, page: &mut Page<'_>, count: u16) -> Result<()> {
    let mut data = change.data();
    if count == 0 {
        return Ok(());
    }
    let mut numbers = fields::offsets(&mut data, "offset numbers", count.into())?;
    while data.left() > 0 {
        let item = itup::next_aligned(&mut data)?;
        let number = numbers.next().ok_or_else(|| Misfit::new("moved hash items", count, "more"))?;
        page.add_item(item, Place::Insert(number))?;
    }
    Ok(())
}

/// Offset numbers of items that go away.
fn delete_items(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    page.delete_index_items(change.major(), &itup::numbers(change.data()))
}

fn delete(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let clears_dead_marking = change.main().u8("clear_dead_marking")? != 0;
    delete_items(change, page)?;
    if clears_dead_marking {
        clear_flag(page, flag::HAS_DEAD_TUPLES)?;
    }
    Ok(())
}

/// `xl_hash_squeeze_page`: the items of an overflow page went to a page before it, and the page is free.
fn squeeze(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    let mut main = change.main();
    let (prev, next) = (main.u32("prevblkno")?, main.u32("nextblkno")?);
    let count = main.u16("ntups")?;
    main.u8("is_prim_bucket_same_wrt")?;
    let writes_to_prev = main.u8("is_prev_bucket_same_wrt")? != 0;
    match change.block.id {
        1 => {
            add_items(change, page, count)?;
            if writes_to_prev {
                set_u32(page, at::NEXT, next)?;
            }
            // Until 16 the page takes the LSN even if nothing on it changed: `hash_xlog_squeeze_page`.
            if change.major() >= 17 && count == 0 && !writes_to_prev {
                return Ok(Effect::Nothing);
            }
        }
        2 => init(page, INVALID, INVALID, flag::UNUSED)?,
        3 => set_u32(page, at::NEXT, next)?,
        4 => set_u32(page, at::PREV, prev)?,
        5 => meta::mark_page(change, page, false)?,
        6 => meta::set_first_free(page, change.data().u32("hashm_firstfree")?)?,
        id => return Err(unknown_block(op::SQUEEZE_PAGE, id)),
    }
    Ok(Effect::Changed)
}

/// `xl_hash_vacuum_one_page`: how many items, and the offset numbers. The count has 32 bits until 15, and ends at the same place.
fn vacuumed(change: &Change<'_, '_>) -> Result<(u32, Vec<u16>)> {
    let mut main = change.main();
    main.u32("snapshotConflictHorizon")?;
    let count = if change.major() >= 16 {
        let count = main.u16("ntuples")?;
        main.u16("isCatalogRel")?;
        count.into()
    } else {
        main.u32("ntuples")?
    };
    Ok((count, fields::offsets(&mut main, "offset numbers", count as usize)?.collect()))
}

fn vacuum_one_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    page.delete_index_items(change.major(), &vacuumed(change)?.1)?;
    clear_flag(page, flag::HAS_DEAD_TUPLES)
}
