//! Redo of B-tree indexes.
//!
//! Owns: inserted items, new roots, deleted pages, the metapage. Splits are in [`split`], lists of row numbers in [`posting`].
//!
//! Source: `access/nbtree/nbtxlog.c`, `access/nbtxlog.h`, `access/nbtree.h`. Since 14 a deleted page keeps its level and has a
//! 64-bit transaction in its content, and the metapage counts deleted pages.

mod posting;
mod rebuilt;
mod split;

use leadline_page::postgres::btree::at;

use crate::fields::Fields;
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place, HEADER};
use crate::{Change, Effect};

/// Bytes of `BTPageOpaqueData`.
const OPAQUE: usize = 16;
/// `BTREE_MAGIC`.
const MAGIC: u32 = 0x0005_3162;
/// Bytes of `BTMetaPageData`.
const META: usize = 48;
/// `P_HIKEY`, the number of the item that bounds the page's keys.
const HIGH_KEY: u16 = 1;
/// `P_NONE`: no such page.
const NONE: u32 = 0;

/// Bits of `btpo_flags`.
mod flag {
    pub(super) const LEAF: u16 = 1 << 0;
    pub(super) const ROOT: u16 = 1 << 1;
    pub(super) const DELETED: u16 = 1 << 2;
    pub(super) const META: u16 = 1 << 3;
    pub(super) const HALF_DEAD: u16 = 1 << 4;
    pub(super) const HAS_GARBAGE: u16 = 1 << 6;
    pub(super) const INCOMPLETE_SPLIT: u16 = 1 << 7;
    pub(super) const HAS_FULL_XID: u16 = 1 << 8;
}

/// Values of `xl_info`.
mod op {
    pub(super) const INSERT_LEAF: u8 = 0x00;
    pub(super) const INSERT_UPPER: u8 = 0x10;
    pub(super) const INSERT_META: u8 = 0x20;
    pub(super) const SPLIT_L: u8 = 0x30;
    pub(super) const SPLIT_R: u8 = 0x40;
    pub(super) const INSERT_POST: u8 = 0x50;
    pub(super) const DEDUP: u8 = 0x60;
    pub(super) const DELETE: u8 = 0x70;
    pub(super) const UNLINK_PAGE: u8 = 0x80;
    pub(super) const UNLINK_PAGE_META: u8 = 0x90;
    pub(super) const NEWROOT: u8 = 0xA0;
    pub(super) const MARK_PAGE_HALFDEAD: u8 = 0xB0;
    pub(super) const VACUUM: u8 = 0xC0;
    pub(super) const META_CLEANUP: u8 = 0xE0;
}

/// Takes a page over a record; `REUSE_PAGE` (0xD0) names none.
pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    match (change.opcode(), change.block.id) {
        (op::INSERT_LEAF | op::INSERT_UPPER | op::INSERT_META, 0) => insert(change, page),
        (op::INSERT_POST, 0) => posting::insert(change, page),
        (op::INSERT_UPPER | op::INSERT_META | op::NEWROOT, 1) | (op::SPLIT_L | op::SPLIT_R, 3) => finish_split(page),
        (op::INSERT_META | op::NEWROOT, 2) | (op::UNLINK_PAGE_META, 4) | (op::META_CLEANUP, 0) => meta(change, page),
        (op::SPLIT_L | op::SPLIT_R, 0) => split::left(change, page),
        (op::SPLIT_L | op::SPLIT_R, 1) => split::right(change, page),
        (op::SPLIT_L | op::SPLIT_R, 2) => split::beyond(change, page),
        (op::DEDUP, 0) => posting::dedup(change, page),
        (op::DELETE, 0) => posting::delete(change, page),
        (op::VACUUM, 0) => posting::vacuum(change, page),
        (op::MARK_PAGE_HALFDEAD, 0) => half_dead_leaf(change, page),
        (op::MARK_PAGE_HALFDEAD, 1) => drop_downlink(change, page),
        (op::UNLINK_PAGE | op::UNLINK_PAGE_META, 0..=3) => unlink(change, page),
        (op::NEWROOT, 0) => new_root(change, page),
        (opcode, id) => Err(unknown_block(opcode, id)),
    }?;
    Ok(Effect::Changed)
}

#[cold]
fn unknown_block(opcode: u8, id: u8) -> Misfit {
    Misfit::new(
        "block of a B-tree record",
        "one its kind has",
        format_args!("opcode {opcode:#04x}, block {id}").to_string(),
    )
}

fn opaque<'p>(page: &'p mut Page<'_>) -> Result<&'p mut [u8]> {
    page.special_area("BTPageOpaqueData", OPAQUE)
}

fn put_u32(opaque: &mut [u8], at: usize, value: u32) {
    opaque[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u16(opaque: &mut [u8], at: usize, value: u16) {
    opaque[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn flags(opaque: &[u8]) -> u16 {
    u16::from_le_bytes([opaque[at::FLAGS], opaque[at::FLAGS + 1]])
}

fn clear_flags(opaque: &mut [u8], bits: u16) {
    put_u16(opaque, at::FLAGS, flags(opaque) & !bits);
}

fn next(opaque: &[u8]) -> u32 {
    u32::from_le_bytes([opaque[at::NEXT], opaque[at::NEXT + 1], opaque[at::NEXT + 2], opaque[at::NEXT + 3]])
}

/// `P_FIRSTDATAKEY`: only the last page of a level has no high key.
fn first_data_key(opaque: &[u8]) -> u16 {
    if next(opaque) == NONE {
        HIGH_KEY
    } else {
        HIGH_KEY + 1
    }
}

/// What a page made anew says of itself.
struct Opaque {
    prev: u32,
    next: u32,
    level: u32,
    flags: u16,
}

/// `_bt_pageinit` and the fields its callers set.
fn init(page: &mut Page<'_>, fields: &Opaque) -> Result<()> {
    page.init(OPAQUE)?;
    let opaque = opaque(page)?;
    put_u32(opaque, at::PREV, fields.prev);
    put_u32(opaque, at::NEXT, fields.next);
    put_u32(opaque, at::LEVEL, fields.level);
    put_u16(opaque, at::FLAGS, fields.flags);
    Ok(())
}

fn insert(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let number = change.main().u16("xl_btree_insert.offnum")?;
    page.add_item(change.data().rest(), Place::Insert(number))?;
    Ok(())
}

/// `_bt_clear_incomplete_split`: the page's right sibling got its downlink.
fn finish_split(page: &mut Page<'_>) -> Result<()> {
    clear_flags(opaque(page)?, flag::INCOMPLETE_SPLIT);
    Ok(())
}

/// `_bt_restore_meta`.
fn meta(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut from = change.data();
    init(page, &Opaque { prev: NONE, next: NONE, level: 0, flags: flag::META })?;
    let mut content = [0; META];
    put_u32(&mut content, 0, MAGIC);
    // version, root, level, fastroot, fastlevel, and the deleted pages of the last cleanup (13: the oldest transaction of one).
    content[4..28].copy_from_slice(from.take("xl_btree_metadata", 24)?);
    let heap_tuples =
        if change.major() >= 14 { (-1.0f64).to_le_bytes() } else { from.array("last_cleanup_num_heap_tuples")? };
    content[32..40].copy_from_slice(&heap_tuples);
    content[40] = from.u8("xl_btree_metadata.allequalimage")?;
    page.put("BTMetaPageData", HEADER, &content)?;
    page.set_lower(HEADER + META);
    Ok(())
}

/// `_bt_restore_page`: the list has the last item first.
fn restore_items(page: &mut Page<'_>, mut from: Fields<'_>) -> Result<()> {
    let mut items = Vec::new();
    while from.left() > 0 {
        items.push(itup::next_aligned(&mut from)?);
    }
    for (number, item) in (1..).zip(items.iter().rev()) {
        page.add_item(item, Place::Insert(number))?;
    }
    Ok(())
}

fn new_root(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let _root = main.u32("xl_btree_newroot.rootblk")?;
    let level = main.u32("xl_btree_newroot.level")?;
    let leaf = if level == 0 { flag::LEAF } else { 0 };
    init(page, &Opaque { prev: NONE, next: NONE, level, flags: flag::ROOT | leaf })?;
    if level > 0 {
        restore_items(page, change.data())?;
    }
    Ok(())
}

/// The parent loses the page's downlink: it takes over the one of its right sibling, whose own place goes away.
fn drop_downlink(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let number = change.main().u16("xl_btree_mark_page_halfdead.poffset")?;
    let after =
        number.checked_add(1).ok_or_else(|| Misfit::new("offset number", "one with another behind it", number))?;
    let right_sibling = itup::block(itup::item(page, after)?);
    itup::item_mut(page, number)?[..4].copy_from_slice(&itup::block_id(right_sibling));
    page.delete_index_item(after)
}

fn half_dead_leaf(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.take("poffset and leafblk", 8)?;
    let (prev, next) = (main.u32("leftblk")?, main.u32("rightblk")?);
    half_dead(page, prev, next, main.u32("topparent")?)
}

/// An empty leaf that is about to be deleted, with a high key that names the topmost page that goes with it.
fn half_dead(page: &mut Page<'_>, prev: u32, next: u32, top_parent: u32) -> Result<()> {
    init(page, &Opaque { prev, next, level: 0, flags: flag::HALF_DEAD | flag::LEAF })?;
    let mut high_key = [0; itup::HEADER];
    high_key[..itup::TID].copy_from_slice(&itup::item_pointer(top_parent, 0));
    itup::set_info(&mut high_key, posting::ALT_TID | itup::HEADER as u16);
    page.add_item(&high_key, Place::Insert(HIGH_KEY))?;
    Ok(())
}

/// `xl_btree_unlink_page`.
struct Unlink {
    left: u32,
    right: u32,
    level: u32,
    /// When the page was deleted; 32 bits until 13.
    xid: u64,
    leaf_left: u32,
    leaf_right: u32,
    top_parent: u32,
}

impl Unlink {
    fn parse(change: &Change<'_, '_>) -> Result<Unlink> {
        let mut main = change.main();
        let (left, right) = (main.u32("leftsib")?, main.u32("rightsib")?);
        let (mut level, mut xid) = (0, 0);
        if change.major() >= 14 {
            level = main.u32("level")?;
            main.align(8);
            xid = main.u64("safexid")?;
        }
        let (leaf_left, leaf_right) = (main.u32("leafleftsib")?, main.u32("leafrightsib")?);
        let top_parent = main.u32("leaftopparent")?;
        if change.major() < 14 {
            xid = main.u32("btpo_xact")?.into();
        }
        Ok(Unlink { left, right, level, xid, leaf_left, leaf_right, top_parent })
    }
}

fn unlink(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let unlink = Unlink::parse(change)?;
    match change.block.id {
        0 => deleted(change.major(), page, &unlink)?,
        1 => put_u32(opaque(page)?, at::NEXT, unlink.right),
        2 => put_u32(opaque(page)?, at::PREV, unlink.left),
        _ => half_dead(page, unlink.leaf_left, unlink.leaf_right, unlink.top_parent)?,
    }
    Ok(())
}

fn deleted(major: u8, page: &mut Page<'_>, unlink: &Unlink) -> Result<()> {
    let (prev, next) = (unlink.left, unlink.right);
    if major < 14 {
        return init(page, &Opaque { prev, next, level: unlink.xid as u32, flags: flag::DELETED });
    }
    let leaf = if unlink.level == 0 { flag::LEAF } else { 0 };
    init(page, &Opaque { prev, next, level: unlink.level, flags: flag::DELETED | flag::HAS_FULL_XID | leaf })?;
    page.put("BTDeletedPageData", HEADER, &unlink.xid.to_le_bytes())?;
    page.set_lower(HEADER + 8);
    Ok(())
}
