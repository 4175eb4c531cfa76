//! Pages of a btree: meta page, inner pages, leaves with posting lists, deleted pages.
//!
//! Source: src/include/access/nbtree.h. The version is on the meta page only: 2 up to PostgreSQL 10, 3 in 11, 4 from 12
//! on; an upgraded server keeps old indexes as they are until they are rebuilt. Posting lists came with 13.

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use super::index_tuple::{self, IndexTuple, INDEX_AM_RESERVED_BIT};
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Tid, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the special area.
pub const SPECIAL: usize = 16;
/// `btm_magic`.
pub const BTREE_MAGIC: u32 = 0x05_3162;
#[allow(missing_docs)]
pub const BTP_LEAF: u16 = 0x0001;
#[allow(missing_docs)]
pub const BTP_ROOT: u16 = 0x0002;
#[allow(missing_docs)]
pub const BTP_DELETED: u16 = 0x0004;
#[allow(missing_docs)]
pub const BTP_META: u16 = 0x0008;
#[allow(missing_docs)]
pub const BTP_HAS_FULLXID: u16 = 0x0100;

/// Bits of `btpo_flags`.
pub const BTPO_FLAGS: &[Flag] = &[
    (0x0001, "BTP_LEAF", "leaf"),
    (0x0002, "BTP_ROOT", "root"),
    (0x0004, "BTP_DELETED", "deleted"),
    (0x0008, "BTP_META", "meta page"),
    (0x0010, "BTP_HALF_DEAD", "half dead"),
    (0x0020, "BTP_SPLIT_END", "right-most page of a split group"),
    (0x0040, "BTP_HAS_GARBAGE", "has dead items"),
    (0x0080, "BTP_INCOMPLETE_SPLIT", "split not finished: no downlink to the right sibling"),
    (0x0100, "BTP_HAS_FULLXID", "deleted with a 64-bit transaction id (since 14)"),
];

/// Offsets in `BTPageOpaqueData`.
#[allow(missing_docs)]
pub mod at {
    pub const PREV: usize = 0;
    pub const NEXT: usize = 4;
    /// Until 13 of a deleted page its transaction.
    pub const LEVEL: usize = 8;
    pub const FLAGS: usize = 12;
    pub const CYCLE_ID: usize = 14;
}

// What t_tid's position holds where INDEX_AM_RESERVED_BIT is set.
const BT_OFFSET_MASK: u16 = 0x0fff;
const BT_PIVOT_HEAP_TID_ATTR: u16 = 0x1000;
const BT_IS_POSTING: u16 = 0x2000;

/// The special area, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Opaque {
    pub btpo_prev: u32,
    pub btpo_next: u32,
    pub btpo_level: u32,
    pub btpo_flags: u16,
    pub btpo_cycleid: u16,
}

/// How many attributes a tuple that is no row has: a pivot keeps only those that tell its neighbours apart. None: all.
pub fn pivot_natts(tuple: &IndexTuple) -> Option<u16> {
    let is_pivot = tuple.t_info & INDEX_AM_RESERVED_BIT != 0 && tuple.t_tid.posid & BT_IS_POSTING == 0;
    is_pivot.then_some(tuple.t_tid.posid & BT_OFFSET_MASK)
}

/// Whether the posting list of an item, if it has one, ends before the item does.
pub(super) fn posting_list_fits(item: &[u8]) -> bool {
    let tuple = IndexTuple::parse(item).unwrap_or_default();
    let Tid { block, posid } = tuple.t_tid;
    let is_posting = tuple.t_info & INDEX_AM_RESERVED_BIT != 0 && posid & BT_IS_POSTING != 0;
    !is_posting || (block as usize).saturating_add(6 * usize::from(posid & BT_OFFSET_MASK)) <= item.len()
}

impl Opaque {
    /// From the last 16 bytes of a page.
    #[inline]
    pub fn parse(special: &[u8]) -> Option<Opaque> {
        let b = special.first_chunk::<SPECIAL>()?;
        let u16_at = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Some(Opaque {
            btpo_prev: u32_at(at::PREV),
            btpo_next: u32_at(at::NEXT),
            btpo_level: u32_at(at::LEVEL),
            btpo_flags: u16_at(at::FLAGS),
            btpo_cycleid: u16_at(at::CYCLE_ID),
        })
    }

    fn is_leaf(&self) -> bool {
        self.btpo_flags & BTP_LEAF != 0
    }

    /// Where keys begin: the first item of a page with a right sibling is its high key.
    fn high_key(&self) -> bool {
        self.btpo_next != 0
    }
}

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("btpo_prev")?;
    r.u32("btpo_next")?;
    let flags = Opaque::parse(r.rest()).map_or(0, |o| o.btpo_flags);
    r.u32("btpo_level")?;
    if flags & (BTP_DELETED | BTP_HAS_FULLXID) == BTP_DELETED {
        r.words("of a page deleted before 14: its transaction id");
    }
    let flags = r.u16("btpo_flags")?;
    r.flags(BTPO_FLAGS, flags.into());
    r.u16("btpo_cycleid")?;
    Ok(())
}

/// What a page without items holds behind its header: the meta page's fields, a deleted page's transaction.
pub(super) fn contents(page: &[u8], header: &Header, meta: bool) -> (Part, Option<Wrong>) {
    let end = usize::from(header.pd_lower);
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Meta, HEADER, end);
    let outcome = if meta { read_meta(&mut r) } else { deleted(&mut r) };
    r.bytes_to("padding", FieldKind::Padding, end);
    (r.finish(), outcome.err())
}

fn deleted(r: &mut Reader<'_>) -> Result<(), Wrong> {
    if r.left() >= 8 {
        r.u64("safexid")?;
    }
    Ok(())
}

fn read_meta(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("btm_magic")?;
    let version = r.u32("btm_version")?;
    r.u32("btm_root")?;
    r.u32("btm_level")?;
    r.u32("btm_fastroot")?;
    r.u32("btm_fastlevel")?;
    // The page does not say which server wrote it: what version 2 had no room for may still be there, unused.
    if version >= 3 && r.left() >= 16 {
        r.u32("btm_last_cleanup_num_delpages")?;
        r.words("before 14 btm_oldest_btpo_xact: the oldest transaction id of deleted pages");
        r.bytes("padding", 4)?;
        r.f64("btm_last_cleanup_num_heap_tuples")?;
        if r.left() >= 1 {
            r.truth("btm_allequalimage")?;
            r.words("equal keys are stored identically: may be deduplicated (since 13)");
        }
    }
    Ok(())
}

/// An item as a part.
pub(super) fn item(page: &[u8], opaque: &Opaque, number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "item", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = read_item(&mut r, opaque, number, lp);
    // Behind a posting list there is only what makes the length a multiple of 8. A key may lack: of nulls only the bitmap is stored.
    let (rest, kind) = if r.has("tids") { ("padding", FieldKind::Padding) } else { ("data", FieldKind::Data) };
    r.bytes_to(rest, kind, end);
    (r.finish(), outcome.err())
}

fn read_item(r: &mut Reader<'_>, opaque: &Opaque, number: u32, lp: LinePointer) -> Result<(), Wrong> {
    let (start, end) = (r.offset(), lp.off() + lp.len());
    let tuple = index_tuple::read(r, |tuple| tid_words(tuple, opaque, number))?;
    let posid = tuple.t_tid.posid;
    if tuple.t_info & INDEX_AM_RESERVED_BIT == 0 {
        let row = opaque.is_leaf() && (number > 1 || !opaque.high_key());
        if row {
            r.derived("htid", Value::Tid(tuple.t_tid));
        }
    } else if posid & BT_IS_POSTING != 0 {
        let at = start.saturating_add(tuple.t_tid.block as usize).min(end);
        r.bytes_to("data", FieldKind::Data, at);
        r.kind(FieldKind::Data);
        let tids = r.tids("tids", usize::from(posid & BT_OFFSET_MASK))?;
        r.words(format!("{} rows", tids.len()));
        if let Some(first) = tids.first() {
            r.derived("htid", Value::Tid(*first));
        }
    } else if posid & BT_PIVOT_HEAP_TID_ATTR != 0 {
        // Six bytes at the end of eight, so that the tuple's length stays a multiple of 8.
        r.bytes_to("data", FieldKind::Data, end.saturating_sub(8));
        r.bytes_to("padding", FieldKind::Padding, end.saturating_sub(6));
        r.tid("htid")?;
    }
    Ok(())
}

fn tid_words(tuple: &IndexTuple, opaque: &Opaque, number: u32) -> String {
    let posid = tuple.t_tid.posid;
    let pivot = tuple.t_info & INDEX_AM_RESERVED_BIT != 0;
    if pivot && posid & BT_IS_POSTING != 0 {
        return format!("posting list of {} at {}", posid & BT_OFFSET_MASK, tuple.t_tid.block);
    }
    let attributes = match (pivot, posid & BT_OFFSET_MASK) {
        (false, _) => String::new(),
        (true, 1) => ", 1 attribute".into(),
        (true, n) => format!(", {n} attributes"),
    };
    if number == 1 && opaque.high_key() {
        return format!("high key{attributes}");
    }
    if opaque.is_leaf() {
        String::new()
    } else {
        format!("downlink to block {}{attributes}", tuple.t_tid.block)
    }
}
