//! Which records are wanted.

use crate::record::{Block, Record};

/// What a record must have; an empty filter wants all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// Transaction.
    pub xid: Option<u32>,
    /// Resource manager.
    pub rmid: Option<u8>,
    /// Of one of its blocks: tablespace, database, file number.
    pub spc: Option<u32>,
    /// Database of that block.
    pub db: Option<u32>,
    /// File number of that block.
    pub rel: Option<u32>,
    /// Fork of that block.
    pub fork: Option<u8>,
    /// Its number.
    pub block: Option<u32>,
}

impl Filter {
    /// Whether it leaves anything out.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// Whether a record is wanted.
    #[inline]
    pub fn wants(&self, record: &Record<'_>) -> bool {
        self.xid.is_none_or(|x| x == record.xid)
            && self.rmid.is_none_or(|r| r == record.rmid)
            && (!self.names_block() || record.blocks.iter().any(|b| self.wants_block(b)))
    }

    fn names_block(&self) -> bool {
        self.spc.is_some() || self.db.is_some() || self.rel.is_some() || self.fork.is_some() || self.block.is_some()
    }

    /// Whether a block is one of those it asks for.
    pub fn wants_block(&self, b: &Block) -> bool {
        self.spc.is_none_or(|s| s == b.relation.spc)
            && self.db.is_none_or(|d| d == b.relation.db)
            && self.rel.is_none_or(|r| r == b.relation.rel)
            && self.fork.is_none_or(|f| f == b.fork)
            && self.block.is_none_or(|n| n == b.block)
    }
}
