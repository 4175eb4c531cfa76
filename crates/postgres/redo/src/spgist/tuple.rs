//! Tuples of an SP-GiST index: leaf, inner, and those that only keep a place.
//!
//! Source: `SpGistLeafTupleData`, `SpGistInnerTupleData` and `SpGistDeadTupleData` in `access/spgist_private.h`;
//! `spgFormDeadTuple` in `access/spgist/spgutils.c`, `spgPageIndexMultiDelete` and `spgUpdateNodeLink` in
//! `access/spgist/spgdoinsert.c`.

use super::{at, count};
use crate::fields::Fields;
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{aligned, Page, Place};

/// Values of `tupstate`, the lowest bits of every tuple.
const REDIRECT: u32 = 1;
const DEAD: u32 = 2;
pub(super) const PLACEHOLDER: u32 = 3;
const STATE_MASK: u32 = 3;

/// Bytes of `SpGistLeafTupleData`.
const LEAF_HEADER: usize = 12;
/// Bytes before an inner tuple's prefix.
const INNER_HEADER: usize = 8;
/// `SGDTSIZE`.
const DEAD_SIZE: usize = 16;
/// Offset of `t_info`, until 13 `nextOffset`.
const INFO: usize = 4;
/// Offset of a dead tuple's `pointer`.
const POINTER: usize = 6;
/// Bits of `t_info` that are not the number of the next tuple, since 14.
const INFO_FLAGS: u16 = 0xC000;

/// The word a tuple begins with.
fn word(tuple: &[u8]) -> u32 {
    tuple.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn state(tuple: &[u8]) -> u32 {
    word(tuple) & STATE_MASK
}

/// The next leaf tuple of a list.
pub(super) fn next_leaf<'a>(from: &mut Fields<'a>) -> Result<&'a [u8]> {
    let size = word(from.rest()) as usize >> 2;
    if size < LEAF_HEADER {
        return Err(Misfit::new("SP-GiST leaf tuple", format_args!("at least {LEAF_HEADER} bytes"), size));
    }
    Ok(from.take("SP-GiST leaf tuple", size)?)
}

/// The next inner tuple of a list.
pub(super) fn next_inner<'a>(from: &mut Fields<'a>) -> Result<&'a [u8]> {
    let size = from.rest().get(4..6).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    if size < INNER_HEADER {
        return Err(Misfit::new("SP-GiST inner tuple", format_args!("at least {INNER_HEADER} bytes"), size));
    }
    Ok(from.take("SP-GiST inner tuple", size)?)
}

/// Chains a leaf tuple to another one of its page. `tuple` has at least [`itup::HEADER`] bytes.
pub(super) fn set_next(major: u8, tuple: &mut [u8], number: u16) {
    let info = u16::from_le_bytes([tuple[INFO], tuple[INFO + 1]]);
    let info = if major >= 14 { info & INFO_FLAGS | number & !INFO_FLAGS } else { number };
    tuple[INFO..INFO + 2].copy_from_slice(&info.to_le_bytes());
}

/// `spgUpdateNodeLink`: what a node of an inner tuple leads to.
pub(super) fn set_node(tuple: &mut [u8], node: u16, pointer: &[u8; itup::TID]) -> Result<()> {
    let nodes = word(tuple) >> 3 & 0x1FFF;
    if u32::from(node) >= nodes {
        return Err(Misfit::new("node of an SP-GiST tuple", format_args!("less than {nodes}"), node));
    }
    let mut start = INNER_HEADER + (word(tuple) >> 16) as usize;
    for _ in 0..node {
        let size = itup::size(tuple.get(start..).unwrap_or_default());
        start += size;
    }
    let Some(link) = tuple.get_mut(start..start + itup::TID) else {
        return Err(Misfit::new("node of an SP-GiST tuple", "one inside the tuple", start));
    };
    link.copy_from_slice(pointer);
    Ok(())
}

/// A tuple that only keeps a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadTuple {
    /// What was here is elsewhere now.
    Redirect { block: u32, number: u16, xid: u32 },
    /// Nothing is here, but something leads here.
    Dead,
    /// Nothing is here, and nothing leads here.
    Placeholder,
}

impl DeadTuple {
    /// `spgFormDeadTuple`.
    pub(super) fn tuple(self) -> [u8; DEAD_SIZE] {
        let (state, pointer, xid) = match self {
            DeadTuple::Redirect { block, number, xid } => (REDIRECT, itup::item_pointer(block, number), xid),
            DeadTuple::Dead => (DEAD, itup::item_pointer(u32::MAX, 0), 0),
            DeadTuple::Placeholder => (PLACEHOLDER, itup::item_pointer(u32::MAX, 0), 0),
        };
        let mut tuple = [0; DEAD_SIZE];
        tuple[..4].copy_from_slice(&(state | (DEAD_SIZE as u32) << 2).to_le_bytes());
        tuple[POINTER..POINTER + itup::TID].copy_from_slice(&pointer);
        tuple[POINTER + itup::TID..].copy_from_slice(&xid.to_le_bytes());
        tuple
    }

    /// Which counter of the page counts it: the tuples that are dead are not counted.
    pub(super) fn counter(self) -> usize {
        match self {
            DeadTuple::Redirect { .. } => at::REDIRECTIONS,
            _ => at::PLACEHOLDERS,
        }
    }
}

/// A tuple that led elsewhere becomes a placeholder; its transaction stays.
pub(super) fn clear_redirect(tuple: &mut [u8]) -> Result<()> {
    if state(tuple) != REDIRECT || tuple.len() < DEAD_SIZE {
        return Err(Misfit::new("SP-GiST tuple", "one that leads elsewhere", state(tuple)));
    }
    let cleared = word(tuple) & !STATE_MASK | PLACEHOLDER;
    tuple[..4].copy_from_slice(&cleared.to_le_bytes());
    tuple[POINTER..POINTER + itup::TID].copy_from_slice(&itup::item_pointer(u32::MAX, 0));
    Ok(())
}

/// `spgPageIndexMultiDelete`: tuples become dead ones at the same numbers; the first that is named may become another kind.
pub(super) fn delete(major: u8, page: &mut Page<'_>, numbers: &[u16], first: DeadTuple, rest: DeadTuple) -> Result<()> {
    let Some(first_number) = numbers.first() else {
        return Ok(());
    };
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    page.delete_index_items(major, &sorted)?;
    for number in &sorted {
        let dead = if number == first_number { first } else { rest };
        page.add_item(&dead.tuple(), Place::Insert(*number))?;
        if dead != DeadTuple::Dead {
            count(page, dead.counter(), 1)?;
        }
    }
    Ok(())
}

const _: () = assert!(aligned(DEAD_SIZE) == DEAD_SIZE && INNER_HEADER == itup::HEADER);
