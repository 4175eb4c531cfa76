//! The pages of a B-tree split. The right one comes from the record; the left one from what it had itself.
//!
//! Source: `btree_xlog_split` in `access/nbtree/nbtxlog.c`, the same in 13 to 18.

use super::rebuilt::Rebuilt;
use super::{at, flag, init, opaque, posting, put_u16, put_u32, restore_items, Opaque, NONE};
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::Change;

/// `xl_btree_split`.
struct Split {
    level: u32,
    first_right: u16,
    new_item: u16,
    /// Where the list of the item before the new one is divided; 0 when it is not.
    posting: u16,
}

impl Split {
    fn parse(change: &Change<'_, '_>) -> Result<Split> {
        let mut main = change.main();
        Ok(Split {
            level: main.u32("xl_btree_split.level")?,
            first_right: main.u16("xl_btree_split.firstrightoff")?,
            new_item: main.u16("xl_btree_split.newitemoff")?,
            posting: main.u16("xl_btree_split.postingoff")?,
        })
    }

    fn leaf(&self) -> u16 {
        if self.level == 0 {
            flag::LEAF
        } else {
            0
        }
    }
}

fn block_number(change: &Change<'_, '_>, id: u8) -> Option<u32> {
    change.record.block(id).map(|block| block.block)
}

fn right_page(change: &Change<'_, '_>) -> Result<u32> {
    block_number(change, 1).ok_or_else(|| Misfit::new("block 1 of a B-tree split", "the new right page", "none"))
}

pub(super) fn right(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let split = Split::parse(change)?;
    let prev = block_number(change, 0)
        .ok_or_else(|| Misfit::new("block 0 of a B-tree split", "the page that was split", "none"))?;
    let next = block_number(change, 2).unwrap_or(NONE);
    init(page, &Opaque { prev, next, level: split.level, flags: split.leaf() })?;
    restore_items(page, change.data())
}

/// The page to the right of the new one.
pub(super) fn beyond(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    put_u32(opaque(page)?, at::PREV, right_page(change)?);
    Ok(())
}

pub(super) fn left(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let split = Split::parse(change)?;
    let right = right_page(change)?;
    let is_on_left = change.opcode() == super::op::SPLIT_L;
    let mut data = change.data();

    let mut new_item = Vec::new();
    let mut divided = None;
    if is_on_left || split.posting != 0 {
        new_item.extend_from_slice(itup::next_aligned(&mut data)?);
    }
    if split.posting != 0 {
        let number = split.new_item.wrapping_sub(1);
        let mut list = itup::item(page, number)?.to_vec();
        posting::divide(&mut list, &mut new_item, split.posting)?;
        divided = Some((number, list));
    }
    let high_key = itup::next_aligned(&mut data)?;

    let mut left = Rebuilt::of(page)?;
    left.push(high_key)?;
    for number in super::first_data_key(opaque(page)?)..split.first_right {
        match &divided {
            Some((of, list)) if *of == number => {
                left.push(list)?;
                continue;
            }
            _ if is_on_left && number == split.new_item => left.push(&new_item)?,
            _ => {}
        }
        left.push(itup::item(page, number)?)?;
    }
    // The loop ends before the number it ends at: there the new item may still be missing.
    if is_on_left && split.new_item == split.first_right.max(super::first_data_key(opaque(page)?)) {
        left.push(&new_item)?;
    }
    left.replace(page);

    let opaque = opaque(page)?;
    put_u16(opaque, at::FLAGS, flag::INCOMPLETE_SPLIT | split.leaf());
    put_u32(opaque, at::NEXT, right);
    put_u16(opaque, at::CYCLE_ID, 0);
    Ok(())
}
