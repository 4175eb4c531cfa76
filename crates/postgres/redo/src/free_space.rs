//! The free space map: how much room each heap page has, as one byte in the leaf of a tree.
//!
//! The map is not logged. The server's redo writes the byte of a heap page after some kinds of records and leaves the upper pages
//! alone; nothing relies on any of it. Who recovers a page to its end writes its [`category`] once.
//!
//! Source: `storage/freespace/{freespace,fsmpage}.c`, `storage/fsm_internals.h`.

use leadline_wal::rmgr::id;
use leadline_wal::Record;

use crate::page::{aligned, Page, HEADER};
use crate::{heap, heap2, Applied, Result};

/// `fp_next_slot` is before the nodes.
const NODES_AT: usize = HEADER + 4;

/// `NonLeafNodesPerPage`.
fn inner_nodes(page_size: usize) -> usize {
    page_size / 2 - 1
}

/// `NodesPerPage`.
fn nodes(page_size: usize) -> usize {
    page_size - NODES_AT
}

/// `SlotsPerFSMPage`.
pub fn slots_per_page(page_size: u32) -> u32 {
    (nodes(page_size as usize) - inner_nodes(page_size as usize)) as u32
}

/// Where the byte of a heap block is: the block of the map's fork, and the slot there.
pub fn leaf_of(page_size: u32, heap_block: u32) -> (u32, u32) {
    let slots = slots_per_page(page_size);
    // `FSM_TREE_DEPTH`: so many levels number all blocks there can be.
    let depth = if slots >= 1626 { 3 } else { 4 };
    let (leaf, slot) = (heap_block / slots, heap_block % slots);
    // Depth first: before this leaf are the leaves before it, and the inner pages that were begun.
    let (mut pages, mut before) = (0u32, leaf);
    for _ in 0..depth {
        pages = pages.saturating_add(before + 1);
        before /= slots;
    }
    (pages - 1, slot)
}

/// The page of the lowest level that a truncation to so many heap blocks cuts a part off.
pub(crate) fn cut_page(page_size: u32, heap_blocks: u32) -> Option<u32> {
    let (page, slot) = leaf_of(page_size, heap_blocks);
    (slot > 0).then_some(page)
}

/// The byte for a heap page (`fsm_space_avail_to_cat` of `PageGetHeapFreeSpace`); none when it is no page.
pub fn category(heap_page: &mut [u8]) -> Option<u8> {
    let page = Page::new(heap_page).ok()?;
    let (free, size) = (page.heap_free_space(), page.size());
    // `MaxFSMRequestSize`: an empty page has room for any row there can be.
    let largest = size - aligned(HEADER + 4);
    Some(if free >= largest { 255 } else { (free / (size / 256)).min(254) as u8 })
}

/// When the server's redo writes the category of a record's heap page (block 0), once it changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Whatever is left.
    Always,
    /// After inserts and updates to another page: only where less than a fifth of the page is left.
    NearlyFull,
    /// After other kinds of records.
    Never,
}

impl Recorded {
    /// What holds for this kind of record.
    #[inline]
    pub fn of(record: &Record<'_>) -> Recorded {
        match record.rmid {
            id::HEAP if heap::may_fill_a_page(record.info) => Recorded::NearlyFull,
            id::HEAP2 if heap2::frees_space(record) => Recorded::Always,
            id::HEAP2 if heap2::may_fill_a_page(record.info) => Recorded::NearlyFull,
            _ => Recorded::Never,
        }
    }

    /// Whether it is written for a page that looks like this now.
    pub fn holds(self, heap_page: &mut [u8]) -> bool {
        let size = heap_page.len();
        match self {
            Recorded::Always => true,
            Recorded::NearlyFull => Page::new(heap_page).is_ok_and(|page| page.heap_free_space() < size / 5),
            Recorded::Never => false,
        }
    }
}

/// Writes a category into its slot and up the tree of the page (`fsm_set_avail`); gives whether anything changed.
///
/// # Errors
/// The bytes are no page.
pub fn set(fsm_page: &mut [u8], slot: u32, category: u8) -> Result<bool> {
    let mut page = Page::new(fsm_page)?;
    if page.is_new() {
        page.init(0)?;
    }
    let size = page.size();
    let inner = inner_nodes(size);
    let tree = &mut page.bytes_mut()[NODES_AT..];
    let leaf = inner + slot as usize;
    let Some(old) = tree.get(leaf).copied() else { return Ok(false) };
    if old == category && category <= tree[0] {
        return Ok(false);
    }
    tree[leaf] = category;
    let mut node = leaf;
    while node > 0 {
        node = (node - 1) / 2;
        let highest = highest_child(tree, node);
        if tree[node] == highest {
            break;
        }
        tree[node] = highest;
    }
    if category > tree[0] {
        rebuild(tree, inner);
    }
    Ok(true)
}

fn highest_child(tree: &[u8], node: usize) -> u8 {
    let child = |n: usize| tree.get(n).copied().unwrap_or(0);
    child(2 * node + 1).max(child(2 * node + 2))
}

/// `fsm_rebuild_page`.
fn rebuild(tree: &mut [u8], inner: usize) {
    for node in (0..inner).rev() {
        tree[node] = highest_child(tree, node);
    }
}

/// `fsm_truncate_avail`: the slots of heap blocks that are cut off become zero.
pub(crate) fn truncate(page: &mut Page<'_>, heap_blocks: u32) -> Result<Applied> {
    let size = page.size();
    if page.is_new() {
        return Ok(Applied::Unchanged);
    }
    let inner = inner_nodes(size);
    let (_, slot) = leaf_of(size as u32, heap_blocks);
    let tree = &mut page.bytes_mut()[NODES_AT..];
    let cut = &mut tree[inner + slot as usize..];
    if cut.iter().all(|byte| *byte == 0) {
        return Ok(Applied::Unchanged);
    }
    cut.fill(0);
    rebuild(tree, inner);
    Ok(Applied::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_numbered_depth_first() {
        // 4069 slots: the third page is the first leaf, the root and the page below it come before.
        assert_eq!(slots_per_page(8192), 4069);
        assert_eq!((leaf_of(8192, 0), leaf_of(8192, 4068), leaf_of(8192, 4069)), ((2, 0), (2, 4068), (3, 0)));
        assert_eq!(leaf_of(8192, 4069 * 4069), (4069 + 3, 0));
        assert!(leaf_of(8192, u32::MAX).0 > 0 && leaf_of(1024, u32::MAX).0 > 0);
    }

    #[test]
    fn a_slot_is_seen_at_the_root() {
        let mut page = vec![0; 8192];
        assert_eq!(set(&mut page, 17, 200), Ok(true));
        assert_eq!((page[NODES_AT], set(&mut page, 17, 200)), (200, Ok(false)));
        assert_eq!((set(&mut page, 4000, 40), page[NODES_AT]), (Ok(true), 200));
        let mut view = Page::new(&mut page).unwrap();
        assert_eq!(truncate(&mut view, 17), Ok(Applied::Changed));
        assert!(page[NODES_AT..].iter().all(|byte| *byte == 0));
    }
}
