//! A tuple of a btree: a pivot, which tells pages apart, or rows with their key.
//!
//! Source: src/include/access/nbtree.h.

use leadline_page::postgres::index_tuple::{IndexTuple, INDEX_AM_RESERVED_BIT, INDEX_NULL_MASK, SIZE};
use leadline_page::Tid;

const BT_OFFSET_MASK: u16 = 0x0fff;
const BT_PIVOT_HEAP_TID_ATTR: u16 = 0x1000;
const BT_IS_POSTING: u16 = 0x2000;
/// Bytes of a row's number.
const TID: usize = 6;

/// What a tuple says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One row.
    Plain,
    /// So many columns, and whether a row's number follows them.
    Pivot(usize, bool),
    /// So many rows.
    Posting(usize),
}

/// A tuple, taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuple<'a> {
    pub form: Form,
    /// Block of the child, of the row, or the place of the row numbers.
    pub t_tid: Tid,
    pub bitmap: Option<&'a [u8]>,
    /// The key.
    pub data: &'a [u8],
    item: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// None when its parts do not fit into it.
    #[inline]
    pub(crate) fn parse(item: &'a [u8]) -> Option<Tuple<'a>> {
        let IndexTuple { t_tid, t_info } = IndexTuple::parse(item)?;
        let (form, end) = if t_info & INDEX_AM_RESERVED_BIT == 0 {
            (Form::Plain, item.len())
        } else if t_tid.posid & BT_IS_POSTING != 0 {
            (Form::Posting(usize::from(t_tid.posid & BT_OFFSET_MASK)), t_tid.block as usize)
        } else {
            let has_tid = t_tid.posid & BT_PIVOT_HEAP_TID_ATTR != 0;
            let end = if has_tid { item.len().checked_sub(SIZE)? } else { item.len() };
            (Form::Pivot(usize::from(t_tid.posid & BT_OFFSET_MASK), has_tid), end)
        };
        let has_nulls = t_info & INDEX_NULL_MASK != 0;
        let start = if has_nulls { 2 * SIZE } else { SIZE };
        let data = item.get(start..end)?;
        let bitmap = if has_nulls { item.get(SIZE..SIZE + 4) } else { None };
        if let Form::Posting(count) = form {
            item.get(end..end.checked_add(TID * count)?)?;
        }
        Some(Tuple { form, t_tid, bitmap, data, item })
    }

    /// How many columns there are, of an index of `natts`.
    #[inline]
    pub(crate) fn natts(&self, natts: usize) -> usize {
        match self.form {
            Form::Pivot(there, _) => there,
            _ => natts,
        }
    }

    /// The row, the first one of several, or the one that stands behind the columns of a pivot.
    #[inline]
    pub(crate) fn first_tid(&self) -> Option<Tid> {
        match self.form {
            Form::Plain => Some(self.t_tid),
            Form::Posting(_) => self.tids().next(),
            Form::Pivot(_, true) => self.item.last_chunk::<TID>().map(|b| Tid::parse(*b)),
            Form::Pivot(_, false) => None,
        }
    }

    /// The same, the last one of several.
    #[inline]
    pub(crate) fn last_tid(&self) -> Option<Tid> {
        match self.form {
            Form::Posting(_) => self.tids().next_back(),
            _ => self.first_tid(),
        }
    }

    /// The rows of a tuple of a leaf.
    #[inline]
    pub(crate) fn tids(&self) -> impl DoubleEndedIterator<Item = Tid> + 'a {
        let bytes = match self.form {
            Form::Posting(count) => {
                let at = self.t_tid.block as usize;
                self.item.get(at..at.saturating_add(TID * count)).unwrap_or_default()
            }
            Form::Plain => self.item.get(..TID).unwrap_or_default(),
            Form::Pivot(..) => &[],
        };
        bytes.chunks_exact(TID).map(|b| Tid::parse([b[0], b[1], b[2], b[3], b[4], b[5]]))
    }

    /// A number for its key as a pivot: a separator and the high key it is a copy of have the same one. `with_natts`: since version 4 the
    /// number of columns and a row's number are part of it (verify_nbtree.c, `bt_pivot_tuple_identical`).
    pub(crate) fn pivot_hash(&self, with_natts: bool) -> u32 {
        let (start, posid) = if with_natts { (4, 0) } else { (6, 1) };
        let hash = hash_bytes(posid, self.item.get(start..).unwrap_or_default());
        // 0 stands for none.
        ((hash >> 32) as u32).max(1)
    }
}

/// A number for some bytes that differs, as a rule, when they do.
#[inline]
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ 0x9e37_79b9_7f4a_7c15 ^ (bytes.len() as u64) << 32;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        hash = hash_word(hash, chunk.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)));
    }
    let rest = chunks.remainder().iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
    hash_word(hash, rest)
}

/// One step of [`hash_bytes`].
#[inline]
pub(crate) fn hash_word(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 32).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(29)
}
