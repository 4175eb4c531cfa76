//! Pages of the visibility map and of the free space map. Nothing in such a page says what it is: its file's name does.
//!
//! Source: src/backend/access/heap/visibilitymap.c; src/include/storage/fsm_internals.h.

use leadline_bytes::Endian;

use super::header::SIZE as HEADER;
use crate::part::{FieldKind, Part, Value, Wrong};
use crate::reader::Reader;

const BLOCKS_PER_BYTE: u64 = 4;
const ALL_VISIBLE: u8 = 1;
const ALL_FROZEN: u8 = 2;
/// A free space map's number of full leaves is that of a byte's values: 255 stands for most of a page.
const CATEGORIES: usize = 256;

/// Two bits for each block of the table. `block` is that of the map.
pub(super) fn visibility(page: &[u8], block: u32) -> (Part, Option<Wrong>) {
    let mut r = Reader::new(page, Endian::Little, "map", FieldKind::Data, HEADER, page.len());
    let len = r.left();
    let outcome = r.bytes("bits", len).map(|bits| {
        let count = |bit: u8| bits.iter().map(|b| (0..4).filter(|i| b >> (2 * i) & bit != 0).count() as u64).sum();
        r.derived("first_heap_block", Value::Number(u64::from(block) * len as u64 * BLOCKS_PER_BYTE));
        r.derived("all_visible", Value::Number(count(ALL_VISIBLE))).words("blocks of the table");
        r.derived("all_frozen", Value::Number(count(ALL_FROZEN))).words("blocks of the table");
    });
    (r.finish(), outcome.err())
}

/// A binary tree of bytes, each parent the larger of its children.
pub(super) fn free_space(page: &[u8]) -> (Part, Option<Wrong>) {
    let mut r = Reader::new(page, Endian::Little, "map", FieldKind::Data, HEADER, page.len());
    let outcome = r.i32("fp_next_slot").and_then(|_| {
        let len = r.left();
        let nodes = r.bytes("fp_nodes", len)?;
        let root = usize::from(nodes.first().copied().unwrap_or(0));
        r.derived("most_free", Value::Number((root * page.len() / CATEGORIES) as u64)).words("bytes, at least");
        Ok(())
    });
    (r.finish(), outcome.err())
}
