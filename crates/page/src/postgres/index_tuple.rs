//! The tuple that btree, hash, GIN and GiST share: a TID, 16 bits of size and flags, a null bitmap, the key.
//!
//! Source: src/include/access/itup.h.

use crate::part::{Tid, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes before the null bitmap or the key.
pub const SIZE: usize = 8;
/// `t_info`: bytes of the tuple.
pub const INDEX_SIZE_MASK: u16 = 0x1fff;
/// `t_info`: the access method uses this bit; in btree `t_tid` is no row.
pub const INDEX_AM_RESERVED_BIT: u16 = 0x2000;
/// `t_info`: has a null bitmap.
pub const INDEX_NULL_MASK: u16 = 0x8000;

const T_INFO: &[Flag] = &[
    (0x2000, "INDEX_AM_RESERVED_BIT", ""),
    (0x4000, "INDEX_VAR_MASK", "has values of variable width"),
    (0x8000, "INDEX_NULL_MASK", "has nulls"),
];

/// The fields at the start of an index tuple, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct IndexTuple {
    pub t_tid: Tid,
    pub t_info: u16,
}

impl IndexTuple {
    /// From the first eight bytes; None when there are fewer.
    #[inline]
    pub fn parse(tuple: &[u8]) -> Option<IndexTuple> {
        let b = tuple.first_chunk::<SIZE>()?;
        let t_tid = Tid::parse([b[0], b[1], b[2], b[3], b[4], b[5]]);
        Some(IndexTuple { t_tid, t_info: u16::from_le_bytes([b[6], b[7]]) })
    }

    /// Bytes of the tuple, by its own word.
    #[inline]
    pub fn size(&self) -> usize {
        usize::from(self.t_info & INDEX_SIZE_MASK)
    }

    /// Where the key begins.
    pub fn data_offset(&self) -> usize {
        if self.t_info & INDEX_NULL_MASK != 0 {
            2 * SIZE
        } else {
            SIZE
        }
    }
}

/// Reads TID and `t_info`; words for the TID come from the access method.
pub(super) fn read(r: &mut Reader<'_>, words: impl Fn(&IndexTuple) -> String) -> Result<IndexTuple, Wrong> {
    let before = IndexTuple::parse(r.rest()).unwrap_or_default();
    let t_tid = r.tid("t_tid")?;
    r.words(words(&before));
    let t_info = r.u16("t_info")?;
    r.flags(T_INFO, u32::from(t_info & !INDEX_SIZE_MASK));
    let tuple = IndexTuple { t_tid, t_info };
    r.derived("itemlen", Value::Number(tuple.size() as u64));
    if t_info & INDEX_NULL_MASK != 0 {
        r.bits("t_bits", 4)?;
        r.bytes("padding", 4)?;
    }
    Ok(tuple)
}
