//! The first page of a btree: where its root is.

use leadline_errors::Result;
use leadline_page::postgres::btree::BTREE_MAGIC;
use leadline_page::postgres::Kind;

use super::found::{AllFound, Found};
use crate::blocks::{Blocks, Settled};

/// What it says.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub(crate) struct Meta {
    pub version: u32,
    pub root: u32,
    pub level: u32,
    pub fast_root: u32,
    pub fast_level: u32,
    /// Equal keys are stored identically, so that they may be put together.
    pub allows_posting: bool,
    /// It is of the moment that settled pages are of.
    pub is_settled: bool,
}

const MEANS: &str = "every index scan fails or returns no rows";

impl Meta {
    /// None when it is not there or is no meta page.
    pub(super) fn read(blocks: &mut Blocks, found: &mut AllFound) -> Result<Option<Meta>> {
        let is_all = blocks.settled() == Settled::All;
        let Some(page) = blocks.read(0)? else {
            if is_all {
                let message = "the index has no meta page; expected one in block 0".to_owned();
                found.push(Found::new("meta", 0, message, MEANS));
            }
            return Ok(None);
        };
        let word =
            |i: usize| page.bytes.get(24 + 4 * i..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        if page.kind != Kind::BtreeMeta || word(0) != BTREE_MAGIC || !(2..=4).contains(&word(1)) {
            if page.is_settled {
                let message = if page.kind == Kind::BtreeMeta {
                    format!("version of the btree is {}; expected 2 to 4", word(1))
                } else {
                    format!("expected the meta page of a btree, found a page of the kind \"{}\"", page.kind.as_str())
                };
                found.push(Found::new("meta", 0, message, MEANS));
            }
            return Ok(None);
        }
        // Behind the counts of VACUUM: since 13, in what was padding before.
        let allows_posting = page.bytes.get(24 + 40) == Some(&1);
        Ok(Some(Meta {
            version: word(1),
            root: word(2),
            level: word(3),
            fast_root: word(4),
            fast_level: word(5),
            allows_posting,
            is_settled: page.is_settled,
        }))
    }
}
