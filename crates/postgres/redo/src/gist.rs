//! Redo of GiST indexes.
//!
//! Source: `access/gist/gistxlog.c`, `access/gistxlog.h`, `access/gist.h`. 16 added a field to the record of deleted items.

use crate::fields;
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place, HEADER};
use crate::{Change, Effect};

/// Bytes of `GISTPageOpaqueData`.
const OPAQUE: usize = 16;
/// `GIST_PAGE_ID`.
const PAGE_ID: u16 = 0xFF81;
/// `GIST_ROOT_BLKNO`.
const ROOT: u32 = 0;
/// `InvalidBlockNumber`.
const NO_PAGE: u32 = u32::MAX;

/// Bits of the page's flags.
mod flag {
    pub(super) const LEAF: u16 = 1 << 0;
    pub(super) const DELETED: u16 = 1 << 1;
    /// Set by VACUUM and by redo, read by nobody. The servers' source dropped it in August 2026; 18.6 still sets it.
    pub(super) const TUPLES_DELETED: u16 = 1 << 2;
    pub(super) const FOLLOW_RIGHT: u16 = 1 << 3;
    pub(super) const HAS_GARBAGE: u16 = 1 << 4;
}

/// Offsets in `GISTPageOpaqueData`.
pub(crate) mod at {
    /// Node sequence number: the LSN of the page's last split, its high half first.
    pub(crate) const NSN: usize = 0;
    pub(super) const RIGHT_LINK: usize = 8;
    pub(crate) const FLAGS: usize = 12;
    pub(super) const PAGE_ID: usize = 14;
}

/// Values of `xl_info`.
mod op {
    pub(super) const PAGE_UPDATE: u8 = 0x00;
    pub(super) const DELETE: u8 = 0x10;
    pub(super) const PAGE_SPLIT: u8 = 0x30;
    pub(super) const PAGE_DELETE: u8 = 0x60;
}

/// Takes a page over a record; `PAGE_REUSE` (0x20) and `ASSIGN_LSN` (0x70) name none.
pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    match (change.opcode(), change.block.id) {
        (op::PAGE_UPDATE, 0) => update(change, page),
        (op::PAGE_UPDATE, 1) | (op::PAGE_SPLIT, 0) => finish_split(change, page),
        (op::PAGE_SPLIT, _) => split(change, page),
        (op::DELETE, 0) => delete(change, page),
        (op::PAGE_DELETE, 0) => delete_page(change, page),
        (op::PAGE_DELETE, 1) => delete_downlink(change, page),
        (opcode, id) => {
            let found = format_args!("opcode {opcode:#04x}, block {id}").to_string();
            Err(Misfit::new("block of a GiST record", "one its kind has", found))
        }
    }?;
    Ok(Effect::Changed)
}

/// The image of a split's left page is from before its right one got a downlink.
pub(crate) fn after_image(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    match (change.opcode(), change.block.id) {
        (op::PAGE_UPDATE, 1) | (op::PAGE_SPLIT, 0) => finish_split(change, page),
        _ => Ok(()),
    }
}

fn opaque<'p>(page: &'p mut Page<'_>) -> Result<&'p mut [u8]> {
    page.special_area("GISTPageOpaqueData", OPAQUE)
}

fn flags(page: &mut Page<'_>) -> Result<u16> {
    let opaque = opaque(page)?;
    Ok(u16::from_le_bytes([opaque[at::FLAGS], opaque[at::FLAGS + 1]]))
}

fn change_flags(page: &mut Page<'_>, set: u16, clear: u16) -> Result<()> {
    let flags = flags(page)? & !clear | set;
    opaque(page)?[at::FLAGS..at::FLAGS + 2].copy_from_slice(&flags.to_le_bytes());
    Ok(())
}

fn set_nsn(page: &mut Page<'_>, nsn: u64) -> Result<()> {
    let opaque = opaque(page)?;
    opaque[at::NSN..at::NSN + 4].copy_from_slice(&((nsn >> 32) as u32).to_le_bytes());
    opaque[at::NSN + 4..at::NSN + 8].copy_from_slice(&(nsn as u32).to_le_bytes());
    Ok(())
}

/// `gistRedoClearFollowRight`: the page's right sibling got its downlink.
fn finish_split(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    set_nsn(page, change.lsn())?;
    change_flags(page, 0, flag::FOLLOW_RIGHT)
}

fn append(page: &mut Page<'_>, item: &[u8]) -> Result<()> {
    page.add_item(item, Place::Insert(page.max_offset() + 1))?;
    Ok(())
}

/// `XLOG_GIST_PAGE_UPDATE`.
fn update(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let (deleted, inserted) = (main.u16("ntodelete")?, main.u16("ntoinsert")?);
    let mut data = change.data();
    let numbers = fields::offsets(&mut data, "todelete", deleted.into())?.collect::<Vec<_>>();
    if (deleted, inserted) == (1, 1) {
        page.overwrite_index_item(numbers[0], itup::next(&mut data)?)?;
    } else if deleted > 0 {
        page.delete_index_items(change.major(), &numbers)?;
        if flags(page)? & flag::LEAF != 0 {
            change_flags(page, flag::TUPLES_DELETED, 0)?;
        }
    }
    while data.left() > 0 {
        append(page, itup::next(&mut data)?)?;
    }
    Ok(())
}

/// `XLOG_GIST_DELETE`.
fn delete(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u32("snapshotConflictHorizon")?;
    let count = main.u16("ntodelete")?;
    if change.major() >= 16 {
        main.u16("isCatalogRel")?;
    }
    let numbers = fields::offsets(&mut main, "offsets", count.into())?.collect::<Vec<_>>();
    page.delete_index_items(change.major(), &numbers)?;
    change_flags(page, flag::TUPLES_DELETED, flag::HAS_GARBAGE)
}

/// `XLOG_GIST_PAGE_SPLIT`: every page of the split is made anew, linked to the next one of the record.
fn split(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let old_right_link = main.u32("origrlink")?;
    main.align(8);
    let old_nsn = main.u64("orignsn")?;
    let was_leaf = main.u8("origleaf")? != 0;
    main.align(2);
    let pages = main.u16("npage")?;
    let marks_follow_right = main.u8("markfollowright")? != 0;

    let is_root = change.block.block == ROOT;
    let is_last = u16::from(change.block.id) >= pages;
    let block_number = |id| change.record.block(id).map(|block| block.block);
    let right_link = match (is_root, is_last) {
        (true, _) => NO_PAGE,
        (false, true) => old_right_link,
        (false, false) => block_number(change.block.id + 1)
            .ok_or_else(|| Misfit::new("pages of a GiST split", pages, change.block.id))?,
    };
    let is_root_split = block_number(1) == Some(ROOT);
    let follow_right = !is_last && !is_root_split && marks_follow_right;
    let leaf = if was_leaf && !is_root { flag::LEAF } else { 0 };

    page.init(OPAQUE)?;
    let opaque = opaque(page)?;
    opaque[at::RIGHT_LINK..at::RIGHT_LINK + 4].copy_from_slice(&right_link.to_le_bytes());
    opaque[at::PAGE_ID..].copy_from_slice(&PAGE_ID.to_le_bytes());
    set_nsn(page, old_nsn)?;
    change_flags(page, leaf | if follow_right { flag::FOLLOW_RIGHT } else { 0 }, 0)?;

    let mut data = change.data();
    for _ in 0..data.u32("number of tuples")? {
        append(page, itup::next(&mut data)?)?;
    }
    Ok(())
}

/// `XLOG_GIST_PAGE_DELETE`, the page: its content becomes the transaction that deleted it.
fn delete_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let xid: [u8; 8] = change.main().array("deleteXid")?;
    change_flags(page, flag::DELETED, 0)?;
    page.set_lower(HEADER + xid.len());
    page.put("GISTDeletedPageContents", HEADER, &xid)
}

/// Likewise, its parent.
fn delete_downlink(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u64("deleteXid")?;
    page.delete_index_item(main.u16("downlinkOffset")?)
}
