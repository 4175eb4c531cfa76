//! A page that a record changes, and why.

use leadline_datadir::BlockId;

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
