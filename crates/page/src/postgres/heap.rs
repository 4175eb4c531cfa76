//! Tuples of a table: a header of 23 bytes, a null bitmap, the row.
//!
//! Source: src/include/access/htup_details.h. The bits are the same from 9.4 on, except that before 12 bit 8 of
//! `t_infomask` said that an oid is stored.

use leadline_bytes::Endian;

use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Tid, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of a tuple header without null bitmap.
pub const SIZE: usize = 23;
/// `t_infomask`: there is a null bitmap.
pub const HEAP_HASNULL: u16 = 0x0001;
/// `t_infomask` before 12: the last four bytes before the row are its oid.
pub const HEAP_HASOID_OLD: u16 = 0x0008;
/// `t_infomask2`: number of attributes.
pub const HEAP_NATTS_MASK: u16 = 0x07ff;
/// `t_infomask2`: a version that no index points to.
pub const HEAP_ONLY_TUPLE: u16 = 0x8000;
/// Most attributes a row can have.
pub const MAX_ATTRIBUTES: u16 = 1600;

/// Offsets of the fields of `HeapTupleHeaderData`.
#[allow(missing_docs)]
pub mod at {
    pub const XMIN: usize = 0;
    pub const XMAX: usize = 4;
    /// `t_cid`, or `t_xvac` of a row that an old VACUUM FULL moved.
    pub const CID: usize = 8;
    pub const CTID: usize = 12;
    pub const INFOMASK2: usize = 18;
    pub const INFOMASK: usize = 20;
    pub const HOFF: usize = 22;
}

/// Bits of `t_infomask`, named without their `HEAP_`.
#[allow(missing_docs)]
pub mod infomask {
    pub const XMAX_KEYSHR_LOCK: u16 = 0x0010;
    pub const COMBOCID: u16 = 0x0020;
    pub const XMAX_EXCL_LOCK: u16 = 0x0040;
    pub const XMAX_LOCK_ONLY: u16 = 0x0080;
    pub const XMIN_COMMITTED: u16 = 0x0100;
    pub const XMIN_INVALID: u16 = 0x0200;
    pub const XMAX_COMMITTED: u16 = 0x0400;
    pub const XMAX_INVALID: u16 = 0x0800;
    pub const XMAX_IS_MULTI: u16 = 0x1000;
    pub const MOVED: u16 = 0xC000;
    pub const LOCK_MASK: u16 = XMAX_KEYSHR_LOCK | XMAX_EXCL_LOCK;
    /// `HEAP_XMAX_BITS`.
    pub const XMAX_BITS: u16 = XMAX_COMMITTED | XMAX_INVALID | XMAX_IS_MULTI | LOCK_MASK | XMAX_LOCK_ONLY;
    /// `HEAP_XMIN_FROZEN`: both bits.
    pub const XMIN_FROZEN: u16 = XMIN_COMMITTED | XMIN_INVALID;
    /// `HEAP_XACT_MASK`.
    pub const XACT_MASK: u16 = 0xFFF0;
}

/// Bits of `t_infomask2`, the same.
#[allow(missing_docs)]
pub mod infomask2 {
    pub const KEYS_UPDATED: u16 = 0x2000;
    pub const HOT_UPDATED: u16 = 0x4000;
}

const SPECULATIVE: u16 = 0xfffe;
const MOVED_PARTITIONS: u16 = 0xfffd;

/// Bits of `t_infomask`.
pub const T_INFOMASK: &[Flag] = &[
    (0x0001, "HEAP_HASNULL", "has nulls"),
    (0x0002, "HEAP_HASVARWIDTH", "has values of variable width"),
    (0x0004, "HEAP_HASEXTERNAL", "has values stored outside"),
    (0x0008, "HEAP_HASOID_OLD", "has an oid (before 12)"),
    (0x0010, "HEAP_XMAX_KEYSHR_LOCK", "xmax locks the key, shared"),
    (0x0020, "HEAP_COMBOCID", "t_cid is a combo cid"),
    (0x0040, "HEAP_XMAX_EXCL_LOCK", "xmax locks, exclusive"),
    (0x0080, "HEAP_XMAX_LOCK_ONLY", "xmax only locks"),
    (0x0100, "HEAP_XMIN_COMMITTED", "xmin committed"),
    (0x0200, "HEAP_XMIN_INVALID", "xmin aborted"),
    (0x0400, "HEAP_XMAX_COMMITTED", "xmax committed"),
    (0x0800, "HEAP_XMAX_INVALID", "no valid xmax"),
    (0x1000, "HEAP_XMAX_IS_MULTI", "xmax is a multixact"),
    (0x2000, "HEAP_UPDATED", "came from an update"),
    (0x4000, "HEAP_MOVED_OFF", "moved off by an old VACUUM FULL"),
    (0x8000, "HEAP_MOVED_IN", "moved in by an old VACUUM FULL"),
];

/// Bits of `t_infomask` that mean something of their own together.
pub const T_INFOMASK_COMBINED: &[Flag] = &[
    (0x0050, "HEAP_XMAX_SHR_LOCK", "xmax locks, shared"),
    (0x0300, "HEAP_XMIN_FROZEN", "frozen"),
    (0xc000, "HEAP_MOVED", "moved by an old VACUUM FULL"),
];

/// Bits of `t_infomask2` above the number of attributes.
pub const T_INFOMASK2: &[Flag] = &[
    (0x2000, "HEAP_KEYS_UPDATED", "key updated or row deleted"),
    (0x4000, "HEAP_HOT_UPDATED", "HOT updated"),
    (0x8000, "HEAP_ONLY_TUPLE", "heap only: no index points here"),
];

/// The fields of a tuple header, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct TupleHeader {
    pub t_xmin: u32,
    pub t_xmax: u32,
    /// Command ids, or the transaction of an old VACUUM FULL.
    pub t_field3: u32,
    pub t_ctid: Tid,
    pub t_infomask2: u16,
    pub t_infomask: u16,
    pub t_hoff: u8,
}

impl TupleHeader {
    /// From the first 23 bytes of a tuple; None when there are fewer.
    #[inline]
    pub fn parse(tuple: &[u8]) -> Option<TupleHeader> {
        let b = tuple.first_chunk::<SIZE>()?;
        let u16_at = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Some(TupleHeader {
            t_xmin: u32_at(at::XMIN),
            t_xmax: u32_at(at::XMAX),
            t_field3: u32_at(at::CID),
            t_ctid: Tid::parse(std::array::from_fn(|i| b[at::CTID + i])),
            t_infomask2: u16_at(at::INFOMASK2),
            t_infomask: u16_at(at::INFOMASK),
            t_hoff: b[at::HOFF],
        })
    }

    /// Attributes stored.
    #[inline]
    pub fn natts(&self) -> u16 {
        self.t_infomask2 & HEAP_NATTS_MASK
    }

    /// Bytes of the null bitmap.
    #[inline]
    pub fn bitmap_len(&self) -> usize {
        if self.t_infomask & HEAP_HASNULL != 0 {
            usize::from(self.natts()).div_ceil(8)
        } else {
            0
        }
    }

    /// Where the row begins: behind the null bitmap and the oid, at the next multiple of 8.
    #[inline]
    fn data_offset(&self) -> usize {
        let oid = if self.t_infomask & HEAP_HASOID_OLD != 0 { 4 } else { 0 };
        (SIZE + self.bitmap_len() + oid).next_multiple_of(8)
    }

    /// Whether this can be the header of a tuple of so many bytes.
    #[inline(always)]
    pub fn is_sound(&self, len: usize) -> bool {
        let hoff = usize::from(self.t_hoff);
        hoff == self.data_offset() && hoff <= len && self.natts() <= MAX_ATTRIBUTES
    }

    /// What cannot be in a tuple of so many bytes at this offset.
    pub fn wrong(&self, item: u32, offset: usize, len: usize) -> Option<Wrong> {
        if self.is_sound(len) {
            return None;
        }
        let wrong = |what, at, wanted, found: u16| {
            Some(Wrong {
                class: "tuple",
                what,
                item: Some(item),
                offset: offset + at,
                wanted,
                found: found.to_string(),
            })
        };
        if self.natts() > MAX_ATTRIBUTES {
            return wrong("number of attributes", 18, format!("up to {MAX_ATTRIBUTES}"), self.natts());
        }
        let nulls = if self.bitmap_len() > 0 { " with nulls" } else { "" };
        let wanted = match self.data_offset() {
            at if at > len => format!("up to {len}, the length of the tuple"),
            at => format!("{at}, for {} attributes{nulls}", self.natts()),
        };
        wrong("t_hoff", 22, wanted, self.t_hoff.into())
    }
}

/// A tuple as a part.
pub(super) fn describe(page: &[u8], number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "tuple", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = read(&mut r, start);
    r.bytes_to("t_data", FieldKind::Data, end);
    (r.finish(), outcome.err())
}

/// Reads header, null bitmap and oid, up to the row.
pub(super) fn read(r: &mut Reader<'_>, start: usize) -> Result<TupleHeader, Wrong> {
    let t_xmin = r.u32("t_xmin")?;
    let t_xmax = r.u32("t_xmax")?;
    let t_field3 = r.u32("t_field3")?;
    let t_ctid = r.tid("t_ctid")?;
    match t_ctid {
        Tid { posid: SPECULATIVE, .. } => r.words("speculative insertion"),
        Tid { block: u32::MAX, posid: MOVED_PARTITIONS } => r.words("moved to another partition"),
        _ => r,
    };
    let t_infomask2 = r.u16("t_infomask2")?;
    r.flags(T_INFOMASK2, u32::from(t_infomask2 & !HEAP_NATTS_MASK));
    let t_infomask = r.u16("t_infomask")?;
    r.flags(T_INFOMASK, t_infomask.into()).words(infomask_words(t_infomask));
    let t_hoff = r.u8("t_hoff")?;
    let header = TupleHeader { t_xmin, t_xmax, t_field3, t_ctid, t_infomask2, t_infomask, t_hoff };
    r.derived("natts", Value::Number(header.natts().into()));
    if combined(t_infomask) != 0 {
        let both = combined(t_infomask);
        r.derived("combined", Value::Number(both.into())).flags(T_INFOMASK_COMBINED, both).words("");
    }
    if header.bitmap_len() > 0 {
        r.bits("t_bits", header.bitmap_len())?;
    }
    let data = start + usize::from(t_hoff);
    if t_infomask & HEAP_HASOID_OLD != 0 && data >= r.offset() + 4 {
        r.bytes_to("padding", FieldKind::Padding, data - 4);
        r.u32("t_oid")?;
    }
    r.bytes_to("padding", FieldKind::Padding, data);
    r.kind(FieldKind::Data);
    Ok(header)
}

/// Bits that mean something together stand for that, not for what each of them means.
fn infomask_words(t_infomask: u16) -> String {
    let both = combined(t_infomask);
    let alone = T_INFOMASK.iter().filter(|(mask, _, _)| u32::from(t_infomask) & !both & mask != 0);
    let together = T_INFOMASK_COMBINED.iter().filter(|(mask, _, _)| both & mask == *mask);
    let words: Vec<&str> = alone.chain(together).map(|(_, _, meaning)| *meaning).collect();
    words.join(", ")
}

/// Only the bits that mean something together.
fn combined(t_infomask: u16) -> u32 {
    let all = T_INFOMASK_COMBINED.iter().map(|(mask, _, _)| *mask);
    all.filter(|mask| u32::from(t_infomask) & mask == *mask).fold(0, |any, mask| any | mask)
}
