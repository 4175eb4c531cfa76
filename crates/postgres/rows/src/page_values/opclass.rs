//! What the operator classes of SP-GiST and BRIN keep in an index.
//!
//! To the server their first support function says it, which cannot be called here: those that come with the server are known
//! by their oids (src/include/catalog/pg_proc.dat), others are not.

use crate::catalog::{number, oids, Catalog};
use leadline_errors::Result;

/// `pg_am` has the same oids in each major.
pub(super) const SPGIST: u32 = 4000;
pub(super) const BRIN: u32 = 3580;

const PG_INDEX: u32 = 2610;

pub(super) const BOOL: u32 = 16;
const INT2: u32 = 21;
const TEXT: u32 = 25;
const POINT: u32 = 600;
const BOX: u32 = 603;
const CIDR: u32 = 650;
const FLOAT8: u32 = 701;
/// A range of any type; its first bytes say of which.
pub(super) const ANYRANGE: u32 = 3831;
pub(super) const BLOOM_SUMMARY: u32 = 4600;
pub(super) const MINMAX_MULTI_SUMMARY: u32 = 4601;

/// What an SP-GiST index keeps besides its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tree {
    /// Type of the prefix of an inner tuple.
    pub prefix: u32,
    /// Type of the labels of its nodes.
    pub label: Option<u32>,
    /// Leaves have only what the way to them does not say.
    pub ends: bool,
}

impl Tree {
    const fn of(prefix: u32) -> Tree {
        Tree { prefix, label: None, ends: false }
    }
}

/// What a BRIN index keeps of the values of a column in each range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Summary {
    Minmax,
    Inclusion,
    Bloom,
    MinmaxMulti,
}

/// By function `config`: spg_quad, spg_kd, spg_text, spg_range_quad, inet_spg, spg_bbox_quad, spg_box_quad.
pub(super) fn tree(config: u32) -> Option<Tree> {
    Some(match config {
        4018 => Tree::of(POINT),
        4023 => Tree::of(FLOAT8),
        4027 => Tree { prefix: TEXT, label: Some(INT2), ends: true },
        3469 => Tree::of(ANYRANGE),
        3795 => Tree::of(CIDR),
        5010 | 5012 => Tree::of(BOX),
        _ => return None,
    })
}

/// By function `opcinfo`.
pub(super) fn summary(opcinfo: u32) -> Option<Summary> {
    Some(match opcinfo {
        3383 => Summary::Minmax,
        4105 => Summary::Inclusion,
        4591 => Summary::Bloom,
        4616 => Summary::MinmaxMulti,
        _ => return None,
    })
}

/// The first support function of the operator class of each key column of an index; 0 where the catalog has none.
pub(super) fn first_functions(catalog: &mut Catalog, index: u32) -> Result<Vec<u32>> {
    let indexes = catalog.rows(PG_INDEX, &["indexrelid", "indclass"])?;
    let classes = indexes.iter().find(|row| number(&row[0]) == index).map_or_else(Vec::new, |row| oids(&row[1]));
    let functions = catalog.support_functions(1)?;
    Ok(classes.iter().map(|class| functions.get(class).copied().unwrap_or(0)).collect())
}
