//! Redo of GIN indexes.
//!
//! Owns: the tree of entries, the inner pages of the trees of rows, the list of pending entries, the metapage. The leaves of the
//! trees of rows, which are compressed, are in [`rows`].
//!
//! Source: `access/gin/ginxlog.c`, `access/ginxlog.h`, `access/ginblock.h`, the same in 13 to 18.

mod rows;

use crate::fields::Fields;
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place, HEADER};
use crate::{Change, Effect};

/// Bytes of `GinPageOpaqueData`.
const OPAQUE: usize = 8;
/// Bytes of `GinMetaPageData`.
const META: usize = 56;
/// `InvalidBlockNumber`.
const NO_PAGE: u32 = u32::MAX;
/// Where the rows of a data page begin: behind the bound of its keys (`GinDataPageGetData`).
const DATA: usize = HEADER + 8;
/// Bytes of a `PostingItem`: a child page and the bound of its keys.
const POSTING_ITEM: usize = 10;

/// Bits of the page's flags.
mod flag {
    pub(super) const DATA: u16 = 1 << 0;
    pub(super) const LEAF: u16 = 1 << 1;
    pub(super) const DELETED: u16 = 1 << 2;
    pub(super) const META: u16 = 1 << 3;
    pub(super) const LIST: u16 = 1 << 4;
    pub(super) const LIST_FULLROW: u16 = 1 << 5;
    pub(super) const INCOMPLETE_SPLIT: u16 = 1 << 6;
    pub(super) const COMPRESSED: u16 = 1 << 7;
}

/// Offsets in `GinPageOpaqueData`.
pub(crate) mod at {
    pub(super) const RIGHT_LINK: usize = 0;
    pub(super) const MAX_OFF: usize = 4;
    pub(crate) const FLAGS: usize = 6;
}

/// Values of `xl_info`.
mod op {
    pub(super) const CREATE_PTREE: u8 = 0x10;
    pub(super) const INSERT: u8 = 0x20;
    pub(super) const SPLIT: u8 = 0x30;
    pub(super) const VACUUM_PAGE: u8 = 0x40;
    pub(super) const DELETE_PAGE: u8 = 0x50;
    pub(super) const UPDATE_META_PAGE: u8 = 0x60;
    pub(super) const INSERT_LISTPAGE: u8 = 0x70;
    pub(super) const DELETE_LISTPAGE: u8 = 0x80;
    pub(super) const VACUUM_DATA_LEAF_PAGE: u8 = 0x90;
}

/// Bits of `ginxlogInsert.flags`.
mod insert_flag {
    pub(super) const IS_DATA: u16 = 0x01;
    pub(super) const IS_LEAF: u16 = 0x02;
}

/// Takes a page over a record.
pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    match (change.opcode(), change.block.id) {
        (op::CREATE_PTREE, 0) => create_tree(change, page),
        (op::INSERT, 0) => insert(change, page),
        (op::INSERT, 1) | (op::SPLIT, 3) => change_flags(page, 0, flag::INCOMPLETE_SPLIT),
        (op::SPLIT, 0..=2) | (op::VACUUM_PAGE, 0) => Err(Misfit::new("block of a GIN record", "a page image", "none")),
        (op::DELETE_PAGE, 0) => delete_page(change, page),
        (op::DELETE_PAGE, 1) => delete_downlink(page, change.main().u16("parentOffset")?),
        (op::DELETE_PAGE, 2) => {
            let mut main = change.main();
            main.u32("parentOffset")?;
            set_right_link(page, main.u32("rightLink")?)
        }
        (op::UPDATE_META_PAGE, 0) => {
            let mut main = change.main();
            main.take("locator", 16)?;
            meta(page, main)
        }
        (op::UPDATE_META_PAGE, 1) => return extend_list(change, page),
        (op::INSERT_LISTPAGE, 0) => list_page(change, page),
        (op::DELETE_LISTPAGE, 0) => meta(page, change.main()),
        (op::DELETE_LISTPAGE, _) => init(page, flag::DELETED),
        (op::VACUUM_DATA_LEAF_PAGE, 0) => rows::recompress(page, change.data()),
        (opcode, id) => {
            let found = format_args!("opcode {opcode:#04x}, block {id}").to_string();
            Err(Misfit::new("block of a GIN record", "one its kind has", found))
        }
    }?;
    Ok(Effect::Changed)
}

fn opaque<'p>(page: &'p mut Page<'_>) -> Result<&'p mut [u8]> {
    page.special_area("GinPageOpaqueData", OPAQUE)
}

fn flags(page: &mut Page<'_>) -> Result<u16> {
    let opaque = opaque(page)?;
    Ok(u16::from_le_bytes([opaque[at::FLAGS], opaque[at::FLAGS + 1]]))
}

fn change_flags(page: &mut Page<'_>, set: u16, clear: u16) -> Result<()> {
    let flags = flags(page)? & !clear | set;
    opaque(page)?[at::FLAGS..].copy_from_slice(&flags.to_le_bytes());
    Ok(())
}

/// Of an inner data page how many children it has, of a page of the pending list how many rows it is from.
fn max_off(page: &mut Page<'_>) -> Result<u16> {
    let opaque = opaque(page)?;
    Ok(u16::from_le_bytes([opaque[at::MAX_OFF], opaque[at::MAX_OFF + 1]]))
}

fn set_max_off(page: &mut Page<'_>, count: u16) -> Result<()> {
    opaque(page)?[at::MAX_OFF..at::FLAGS].copy_from_slice(&count.to_le_bytes());
    Ok(())
}

fn set_right_link(page: &mut Page<'_>, block: u32) -> Result<()> {
    opaque(page)?[at::RIGHT_LINK..at::MAX_OFF].copy_from_slice(&block.to_le_bytes());
    Ok(())
}

/// `GinInitPage`.
fn init(page: &mut Page<'_>, flags: u16) -> Result<()> {
    page.init(OPAQUE)?;
    set_right_link(page, NO_PAGE)?;
    change_flags(page, flags, 0)
}

/// `GinInitMetabuffer`, and the content from the record.
fn meta(page: &mut Page<'_>, mut from: Fields<'_>) -> Result<()> {
    init(page, flag::META)?;
    page.put("GinMetaPageData", HEADER, from.take("GinMetaPageData", META)?)?;
    page.set_lower(HEADER + META);
    Ok(())
}

fn create_tree(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let size = main.u32("ginxlogCreatePostingTree.size")? as usize;
    init(page, flag::DATA | flag::LEAF | flag::COMPRESSED)?;
    page.put("posting lists", DATA, main.take("posting lists", size)?)?;
    set_data_size(page, size)
}

/// `GinDataPageSetDataSize`.
fn set_data_size(page: &mut Page<'_>, size: usize) -> Result<()> {
    let most = page.size() - DATA - OPAQUE;
    if size > most {
        return Err(Misfit::new("rows of a GIN page", format_args!("at most {most} bytes"), size));
    }
    page.set_lower(DATA + size);
    Ok(())
}

/// `XLOG_GIN_INSERT`: the pages whose split an insert into an inner page ends are in the main data.
fn insert(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let flags = main.u16("ginxlogInsert.flags")?;
    let is_leaf = flags & insert_flag::IS_LEAF != 0;
    let mut right = NO_PAGE;
    if !is_leaf {
        itup::read_block_id(&mut main, "left child")?;
        right = itup::read_block_id(&mut main, "right child")?;
    }
    match (flags & insert_flag::IS_DATA != 0, is_leaf) {
        (false, _) => insert_entry(page, change.data(), right),
        (true, true) => rows::recompress(page, change.data()),
        (true, false) => insert_downlink(page, change.data(), right),
    }
}

/// `ginRedoInsertEntry`.
fn insert_entry(page: &mut Page<'_>, mut data: Fields<'_>, right: u32) -> Result<()> {
    let number = data.u16("ginxlogInsertEntry.offset")?;
    let is_delete = data.u16("ginxlogInsertEntry.isDelete")? & 0xFF != 0; // and a byte of padding
    let entry = itup::next(&mut data)?;
    if right != NO_PAGE {
        // The old downlink leads to the right half from now on, the new one to the left.
        itup::item_mut(page, number)?[..itup::TID].copy_from_slice(&itup::item_pointer(right, 0));
    }
    if is_delete {
        page.delete_index_item(number)?;
    }
    page.add_item(entry, Place::Insert(number))?;
    Ok(())
}

/// Where the child of this number is, of 1 to `count`.
fn downlink_at(page: &mut Page<'_>, number: u16, count: u16) -> Result<usize> {
    if number == 0 || number > count || DATA + POSTING_ITEM * usize::from(count) > page.special() {
        return Err(Misfit::new("child of a GIN page", format_args!("1 to {count}, inside the page"), number));
    }
    Ok(DATA + POSTING_ITEM * (usize::from(number) - 1))
}

/// `ginRedoInsertData` of an inner page, `GinDataPageAddPostingItem`.
fn insert_downlink(page: &mut Page<'_>, mut data: Fields<'_>, right: u32) -> Result<()> {
    let number = data.u16("ginxlogInsertDataInternal.offset")?;
    let new_item = data.take("ginxlogInsertDataInternal.newitem", POSTING_ITEM)?;
    let count = max_off(page)?;
    let at = downlink_at(page, number, count)?;
    page.put("child of a GIN page", at, &itup::block_id(right))?;
    set_data_size(page, POSTING_ITEM * (usize::from(count) + 1))?;
    page.bytes_mut().copy_within(at..DATA + POSTING_ITEM * usize::from(count), at + POSTING_ITEM);
    page.put("child of a GIN page", at, new_item)?;
    set_max_off(page, count + 1)
}

/// `GinPageDeletePostingItem`.
fn delete_downlink(page: &mut Page<'_>, number: u16) -> Result<()> {
    let count = max_off(page)?;
    let at = downlink_at(page, number, count)?;
    page.bytes_mut().copy_within(at + POSTING_ITEM..DATA + POSTING_ITEM * usize::from(count), at);
    set_max_off(page, count - 1)?;
    set_data_size(page, POSTING_ITEM * (usize::from(count) - 1))
}

/// `XLOG_GIN_DELETE_PAGE`, the page: when it was deleted is where others note what can be pruned.
fn delete_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u64("parentOffset and rightLink")?;
    page.set_prune_xid(main.u32("deleteXid")?);
    change_flags(page, flag::DELETED, 0)
}

/// `XLOG_GIN_UPDATE_META_PAGE`, the last page of the pending list: it gets entries, or another page behind it.
fn extend_list(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    let mut main = change.main();
    main.take("locator and metadata", 16 + META)?;
    let (old_tail, right_link) = (main.u32("prevTail")?, main.u32("newRightlink")?);
    let entries = main.i32("ntuples")?;
    if entries > 0 {
        append(page, change.data(), entries)?;
        let rows = max_off(page)?;
        set_max_off(page, rows.wrapping_add(1))?;
    } else if old_tail != NO_PAGE {
        set_right_link(page, right_link)?;
    } else {
        return Ok(Effect::Nothing);
    }
    Ok(Effect::Changed)
}

/// `XLOG_GIN_INSERT_LISTPAGE`: a page of the pending list. The last one of a row's pages is marked.
fn list_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let (right_link, entries) = (main.u32("rightlink")?, main.i32("ntuples")?);
    init(page, flag::LIST)?;
    set_right_link(page, right_link)?;
    if right_link == NO_PAGE {
        change_flags(page, flag::LIST_FULLROW, 0)?;
        set_max_off(page, 1)?;
    }
    append(page, change.data(), entries)
}

/// Entries behind those a page of the pending list has.
fn append(page: &mut Page<'_>, mut data: Fields<'_>, entries: i32) -> Result<()> {
    for _ in 0..entries {
        page.add_item(itup::next(&mut data)?, Place::Insert(page.max_offset() + 1))?;
    }
    Ok(())
}
