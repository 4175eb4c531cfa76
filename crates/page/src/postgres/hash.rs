//! Pages of a hash index: meta page, buckets with their overflow pages, bitmaps of overflow pages.
//!
//! Source: src/include/access/hash.h (version 4, PostgreSQL 10 and later).

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use super::index_tuple;
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the special area.
pub const SPECIAL: usize = 16;
/// `hasho_page_id`.
pub const HASHO_PAGE_ID: u16 = 0xff80;
/// `hashm_magic`.
pub const HASH_MAGIC: u32 = 0x0644_0640;
/// `HASH_SPLITPOINT_GROUPS_WITH_ONE_PHASE`.
const ONE_PHASE_GROUPS: u32 = 10;
/// `HASH_SPLITPOINT_PHASE_BITS`.
const PHASE_BITS: u32 = 2;
const HASH_MAX_SPLITPOINTS: usize = 98;
const HASH_MAX_BITMAPS: usize = 1024;

/// Bits of `hasho_flag`.
pub const HASHO_FLAG: &[Flag] = &[
    (0x01, "LH_OVERFLOW_PAGE", "overflow page"),
    (0x02, "LH_BUCKET_PAGE", "first page of a bucket"),
    (0x04, "LH_BITMAP_PAGE", "bitmap of overflow pages"),
    (0x08, "LH_META_PAGE", "meta page"),
    (0x10, "LH_BUCKET_BEING_POPULATED", "being filled by a split"),
    (0x20, "LH_BUCKET_BEING_SPLIT", "being split"),
    (0x40, "LH_BUCKET_NEEDS_SPLIT_CLEANUP", "holds items moved by a split"),
    (0x80, "LH_PAGE_HAS_DEAD_TUPLES", "has dead items"),
];

/// `_hash_spareindex`: the split point whose buckets end with this number of buckets, from 1 to 2^31.
pub fn spare_index(buckets: u32) -> u32 {
    let group = buckets.max(1).next_power_of_two().ilog2();
    if group < ONE_PHASE_GROUPS {
        return group;
    }
    let phase = (buckets - 1) >> (group - (PHASE_BITS + 1)) & ((1 << PHASE_BITS) - 1);
    ONE_PHASE_GROUPS + ((group - ONE_PHASE_GROUPS) << PHASE_BITS) + phase
}

/// `_hash_get_totalbuckets`: how many buckets there are at a split point.
pub fn total_buckets(split_point: u32) -> u32 {
    let Some(phases) = split_point.checked_sub(ONE_PHASE_GROUPS) else {
        return 1 << split_point;
    };
    let before = 1 << (ONE_PHASE_GROUPS + (phases >> PHASE_BITS) - 1);
    before + (before >> PHASE_BITS) * ((phases & ((1 << PHASE_BITS) - 1)) + 1)
}

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("hasho_prevblkno")?;
    r.u32("hasho_nextblkno")?;
    r.u32("hasho_bucket")?;
    let flag = r.u16("hasho_flag")?;
    r.flags(HASHO_FLAG, flag.into());
    r.u16("hasho_page_id")?;
    Ok(())
}

/// The meta page's fields, or a bitmap.
pub(super) fn contents(page: &[u8], header: &Header, meta: bool) -> (Part, Option<Wrong>) {
    let end = usize::from(header.pd_lower);
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Meta, HEADER, end);
    let outcome = if meta { read_meta(&mut r, page.len()) } else { Ok(()) };
    r.bytes_to(if meta { "padding" } else { "bitmap" }, FieldKind::Data, end);
    (r.finish(), outcome.err())
}

fn read_meta(r: &mut Reader<'_>, page_size: usize) -> Result<(), Wrong> {
    r.u32("hashm_magic")?;
    r.u32("hashm_version")?;
    r.f64("hashm_ntuples")?;
    r.u16("hashm_ffactor")?;
    r.u16("hashm_bsize")?;
    r.u16("hashm_bmsize")?;
    r.u16("hashm_bmshift")?;
    r.u32("hashm_maxbucket")?;
    r.u32("hashm_highmask")?;
    r.u32("hashm_lowmask")?;
    r.u32("hashm_ovflpoint")?;
    r.u32("hashm_firstfree")?;
    r.u32("hashm_nmaps")?;
    r.u32("hashm_procid")?;
    r.u32s("hashm_spares", HASH_MAX_SPLITPOINTS)?;
    r.u32s("hashm_mapp", HASH_MAX_BITMAPS.min(page_size / 8))?;
    Ok(())
}

/// An item as a part.
pub(super) fn item(page: &[u8], number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "item", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = read_item(&mut r);
    r.bytes_to("padding", FieldKind::Padding, end);
    (r.finish(), outcome.err())
}

fn read_item(r: &mut Reader<'_>) -> Result<(), Wrong> {
    index_tuple::read(r, |_| String::new())?;
    r.kind(FieldKind::Data).u32("hashkey")?;
    Ok(())
}
