//! Which records are wanted.

use crate::describe::outcome;
use crate::record::{Block, Record};
use crate::rmgr;
use leadline_datadir::RelFile as Relation;

/// What a record must have; an empty filter wants all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// Transaction: that of the record, or the prepared one that the record ends.
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
        self.xid.is_none_or(|x| x == record.xid || ends(record, x))
            && self.rmid.is_none_or(|r| r == record.rmid)
            && (!self.names_block() || record.blocks.iter().any(|b| self.wants_block(b)))
    }

    fn names_block(&self) -> bool {
        self.spc.is_some() || self.db.is_some() || self.rel.is_some() || self.fork.is_some() || self.block.is_some()
    }

    /// Whether a block is one of those it asks for.
    pub fn wants_block(&self, b: &Block) -> bool {
        self.wants_relation(b.relation)
            && self.fork.is_none_or(|f| f == b.fork)
            && self.block.is_none_or(|n| n == b.block)
    }

    /// Whether what it asks for goes when the main fork of a relation is cut off after so many blocks.
    pub(crate) fn loses(&self, relation: Relation, blocks: u32) -> bool {
        self.wants_relation(relation) && self.fork.is_none_or(|f| f == 0) && self.block.is_none_or(|n| n >= blocks)
    }

    fn wants_relation(&self, relation: Relation) -> bool {
        self.spc.is_none_or(|s| s == relation.spc)
            && self.db.is_none_or(|d| d == relation.db)
            && self.rel.is_none_or(|r| r == relation.rel)
    }
}

/// Whether a record ends this prepared transaction: it is written by a session that has none.
fn ends(record: &Record<'_>, xid: u32) -> bool {
    record.rmid == rmgr::id::XACT && record.xid == 0 && xid != 0 && outcome(record).is_some_and(|o| o.xid == xid)
}
