//! Resource manager BRIN. The same in 13 to 18.
//!
//! Source: `access/brin/brin_xlog.c`, `access/brin_xlog.h`, `access/brin_page.h`.

use leadline_page::postgres::brin::{
    BRIN_META_MAGIC, BRIN_PAGETYPE_META, BRIN_PAGETYPE_REGULAR, BRIN_PAGETYPE_REVMAP, SPECIAL,
};

use crate::fields::Fields;
use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place, HEADER};
use crate::tuple::Tid;
use crate::{Change, Effect};

const CREATE_INDEX: u8 = 0x00;
const INSERT: u8 = 0x10;
const UPDATE: u8 = 0x20;
const SAMEPAGE_UPDATE: u8 = 0x30;
const REVMAP_EXTEND: u8 = 0x40;
const DESUMMARIZE: u8 = 0x50;
/// `XLOG_BRIN_OPMASK`.
const KIND: u8 = 0x70;
/// `XLOG_BRIN_INIT_PAGE`.
const INIT_PAGE: u8 = 0x80;

/// Fields of `BrinMetaPageData`, from the page's beginning.
mod meta {
    use super::HEADER;
    pub(super) const MAGIC: usize = HEADER;
    pub(super) const VERSION: usize = HEADER + 4;
    pub(super) const PAGES_PER_RANGE: usize = HEADER + 8;
    pub(super) const LAST_REVMAP_PAGE: usize = HEADER + 12;
    pub(super) const END: usize = HEADER + 16;
}

/// Bytes of an entry of the range map, a row's address.
const ENTRY: usize = 6;

pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    let mut main = change.main();
    match (change.opcode() & KIND, change.block.id) {
        (CREATE_INDEX, 0) => create_index(&mut main, page)?,
        (INSERT, 0 | 1) => insert(change, &mut main, page)?,
        (UPDATE, 0..=2) => {
            let old_number = main.u16("oldOffnum")?;
            main.align(4);
            if change.block.id == 2 {
                page.delete_index_item_in_place(old_number)?;
            } else {
                insert(change, &mut main, page)?;
            }
        }
        (SAMEPAGE_UPDATE, 0) => page.overwrite_index_item(main.u16("offnum")?, change.data().rest())?,
        (REVMAP_EXTEND, 0) => {
            let target = main.u32("targetBlk")?;
            page.put("lastRevmapPage", meta::LAST_REVMAP_PAGE, &target.to_le_bytes())?;
            // Before 11 it was left at the header's end, and the metadata was taken for free space.
            page.set_lower(meta::END);
        }
        (REVMAP_EXTEND, 1) => init(page, BRIN_PAGETYPE_REVMAP)?,
        (DESUMMARIZE, 0) => {
            let (pages_per_range, heap_block) = (main.u32("pagesPerRange")?, main.u32("heapBlk")?);
            set_entry(page, pages_per_range, heap_block, Tid { block: u32::MAX, number: 0 })?;
        }
        (DESUMMARIZE, 1) => {
            main.take("pagesPerRange and heapBlk", 8)?;
            page.delete_index_item_in_place(main.u16("regOffset")?)?;
        }
        (kind, block) => {
            let found = format_args!("{kind:#04x}, block {block}").to_string();
            return Err(Misfit::new("record of BRIN", "a known kind and its blocks", found));
        }
    }
    Ok(Effect::Changed)
}

/// `brin_page_init`: the type is the last thing on the page.
fn init(page: &mut Page<'_>, kind: u16) -> Result<()> {
    page.init(SPECIAL)?;
    let end = page.size();
    page.put("page type", end - 2, &kind.to_le_bytes())
}

fn create_index(main: &mut Fields<'_>, page: &mut Page<'_>) -> Result<()> {
    let (pages_per_range, version) = (main.u32("pagesPerRange")?, main.u16("version")?);
    init(page, BRIN_PAGETYPE_META)?;
    page.put("brinMagic", meta::MAGIC, &BRIN_META_MAGIC.to_le_bytes())?;
    page.put("brinVersion", meta::VERSION, &u32::from(version).to_le_bytes())?;
    page.put("pagesPerRange", meta::PAGES_PER_RANGE, &pages_per_range.to_le_bytes())?;
    page.set_lower(meta::END);
    Ok(())
}

/// Block 0 gets the summary of a range, block 1 is the map's page that points to it.
fn insert(change: &Change<'_, '_>, main: &mut Fields<'_>, page: &mut Page<'_>) -> Result<()> {
    let (heap_block, pages_per_range) = (main.u32("heapBlk")?, main.u32("pagesPerRange")?);
    let number = main.u16("offnum")?;
    if change.block.id == 0 {
        if change.opcode() & INIT_PAGE != 0 {
            init(page, BRIN_PAGETYPE_REGULAR)?;
        }
        return page.add_item(change.data().rest(), Place::Overwrite(number)).map(|_| ());
    }
    let Some(regular) = change.record.block(0) else {
        return Err(Misfit::new("block of the summary", "block 0 of the record", "none"));
    };
    set_entry(page, pages_per_range, heap_block, Tid { block: regular.block, number })
}

/// `brinSetHeapBlockItemptr`.
fn set_entry(page: &mut Page<'_>, pages_per_range: u32, heap_block: u32, to: Tid) -> Result<()> {
    let Some(range) = heap_block.checked_div(pages_per_range) else {
        return Err(Misfit::new("pagesPerRange", "more than 0", 0));
    };
    let per_page = (page.size() - HEADER - SPECIAL) / ENTRY;
    let at = HEADER + ENTRY * (range as usize % per_page);
    page.put("entry of the range map", at, &to.bytes())
}
