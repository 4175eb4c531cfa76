//! The pages a record changes: those it names, and those it does not.
//!
//! Until the minors of July 2026 no record named the page of the visibility map whose bits its redo clears, and the record of a
//! truncation still names none of the map pages it cuts a part off.

use leadline_datadir::BlockId;
use leadline_wal::rmgr::id;
use leadline_wal::Record;

use crate::{free_space, visibility, Context};

/// Forks by number.
pub(crate) mod fork {
    pub(crate) const MAIN: u8 = 0;
    pub(crate) const FREE_SPACE: u8 = 1;
    pub(crate) const VISIBILITY: u8 = 2;
}

/// One page and what the record has to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// The page.
    pub page: BlockId,
    /// Why it changes.
    pub part: Part,
}

/// Why a page changes. Only a block of the record heeds and sets the page's LSN; the others are done always and leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The record names it by this block id.
    Block(u8),
    /// A page of the visibility map: the bits of one heap block are cleared.
    ClearVisible {
        /// The block in the heap.
        heap_block: u32,
        /// 1 all-visible, 2 all-frozen.
        bits: u8,
    },
    /// The last page of the visibility map that a truncation leaves: the bits from this heap block on are cleared.
    TruncateVisible {
        /// Heap blocks that are left.
        heap_blocks: u32,
    },
    /// The page of the free space map's lowest level, likewise. Nothing the server relies on.
    TruncateFreeSpace {
        /// Heap blocks that are left.
        heap_blocks: u32,
    },
}

/// Every page the record changes. A page of the visibility map may come twice, for two heap blocks.
pub fn targets(context: &Context, record: &Record<'_>, mut target: impl FnMut(Target)) {
    for block in record.blocks {
        let page = BlockId { relation: block.relation, fork: block.fork.into(), block: block.block };
        target(Target { page, part: Part::Block(block.id) });
    }
    match record.rmid {
        id::HEAP | id::HEAP2 => visibility::clears(context, record, &mut target),
        id::SMGR => truncated_maps(context, record, &mut target),
        _ => {}
    }
}

/// `XLOG_SMGR_TRUNCATE`: what `visibilitymap_prepare_truncate` and `FreeSpaceMapPrepareTruncateRel` do to the last pages left.
fn truncated_maps(context: &Context, record: &Record<'_>, target: &mut impl FnMut(Target)) {
    const TRUNCATE: u8 = 0x20;
    if record.info & 0xF0 != TRUNCATE {
        return;
    }
    let Some(truncation) = crate::rule::truncation(record) else { return };
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
