//! What is known of a btree before its pages are read.

use super::keys::Keys;
use crate::blocks::Settled;

/// What is known of an index before its pages are read.
#[derive(Debug)]
pub(crate) struct About {
    pub keys: Keys,
    /// None: the meta page does not tell.
    pub version: Option<u32>,
    /// The meta page says whether equal keys may be put together.
    pub allows_posting: Option<bool>,
    pub blocks: u32,
    /// Blocks of the table, where the files tell.
    pub heap_blocks: Option<u32>,
    /// Most rows of a block of the table.
    pub most_rows: u16,
    pub settled: Settled,
    pub keeps_rows: bool,
    /// It is unique; and whether its nulls are equal to each other.
    pub unique: Option<bool>,
}
