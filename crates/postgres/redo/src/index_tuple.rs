//! An index tuple: what B-tree, hash, GIN and GiST put on their pages.
//!
//! Source: `IndexTupleData` in `access/itup.h`, `ItemPointerData` in `storage/itemptr.h`.

use std::ops::Range;

use crate::fields::Fields;
use crate::misfit::{Misfit, Result};
use crate::page::{aligned, Page};

/// Bytes before the key: `t_tid`, `t_info`.
pub(crate) const HEADER: usize = 8;
/// Bytes of an `ItemPointerData`.
pub(crate) const TID: usize = 6;
/// Offset of `t_info`.
const INFO: usize = 6;
/// The size in `t_info`, `INDEX_SIZE_MASK`.
pub(crate) const SIZE_MASK: u16 = 0x1FFF;

/// Two bytes of a tuple; 0 where there are none.
#[inline]
fn u16_at(tuple: &[u8], at: usize) -> u16 {
    tuple.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// `t_info`.
#[inline]
pub(crate) fn info(tuple: &[u8]) -> u16 {
    u16_at(tuple, INFO)
}

/// Sets `t_info`. The tuple has at least [`HEADER`] bytes.
#[inline]
pub(crate) fn set_info(tuple: &mut [u8], info: u16) {
    tuple[INFO..HEADER].copy_from_slice(&info.to_le_bytes());
}

/// `IndexTupleSize`: how long the tuple says it is.
#[inline]
pub(crate) fn size(tuple: &[u8]) -> usize {
    usize::from(info(tuple) & SIZE_MASK)
}

/// The block number of the item pointer a tuple begins with.
#[inline]
pub(crate) fn block(tuple: &[u8]) -> u32 {
    u32::from(u16_at(tuple, 0)) << 16 | u32::from(u16_at(tuple, 2))
}

/// The offset number of the item pointer a tuple begins with.
#[inline]
pub(crate) fn offset(tuple: &[u8]) -> u16 {
    u16_at(tuple, 4)
}

/// A block number as it is stored where there is no alignment (`BlockIdData`): the high half first.
#[inline]
pub(crate) fn block_id(block: u32) -> [u8; 4] {
    let (high, low) = (((block >> 16) as u16).to_le_bytes(), (block as u16).to_le_bytes());
    [high[0], high[1], low[0], low[1]]
}

/// An item pointer as it is stored.
#[inline]
pub(crate) fn item_pointer(block: u32, offset: u16) -> [u8; TID] {
    let (block, offset) = (block_id(block), offset.to_le_bytes());
    [block[0], block[1], block[2], block[3], offset[0], offset[1]]
}

/// `BlockIdGetBlockNumber` of what comes next.
#[inline]
pub(crate) fn read_block_id(from: &mut Fields<'_>, what: &'static str) -> Result<u32> {
    Ok(u32::from(from.u16(what)?) << 16 | u32::from(from.u16(what)?))
}

/// The next tuple of a list.
#[inline]
pub(crate) fn next<'a>(from: &mut Fields<'a>) -> Result<&'a [u8]> {
    let length = size(from.rest());
    check_size(length)?;
    Ok(from.take("index tuple", length)?)
}

/// The next tuple of a list whose tuples are padded to a multiple of eight bytes, with the padding.
#[inline]
pub(crate) fn next_aligned<'a>(from: &mut Fields<'a>) -> Result<&'a [u8]> {
    let length = aligned(size(from.rest()));
    check_size(length)?;
    Ok(from.take("index tuple", length)?)
}

/// A tuple that is shorter than its header would let a list have no end.
#[inline]
fn check_size(length: usize) -> Result<()> {
    if length < HEADER {
        return Err(Misfit::new("index tuple", format_args!("at least {HEADER} bytes"), length));
    }
    Ok(())
}

/// `PageGetItem` of an index page, where a line pointer that is marked dead still has its item.
#[inline]
pub(crate) fn range(page: &Page<'_>, number: u16) -> Result<Range<usize>> {
    let range = page.storage(page.line_pointer(number)?)?;
    check_size(range.len())?;
    Ok(range)
}

/// The bytes of such an item.
#[inline]
pub(crate) fn item<'p>(page: &'p Page<'_>, number: u16) -> Result<&'p [u8]> {
    Ok(&page.bytes()[range(page, number)?])
}

/// The bytes of such an item, to change.
#[inline]
pub(crate) fn item_mut<'p>(page: &'p mut Page<'_>, number: u16) -> Result<&'p mut [u8]> {
    let range = range(page, number)?;
    Ok(&mut page.bytes_mut()[range])
}

/// Offset numbers to the end of the data.
pub(crate) fn numbers(from: Fields<'_>) -> Vec<u16> {
    from.rest().chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}
