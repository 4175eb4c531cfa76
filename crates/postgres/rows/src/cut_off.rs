//! Blocks that a relation had and its file has not any more: its maps and its row of `pg_class` still know of them.
//!
//! Who makes a relation shorter cuts its maps as well, and counts its pages anew. So only a server that ended in order can be taken at
//! its word: a crash leaves the three of them at different moments.
//!
//! Source: src/backend/access/heap/visibilitymap.c; src/backend/storage/freespace/freespace.c, src/include/storage/fsm_internals.h.

use std::path::PathBuf;

use leadline_page::postgres::header::SIZE as HEADER;
use leadline_page::postgres::{is_new, Fork, Header};
use leadline_pagescan::check_fast;

use crate::heap_file::HeapFile;
use leadline_datadir::DataDir;

/// Heap blocks of a byte of the visibility map, which has two bits for each.
const PER_BYTE: u32 = 4;

/// What is missing at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutOff {
    /// How many blocks, at least.
    pub blocks: u32,
    /// What knows of them.
    pub by: &'static str,
}

impl CutOff {
    /// `counted`: the blocks there were at the last count.
    pub(crate) fn of(dir: &DataDir, heap: &HeapFile, counted: u32) -> CutOff {
        let known = [
            (counted, "its last count (pg_class.relpages)"),
            (visible(dir, heap), "its visibility map (at least so many)"),
            (with_room(dir, heap), "its free space map (at least so many)"),
        ];
        let most = known.into_iter().rev().max_by_key(|(blocks, _)| *blocks);
        let (end, by) = most.filter(|(end, _)| *end > heap.blocks).unwrap_or_default();
        CutOff { blocks: end.saturating_sub(heap.blocks), by }
    }
}

/// Behind the last block that the visibility map knows as one of rows, if it is behind the file.
fn visible(dir: &DataDir, heap: &HeapFile) -> u32 {
    let mut map = map(dir, heap, "_vm");
    let per_page = (dir.block_size - HEADER) as u32 * PER_BYTE;
    let mut end = 0;
    for page in heap.blocks / per_page..map.blocks.min(u32::MAX / per_page) {
        let Some(bytes) = read(dir, &mut map, page, Fork::Vm) else { continue };
        let first = page * per_page; // of what it knows
        if let Some(at) = bytes[HEADER..].iter().rposition(|byte| *byte != 0) {
            let last = (7 - bytes[HEADER + at].leading_zeros()) / 2;
            end = first.saturating_add(at as u32 * PER_BYTE + last + 1);
        }
    }
    end
}

/// The same of the free space map, of blocks that have room. Its lowest pages have a byte for each block, behind those of a tree.
fn with_room(dir: &DataDir, heap: &HeapFile) -> u32 {
    let mut map = map(dir, heap, "_fsm");
    let slots_at = HEADER + 4 + dir.block_size / 2 - 1;
    let slots = (dir.block_size - slots_at) as u32;
    let mut end = 0;
    for leaf in heap.blocks / slots..u32::MAX / slots {
        let page = place_of_leaf(leaf, slots);
        if page >= map.blocks {
            break;
        }
        let Some(bytes) = read(dir, &mut map, page, Fork::Fsm) else { continue };
        if let Some(at) = bytes[slots_at..].iter().rposition(|byte| *byte != 0) {
            end = leaf.saturating_mul(slots).saturating_add(at as u32 + 1);
        }
    }
    end
}

/// Where a page of the lowest level is: behind those of it that are before it, and the inner pages that were begun.
fn place_of_leaf(leaf: u32, slots: u32) -> u32 {
    let depth = if slots >= 1626 { 3 } else { 4 };
    let (mut pages, mut before) = (0u32, leaf);
    for _ in 0..depth {
        pages = pages.saturating_add(before + 1);
        before /= slots;
    }
    pages - 1
}

/// A map's file, without blocks where there is none.
fn map(dir: &DataDir, heap: &HeapFile, suffix: &str) -> HeapFile {
    let mut path = heap.path.clone().into_os_string();
    path.push(suffix);
    let path = PathBuf::from(path);
    HeapFile::open(dir, path.clone(), &[].into()).unwrap_or_else(|_| HeapFile::absent(dir, path))
}

/// A page of a map, unless it is damaged.
fn read(dir: &DataDir, map: &mut HeapFile, block: u32, fork: Fork) -> Option<Vec<u8>> {
    let mut page = vec![0; dir.block_size];
    let whole = matches!(map.read(block, &mut page), Ok(1));
    let header = Header::parse(&page).filter(|header| whole && !is_new(&page, header))?;
    let is_sound = header.wrong(page.len()).is_none();
    let verdict = check_fast(&page, fork, dir.checksums.then_some(block));
    (is_sound && verdict.wrong.is_empty()).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_of_a_free_space_map_are_behind_its_inner_pages() {
        assert_eq!([0, 1, 4068, 4069].map(|leaf| place_of_leaf(leaf, 4069)), [2, 3, 4070, 4072]);
        // Pages of 1 kB have a level more.
        assert_eq!(place_of_leaf(0, 485), 3);
    }
}
