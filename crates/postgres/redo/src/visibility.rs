//! The visibility map: two bits for each heap block, all-visible and all-frozen.
//!
//! Source: `access/heap/visibilitymap.c`.

use crate::misfit::Result;
use crate::page::{Page, HEADER};
use crate::Applied;

/// `VISIBILITYMAP_ALL_FROZEN`.
pub(crate) const ALL_FROZEN: u8 = 0x02;
/// `VISIBILITYMAP_VALID_BITS`.
pub(crate) const VALID_BITS: u8 = 0x03;

/// Heap blocks that a page of the map has bits for.
pub fn blocks_per_page(page_size: u32) -> u32 {
    (page_size - HEADER as u32) * 4
}

/// The page of the map's fork that has the bits of a heap block.
pub fn page_of(page_size: u32, heap_block: u32) -> u32 {
    heap_block / blocks_per_page(page_size)
}

/// The byte on the page and the first of the two bits.
fn bits_of(page: &Page<'_>, heap_block: u32) -> (usize, u32) {
    let within = heap_block % blocks_per_page(page.size() as u32);
    (HEADER + (within / 4) as usize, within % 4 * 2)
}

/// `visibilitymap_clear`: no LSN is heeded or set.
///
/// A page that was never written has no bits to clear. Up to 15 the server adds it to the file as an empty page all the same, so that
/// it does not stay zeros; that is the caller's to do, who knows how long the file is.
pub(crate) fn clear(page: &mut Page<'_>, heap_block: u32, bits: u8) -> Result<Applied> {
    if page.is_new() {
        return Ok(Applied::Unchanged);
    }
    let (at, shift) = bits_of(page, heap_block);
    let byte = &mut page.bytes_mut()[at];
    let mask = (bits & VALID_BITS) << shift;
    if *byte & mask == 0 {
        return Ok(Applied::Unchanged);
    }
    *byte &= !mask;
    Ok(Applied::Changed)
}

/// `visibilitymap_set` in redo; gives whether the bits were not there yet.
pub(crate) fn set(page: &mut Page<'_>, heap_block: u32, bits: u8) -> Result<bool> {
    if bits & VALID_BITS == 0 && page.is_new() {
        return Ok(false);
    }
    if page.is_new() {
        page.init(0)?;
    }
    let (at, shift) = bits_of(page, heap_block);
    let byte = &mut page.bytes_mut()[at];
    if bits & VALID_BITS == *byte >> shift & VALID_BITS {
        return Ok(false);
    }
    *byte |= (bits & VALID_BITS) << shift;
    Ok(true)
}

/// `visibilitymap_prepare_truncate`: the bits from this heap block on are cleared.
pub(crate) fn truncate(page: &mut Page<'_>, heap_blocks: u32) -> Result<Applied> {
    if page.is_new() {
        // The server fills the page's header as it reads it, and writes it.
        page.init(0)?;
        return Ok(Applied::Changed);
    }
    let (at, shift) = bits_of(page, heap_blocks);
    let bytes = page.bytes_mut();
    bytes[at] &= (1u8 << shift) - 1;
    bytes[at + 1..].fill(0);
    Ok(Applied::Changed)
}
