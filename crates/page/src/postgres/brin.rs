//! Pages of a BRIN index: meta page, map from block ranges to summaries, summaries.
//!
//! Source: src/include/access/brin_page.h and brin_tuple.h.

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the special area.
pub const SPECIAL: usize = 8;
#[allow(missing_docs)]
pub const BRIN_PAGETYPE_META: u16 = 0xf091;
#[allow(missing_docs)]
pub const BRIN_PAGETYPE_REVMAP: u16 = 0xf092;
#[allow(missing_docs)]
pub const BRIN_PAGETYPE_REGULAR: u16 = 0xf093;
/// `brinMagic`.
pub const BRIN_META_MAGIC: u32 = 0xa810_9cfa;
const BRIN_OFFSET_MASK: u8 = 0x1f;
const BRIN_NULLS_MASK: u8 = 0x80;

const FLAGS: &[Flag] = &[(1, "BRIN_EVACUATE_PAGE", "to be evacuated: the map needs this block")];
const BT_INFO: &[Flag] = &[
    (0x20, "BRIN_EMPTY_RANGE_MASK", "empty range (since 16 and later minor releases of earlier versions)"),
    (0x40, "BRIN_PLACEHOLDER_MASK", "placeholder"),
    (0x80, "BRIN_NULLS_MASK", "has a null bitmap"),
];

/// The fields at the start of a summary, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct BrinTuple {
    pub bt_blkno: u32,
    pub bt_info: u8,
}

impl BrinTuple {
    /// Bytes before the null bitmap.
    pub const SIZE: usize = 5;

    /// From the first bytes; None when there are fewer.
    pub fn parse(tuple: &[u8]) -> Option<BrinTuple> {
        let [a, b, c, d, bt_info] = *tuple.first_chunk::<{ BrinTuple::SIZE }>()?;
        Some(BrinTuple { bt_blkno: u32::from_le_bytes([a, b, c, d]), bt_info })
    }

    /// Where the values begin.
    pub fn data_offset(&self) -> usize {
        usize::from(self.bt_info & BRIN_OFFSET_MASK)
    }

    /// Whether it has a null bitmap.
    pub fn has_nulls(&self) -> bool {
        self.bt_info & BRIN_NULLS_MASK != 0
    }
}

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.bytes("padding", 4)?;
    let flags = r.u16("flags")?;
    r.flags(FLAGS, flags.into());
    r.u16("type")?;
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
    r.u32("brinMagic")?;
    r.u32("brinVersion")?;
    r.u32("pagesPerRange")?;
    r.u32("lastRevmapPage")?;
    Ok(())
}

/// The map: where the summary of each block range is. It fills the page, whatever `pd_lower` says.
pub(super) fn revmap(page: &[u8], header: &Header) -> (Part, Option<Wrong>) {
    let end = usize::from(header.pd_special);
    let mut r = Reader::new(page, Endian::Little, "map", FieldKind::Meta, HEADER, end);
    let count = r.left() / 6;
    let outcome = r.tids("rm_tids", count).map(drop);
    r.bytes_to("padding", FieldKind::Padding, end);
    (r.finish(), outcome.err())
}

/// A summary as a part. Its values need the index's columns.
pub(super) fn item(page: &[u8], number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "range", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = read_item(&mut r, start);
    r.bytes_to("bv_values", FieldKind::Data, end);
    (r.finish(), outcome.err())
}

fn read_item(r: &mut Reader<'_>, start: usize) -> Result<(), Wrong> {
    r.u32("bt_blkno")?;
    r.words("first block of the range");
    let info = r.u8("bt_info")?;
    r.flags(BT_INFO, u32::from(info & !BRIN_OFFSET_MASK));
    let data = usize::from(info & BRIN_OFFSET_MASK);
    r.derived("data_offset", Value::Number(data as u64));
    if info & BRIN_NULLS_MASK != 0 {
        let len = start.saturating_add(data).saturating_sub(r.offset()).min(r.left());
        r.bits("bt_bitmap", len)?;
    } else {
        r.bytes_to("padding", FieldKind::Padding, start + data);
    }
    Ok(())
}
