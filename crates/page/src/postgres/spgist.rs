//! Pages of an SP-GiST index: meta page, inner tuples with nodes, chains of leaf tuples.
//!
//! Source: src/include/access/spgist_private.h. From 14 on two bits of a leaf's `nextOffset` are flags.

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use super::index_tuple::{self, IndexTuple, INDEX_SIZE_MASK};
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Tid, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the special area.
pub const SPECIAL: usize = 8;
/// `spgist_page_id`.
pub const SPGIST_PAGE_ID: u16 = 0xff82;
#[allow(missing_docs)]
pub const SPGIST_META: u16 = 1;
#[allow(missing_docs)]
pub const SPGIST_DELETED: u16 = 2;
#[allow(missing_docs)]
pub const SPGIST_LEAF: u16 = 4;
/// Of the tree of rows whose key is null.
pub const SPGIST_NULLS: u16 = 8;
/// `magicNumber`.
pub const SPGIST_MAGIC_NUMBER: u32 = 0xba0b_abee;
const CACHED_PAGES: u32 = 8;
const LIVE: u32 = 0;
const STATES: [&str; 4] = ["live", "redirect", "dead", "placeholder"];

/// Bits of `flags`.
pub const FLAGS: &[Flag] = &[
    (1, "SPGIST_META", "meta page"),
    (2, "SPGIST_DELETED", "deleted (before 9.6)"),
    (4, "SPGIST_LEAF", "leaf"),
    (8, "SPGIST_NULLS", "of nulls"),
];

/// The fields at the start of a tuple, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpgistTuple {
    /// State, and the rest of the first word: bytes of the tuple, or what a live inner tuple keeps there.
    pub bits: u32,
    /// `t_info` (`nextOffset` before 14) and `heapPtr`, or `pointer` of a tuple that is none any more. A live inner tuple has its
    /// size there, and no TID.
    pub item: IndexTuple,
}

impl SpgistTuple {
    /// Bytes before the values of a leaf, or before the prefix of an inner tuple.
    pub const fn head(leaf: bool) -> usize {
        if leaf {
            16
        } else {
            8
        }
    }

    /// From the first bytes of a tuple of a leaf or an inner page; None when they are not all there.
    pub fn parse(tuple: &[u8], leaf: bool) -> Option<SpgistTuple> {
        let ([b0, b1, b2, b3, i0, i1], rest) = tuple.split_first_chunk()?;
        let bits = u32::from_le_bytes([*b0, *b1, *b2, *b3]);
        let t_info = u16::from_le_bytes([*i0, *i1]);
        let has_tid = leaf || bits & 3 != LIVE;
        let t_tid = if has_tid { Tid::parse(*rest.first_chunk()?) } else { Tid::default() };
        Some(SpgistTuple { bits, item: IndexTuple { t_tid, t_info } })
    }

    /// Its bytes, by its own word.
    pub fn size(&self, leaf: bool) -> usize {
        let is_inner = !leaf && self.is_live();
        if is_inner {
            self.item.t_info.into()
        } else {
            (self.bits >> 2) as usize
        }
    }

    /// Whether it is in use: no redirect, nor what is left of one that was.
    pub fn is_live(&self) -> bool {
        self.bits & 3 == LIVE
    }

    /// Nodes of a live inner tuple.
    pub fn nodes(&self) -> usize {
        (self.bits >> 3 & 0x1fff) as usize
    }

    /// Bytes of its prefix.
    pub fn prefix(&self) -> usize {
        (self.bits >> 16) as usize
    }
}

/// Whether the nodes of an inner tuple, if it is a live one, are all there.
pub(super) fn nodes_fit(item: &[u8]) -> bool {
    let Some(tuple) = SpgistTuple::parse(item, false).filter(SpgistTuple::is_live) else { return true };
    let mut at = SpgistTuple::head(false) + tuple.prefix();
    for _ in 0..tuple.nodes() {
        let Some(node) = item.get(at..).and_then(IndexTuple::parse) else { return false };
        at += node.size().max(index_tuple::SIZE);
    }
    at <= item.len()
}

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    let flags = r.u16("flags")?;
    r.flags(FLAGS, flags.into());
    r.u16("nRedirection")?;
    r.u16("nPlaceholder")?;
    r.u16("spgist_page_id")?;
    Ok(())
}

/// The meta page's fields.
pub(super) fn meta(page: &[u8], header: &Header) -> (Vec<Part>, Option<Wrong>) {
    let end = usize::from(header.pd_lower);
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Meta, HEADER, HEADER + 4);
    let outcome = r.u32("magicNumber").map(drop);
    let mut parts = vec![r.finish()];
    let mut wrong = outcome.err();
    let mut at = HEADER + 4;
    for number in 0..CACHED_PAGES {
        let mut r = Reader::new(page, Endian::Little, "last used page", FieldKind::Meta, at, at + 8).numbered(number);
        let outcome = r.u32("blkno").and_then(|_| r.i32("freeSpace"));
        wrong = wrong.or(outcome.err());
        parts.push(r.finish());
        at += 8;
    }
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Padding, at, end.max(at));
    r.bytes_to("padding", FieldKind::Padding, end);
    parts.push(r.finish());
    (parts, wrong)
}

/// An inner or leaf tuple as a part.
pub(super) fn item(page: &[u8], leaf: bool, number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "tuple", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = if leaf { read_leaf(&mut r) } else { read_inner(&mut r) };
    r.bytes_to("data", FieldKind::Data, end);
    (r.finish(), outcome.err())
}

fn state(bits: u32) -> &'static str {
    STATES[(bits & 3) as usize]
}

fn read_leaf(r: &mut Reader<'_>) -> Result<(), Wrong> {
    let bits = r.u32("tupstate_size")?;
    r.words(format!("{}, {} bytes", state(bits), bits >> 2));
    r.derived("tupstate", Value::Number(u64::from(bits & 3)));
    r.derived("size", Value::Number(u64::from(bits >> 2)));
    rest_of_leaf(r, bits)
}

fn rest_of_leaf(r: &mut Reader<'_>, bits: u32) -> Result<(), Wrong> {
    let info = r.u16("t_info")?;
    r.derived("nextOffset", Value::Number(u64::from(info & 0x3fff)));
    if bits & 3 == LIVE {
        r.tid("heapPtr")?;
    } else {
        r.tid("pointer")?;
        r.u32("xid")?;
    }
    Ok(())
}

fn read_inner(r: &mut Reader<'_>) -> Result<(), Wrong> {
    let end = r.offset() + r.left();
    let bits = r.u32("bits")?;
    let (nodes, prefix) = (bits >> 3 & 0x1fff, (bits >> 16) as usize);
    if bits & 3 != LIVE {
        r.words(format!("{}, {} bytes", state(bits), bits >> 2));
        return rest_of_leaf(r, bits);
    }
    let same = if bits & 4 != 0 { ", all the same" } else { "" };
    r.words(format!("{nodes} nodes, prefix of {prefix} bytes{same}"));
    r.u16("size")?;
    r.bytes("padding", 2)?;
    r.kind(FieldKind::Data);
    if prefix > 0 {
        r.bytes("prefix", prefix)?;
    }
    for _ in 0..nodes {
        let at = r.offset();
        r.tid("node t_tid")?;
        let info = r.u16("node t_info")?;
        let size = usize::from(info & INDEX_SIZE_MASK);
        r.bytes_to("node label", FieldKind::Data, at.saturating_add(size).min(end));
    }
    Ok(())
}
