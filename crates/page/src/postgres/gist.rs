//! Pages of a GiST index.
//!
//! Source: src/include/access/gist.h.

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use super::index_tuple;
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the special area.
pub const SPECIAL: usize = 16;
/// `gist_page_id`.
pub const GIST_PAGE_ID: u16 = 0xff81;
#[allow(missing_docs)]
pub const F_LEAF: u16 = 1;
#[allow(missing_docs)]
pub const F_DELETED: u16 = 2;

/// Bits of `flags`.
pub const FLAGS: &[Flag] = &[
    (0x01, "F_LEAF", "leaf"),
    (0x02, "F_DELETED", "deleted"),
    (0x04, "F_TUPLES_DELETED", "tuples were deleted"),
    (0x08, "F_FOLLOW_RIGHT", "split not finished: go right"),
    (0x10, "F_HAS_GARBAGE", "has dead items"),
];

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.lsn("nsn")?;
    r.u32("rightlink")?;
    let flags = r.u16("flags")?;
    r.flags(FLAGS, flags.into());
    r.u16("gist_page_id")?;
    Ok(())
}

/// What a deleted page holds: the transaction that deleted it.
pub(super) fn contents(page: &[u8], header: &Header) -> (Part, Option<Wrong>) {
    let end = usize::from(header.pd_lower);
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Meta, HEADER, end);
    let outcome = if r.left() >= 8 { r.u64("deleteXid").map(drop) } else { Ok(()) };
    r.bytes_to("padding", FieldKind::Padding, end);
    (r.finish(), outcome.err())
}

/// An item as a part.
pub(super) fn item(page: &[u8], leaf: bool, number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "item", FieldKind::TupleHeader, start, end).numbered(number);
    let words = |tuple: &index_tuple::IndexTuple| match leaf {
        true => String::new(),
        false => format!("downlink to block {}", tuple.t_tid.block),
    };
    let outcome = index_tuple::read(&mut r, words);
    r.bytes_to("key_data", FieldKind::Data, end);
    (r.finish(), outcome.err())
}
