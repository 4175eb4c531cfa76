//! Pages of a GIN index: meta page, entry tree, posting trees, list of pending entries.
//!
//! Source: src/include/access/ginblock.h; posting lists as src/backend/access/gin/ginpostinglist.c packs them
//! (PostgreSQL 9.4 and later).

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use super::index_tuple::{self, IndexTuple};
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Tid, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the special area.
pub const SPECIAL: usize = 8;
#[allow(missing_docs)]
pub const GIN_DATA: u16 = 0x01;
#[allow(missing_docs)]
pub const GIN_LEAF: u16 = 0x02;
#[allow(missing_docs)]
pub const GIN_DELETED: u16 = 0x04;
#[allow(missing_docs)]
pub const GIN_META: u16 = 0x08;
#[allow(missing_docs)]
pub const GIN_LIST: u16 = 0x10;
const GIN_COMPRESSED: u16 = 0x80;

/// Bits of `flags`.
pub const FLAGS: &[Flag] = &[
    (0x01, "GIN_DATA", "posting tree"),
    (0x02, "GIN_LEAF", "leaf"),
    (0x04, "GIN_DELETED", "deleted"),
    (0x08, "GIN_META", "meta page"),
    (0x10, "GIN_LIST", "pending entries"),
    (0x20, "GIN_LIST_FULLROW", "whole rows"),
    (0x40, "GIN_INCOMPLETE_SPLIT", "split not finished"),
    (0x80, "GIN_COMPRESSED", "packed posting lists"),
];

// An entry's t_tid where it is a leaf of the entry tree.
const GIN_TREE_POSTING: u16 = 0xffff;
const GIN_ITUP_COMPRESSED: u32 = 0x8000_0000;
/// Bits of a line pointer's number in a packed posting list.
const POSID_BITS: u32 = 11;

/// The special area, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Opaque {
    pub rightlink: u32,
    pub maxoff: u16,
    pub flags: u16,
}

impl Opaque {
    /// From the last eight bytes of a page.
    pub fn parse(special: &[u8]) -> Option<Opaque> {
        let b = special.first_chunk::<SPECIAL>()?;
        Some(Opaque {
            rightlink: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            maxoff: u16::from_le_bytes([b[4], b[5]]),
            flags: u16::from_le_bytes([b[6], b[7]]),
        })
    }
}

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("rightlink")?;
    r.u16("maxoff")?;
    let flags = r.u16("flags")?;
    r.flags(FLAGS, flags.into());
    Ok(())
}

/// The meta page's fields.
pub(super) fn meta(page: &[u8], header: &Header) -> (Part, Option<Wrong>) {
    let end = usize::from(header.pd_lower);
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Meta, HEADER, end);
    let outcome = read_meta(&mut r);
    r.bytes_to("padding", FieldKind::Padding, end);
    (r.finish(), outcome.err())
}

fn read_meta(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("head")?;
    r.u32("tail")?;
    r.u32("tailFreeSize")?;
    r.u32("nPendingPages")?;
    r.i64("nPendingHeapTuples")?;
    r.u32("nTotalPages")?;
    r.u32("nEntryPages")?;
    r.u32("nDataPages")?;
    r.bytes("padding", 4)?;
    r.i64("nEntries")?;
    r.i32("ginVersion")?;
    Ok(())
}

/// A page of a posting tree: its right bound and packed lists (leaf) or downlinks.
pub(super) fn posting_tree(page: &[u8], header: &Header, opaque: &Opaque) -> (Vec<Part>, Option<Wrong>) {
    let end = usize::from(header.pd_lower).min(page.len());
    let mut r = Reader::new(page, Endian::Little, "right bound", FieldKind::Meta, HEADER, HEADER + 8);
    let outcome = r.tid("rightbound").map(drop);
    r.bytes_to("padding", FieldKind::Padding, HEADER + 8);
    let mut parts = vec![r.finish()];
    if let Err(e) = outcome {
        return (parts, Some(e));
    }
    let leaf = opaque.flags & GIN_LEAF != 0;
    let (mut at, mut number) = (HEADER + 8, 1);
    let mut wrong = None;
    while at < end && wrong.is_none() {
        let before = at;
        let item = if leaf { "segment" } else { "posting item" };
        let mut r = Reader::new(page, Endian::Little, item, FieldKind::Data, at, end).numbered(number);
        let outcome = match (leaf, opaque.flags & GIN_COMPRESSED != 0) {
            (true, true) => posting_list(&mut r),
            (true, false) => r.tid("tid").map(drop), // before 9.4
            (false, _) if number > u32::from(opaque.maxoff) => break,
            (false, _) => downlink(&mut r),
        };
        at = r.offset();
        wrong = outcome.err();
        let mut part = r.finish();
        part.end = at;
        parts.push(part);
        number += 1;
        if at == before {
            break;
        }
    }
    (parts, wrong)
}

fn downlink(r: &mut Reader<'_>) -> Result<(), Wrong> {
    let bytes = r.bytes("child_blkno", 4)?;
    let child = bytes
        .first_chunk::<4>()
        .map_or(0, |b| u32::from(u16::from_le_bytes([b[0], b[1]])) << 16 | u32::from(u16::from_le_bytes([b[2], b[3]])));
    r.words(format!("downlink to block {child}"));
    r.tid("key")?;
    Ok(())
}

/// A packed list: the first TID, then differences in one to seven bytes of seven bits.
fn posting_list(r: &mut Reader<'_>) -> Result<(), Wrong> {
    let first = r.tid("first")?;
    let nbytes = r.u16("nbytes")?;
    let packed = r.bytes("bytes", usize::from(nbytes))?;
    r.derived("tids", Value::Tids(unpack(first, packed)));
    if nbytes % 2 == 1 && r.left() > 0 {
        r.bytes("padding", 1)?;
    }
    Ok(())
}

/// Packed lists that do not end where the page's do: where each begins is told by the lengths of those before it.
pub(super) fn bad_lists(page: &[u8], header: &Header) -> Option<Wrong> {
    let end = usize::from(header.pd_lower);
    if Opaque::parse(header.special(page))?.flags & GIN_COMPRESSED == 0 {
        return None; // before 9.4
    }
    let mut at = HEADER + 8;
    while at < end {
        let nbytes = page.get(at + 6..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b));
        let next = at + 8 + usize::from(nbytes).next_multiple_of(2);
        if next > end {
            let wanted = format!("at most {}, up to pd_lower", end.saturating_sub(at + 8));
            let found = nbytes.to_string();
            return Some(Wrong { class: "posting_list", what: "nbytes", item: None, offset: at + 6, wanted, found });
        }
        at = next;
    }
    None
}

/// The TIDs of a packed list: at most one for each byte, and the first.
fn unpack(first: Tid, packed: &[u8]) -> Vec<Tid> {
    let mut value = u64::from(first.block) << POSID_BITS | u64::from(first.posid);
    let mut tids = vec![first];
    let (mut difference, mut shift) = (0u64, 0);
    for byte in packed {
        difference |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift += 7;
        if byte & 0x80 == 0 {
            value = value.wrapping_add(difference);
            tids.push(Tid { block: (value >> POSID_BITS) as u32, posid: (value & ((1 << POSID_BITS) - 1)) as u16 });
            (difference, shift) = (0, 0);
        }
    }
    tids
}

/// Whether the posting list of an entry, if it has one, ends before the entry does.
pub(super) fn posting_list_fits(entry: &[u8]) -> bool {
    let Tid { block, posid } = IndexTuple::parse(entry).unwrap_or_default().t_tid;
    if posid == GIN_TREE_POSTING || posid == 0 {
        return true;
    }
    let list = (block & !GIN_ITUP_COMPRESSED) as usize;
    let len = if block & GIN_ITUP_COMPRESSED == 0 {
        6 * usize::from(posid)
    } else {
        let nbytes = entry
            .get(list.saturating_add(6)..)
            .and_then(|b| b.first_chunk())
            .map_or(u16::MAX, |b| u16::from_le_bytes(*b));
        8 + usize::from(nbytes)
    };
    list.saturating_add(len) <= entry.len()
}

/// An item of the entry tree or of the pending list as a part.
pub(super) fn item(page: &[u8], opaque: &Opaque, number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "item", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = read_item(&mut r, opaque, end);
    let rest = if r.has("data") { "padding" } else { "data" };
    r.bytes_to(rest, FieldKind::Data, end);
    (r.finish(), outcome.err())
}

fn read_item(r: &mut Reader<'_>, opaque: &Opaque, end: usize) -> Result<(), Wrong> {
    let start = r.offset();
    let entry_leaf = opaque.flags & (GIN_LEAF | GIN_LIST) == GIN_LEAF;
    let words = |tuple: &IndexTuple| match (entry_leaf, tuple.t_tid) {
        (true, Tid { block, posid: GIN_TREE_POSTING }) => format!("posting tree at block {block}"),
        (true, Tid { block, posid }) => format!("{posid} rows, listed at {}", block & !GIN_ITUP_COMPRESSED),
        (false, _) if opaque.flags & GIN_LIST != 0 => String::new(),
        (false, Tid { block, .. }) => format!("downlink to block {block}"),
    };
    let tuple = index_tuple::read(r, words)?;
    r.kind(FieldKind::Data);
    let Tid { block, posid } = tuple.t_tid;
    if entry_leaf && posid != GIN_TREE_POSTING && posid != 0 {
        let list = start.saturating_add((block & !GIN_ITUP_COMPRESSED) as usize).min(end);
        r.bytes_to("data", FieldKind::Data, list);
        match block & GIN_ITUP_COMPRESSED {
            0 => r.tids("tids", posid.into()).map(drop)?,
            _ => posting_list(r)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_added_up() {
        let first = Tid { block: 1, posid: 2000 };
        let tid = |block, posid| Tid { block, posid };
        // 1, then 2^11 = one block further, then a difference that is cut off.
        assert_eq!(unpack(first, &[1, 0x80, 0x10, 0xff]), [first, tid(1, 2001), tid(2, 2001)]);
        assert_eq!(unpack(first, &[0xff; 100]), [first]);
    }
}
