//! The pages a record changes: those it names, and those it does not.
//!
//! Until the minors of July 2026 no record named the page of the visibility map whose bits its redo clears, and the record of a
//! truncation still names none of the map pages it cuts a part off.

use leadline_datadir::BlockId;
use leadline_wal::rmgr::id;
use leadline_wal::Record;

use crate::target::{fork, Part, Target};
use crate::{free_space, heap, heap2, rule, visibility, Context};

/// Every page the record changes. A page of the visibility map may come twice, for two heap blocks.
pub fn targets(context: &Context, record: &Record<'_>, mut target: impl FnMut(Target)) {
    for block in record.blocks {
        let page = BlockId { relation: block.relation, fork: block.fork.into(), block: block.block };
        target(Target { page, part: Part::Block(block.id) });
    }
    match record.rmid {
        id::HEAP | id::HEAP2 => cleared_maps(context, record, &mut target),
        id::SMGR => truncated_maps(context, record, &mut target),
        _ => {}
    }
}

/// The pages of the map that a record of a heap changes without naming them.
fn cleared_maps(context: &Context, record: &Record<'_>, target: &mut impl FnMut(Target)) {
    // Since July 2026 minors of 17 and later name the page; then it is a block like any other.
    if record.blocks.iter().any(|block| block.fork == fork::VISIBILITY) {
        return;
    }
    let mut put = |id: u8, bits: u8| {
        let Some(block) = record.block(id) else { return };
        let map = visibility::page_of(context.block_size, block.block);
        let page = BlockId { relation: block.relation, fork: fork::VISIBILITY.into(), block: map };
        target(Target { page, part: Part::ClearVisible { heap_block: block.block, bits } });
    };
    match record.rmid {
        id::HEAP => heap::cleared_visibility(record, &mut put),
        _ => heap2::cleared_visibility(record, &mut put),
    }
}

/// `XLOG_SMGR_TRUNCATE`: what `visibilitymap_prepare_truncate` and `FreeSpaceMapPrepareTruncateRel` do to the last pages left.
fn truncated_maps(context: &Context, record: &Record<'_>, target: &mut impl FnMut(Target)) {
    const TRUNCATE: u8 = 0x20;
    if record.info & 0xF0 != TRUNCATE {
        return;
    }
    let Some(truncation) = rule::truncation(record) else { return };
    let mut put = |fork: u8, block, part| {
        target(Target { page: BlockId { relation: truncation.relation, fork: fork.into(), block }, part });
    };
    let heap_blocks = truncation.blocks;
    if truncation.has_visibility_map() && heap_blocks % visibility::blocks_per_page(context.block_size) != 0 {
        let page = visibility::page_of(context.block_size, heap_blocks);
        put(fork::VISIBILITY, page, Part::TruncateVisible { heap_blocks });
    }
    if truncation.has_free_space_map() {
        if let Some(page) = free_space::cut_page(context.block_size, heap_blocks) {
            put(fork::FREE_SPACE, page, Part::TruncateFreeSpace { heap_blocks });
        }
    }
}
