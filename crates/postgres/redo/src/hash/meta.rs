//! The metapage of a hash index, and the bitmaps that say which overflow pages are in use.
//!
//! Source: `HashMetaPageData` in `access/hash.h`, `_hash_init_metabuffer` in `access/hash/hashpage.c`, `_hash_initbitmapbuffer`
//! in `access/hash/hashovfl.c`, `_hash_spareindex` and `_hash_get_totalbuckets` in `access/hash/hashutil.c`.

use leadline_page::postgres::hash::{spare_index, total_buckets};

use super::{flag, INVALID, OPAQUE};
use crate::misfit::{Misfit, Result};
use crate::page::{aligned, Page, HEADER};
use crate::Change;

/// `HASH_MAGIC`.
const MAGIC: u32 = 0x0644_0640;
/// `HASH_VERSION`.
const VERSION: u32 = 4;
/// `HASH_MAX_SPLITPOINTS`.
const SPLIT_POINTS: usize = 98;
/// `XLH_SPLIT_META_UPDATE_MASKS`.
const UPDATE_MASKS: u8 = 1 << 0;
/// `XLH_SPLIT_META_UPDATE_SPLITPOINT`.
const UPDATE_SPLIT_POINT: u8 = 1 << 1;

/// Offsets in the page of the fields of `HashMetaPageData`.
mod at {
    use crate::page::HEADER;
    pub(super) const MAGIC: usize = HEADER;
    pub(super) const VERSION: usize = HEADER + 4;
    pub(super) const TUPLES: usize = HEADER + 8;
    pub(super) const FILL_FACTOR: usize = HEADER + 16;
    pub(super) const BITMAP_ROOM: usize = HEADER + 18;
    pub(super) const BITMAP_BYTES: usize = HEADER + 20;
    pub(super) const BITMAP_SHIFT: usize = HEADER + 22;
    pub(super) const MAX_BUCKET: usize = HEADER + 24;
    pub(super) const HIGH_MASK: usize = HEADER + 28;
    pub(super) const LOW_MASK: usize = HEADER + 32;
    pub(super) const SPLIT_POINT: usize = HEADER + 36;
    pub(super) const FIRST_FREE: usize = HEADER + 40;
    pub(super) const MAPS: usize = HEADER + 44;
    pub(super) const PROCEDURE: usize = HEADER + 48;
    pub(super) const SPARES: usize = HEADER + 52;
    pub(super) const MAP: usize = SPARES + 4 * super::SPLIT_POINTS;
}

/// `HASH_MAX_BITMAPS`.
fn max_maps(page: &Page<'_>) -> usize {
    (page.size() / 8).min(1024)
}

fn set(page: &mut Page<'_>, at: usize, value: u32) -> Result<()> {
    page.put("HashMetaPageData", at, &value.to_le_bytes())
}

fn set_u16(page: &mut Page<'_>, at: usize, value: u16) -> Result<()> {
    page.put("HashMetaPageData", at, &value.to_le_bytes())
}

/// `XLOG_HASH_INIT_META_PAGE`.
pub(super) fn init(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let tuples = f64::from_le_bytes(main.array("num_tuples")?);
    let procedure = main.u32("procid")?;
    let fill_factor = main.u16("ffactor")?;

    let wanted = tuples / f64::from(fill_factor);
    let buckets = if wanted <= 2.0 {
        2
    } else if wanted >= f64::from(0x4000_0000) {
        0x4000_0000
    } else {
        total_buckets(spare_index(wanted as u32))
    };
    let split_point = spare_index(buckets);

    super::init(page, INVALID, INVALID, flag::META)?;
    let room = page.size() - HEADER - aligned(OPAQUE);
    set(page, at::MAGIC, MAGIC)?;
    set(page, at::VERSION, VERSION)?;
    set_u16(page, at::FILL_FACTOR, fill_factor)?;
    set_u16(page, at::BITMAP_ROOM, room as u16)?;
    set_u16(page, at::BITMAP_BYTES, 1 << room.ilog2())?;
    set_u16(page, at::BITMAP_SHIFT, room.ilog2() as u16 + 3)?;
    set(page, at::PROCEDURE, procedure)?;
    set(page, at::MAX_BUCKET, buckets - 1)?;
    let high_mask = (buckets + 1).next_power_of_two() - 1;
    set(page, at::HIGH_MASK, high_mask)?;
    set(page, at::LOW_MASK, high_mask >> 1)?;
    set(page, at::SPARES + 4 * split_point as usize, 1)?;
    set(page, at::SPLIT_POINT, split_point)?;
    page.set_lower(aligned(at::MAP + 4 * max_maps(page)));
    Ok(())
}

/// `_hash_initbitmapbuffer`: a bitmap in which every overflow page is in use.
pub(super) fn init_bitmap(page: &mut Page<'_>, bytes: u16) -> Result<()> {
    super::init(page, INVALID, INVALID, flag::BITMAP)?;
    page.put("bitmap of overflow pages", HEADER, &vec![0xFF; bytes.into()])?;
    page.set_lower(HEADER + usize::from(bytes));
    Ok(())
}

/// `SETBIT` or `CLRBIT` of the bit that the record names.
pub(super) fn mark_page(change: &Change<'_, '_>, page: &mut Page<'_>, in_use: bool) -> Result<()> {
    let bit = change.data().u32("bit of an overflow page")?;
    let at = HEADER + bit as usize / 32 * 4;
    let mask = 1 << (bit % 32);
    let word = page.u32_at(at);
    set(page, at, if in_use { word | mask } else { word & !mask })
}

/// `hashm_ntuples`, by so many more.
pub(super) fn count(page: &mut Page<'_>, more: f64) -> Result<()> {
    let (low, high) = (page.u32_at(at::TUPLES), page.u32_at(at::TUPLES + 4));
    let tuples = f64::from_bits(u64::from(high) << 32 | u64::from(low));
    set_count(page, (tuples + more).to_le_bytes())
}

pub(super) fn set_count(page: &mut Page<'_>, tuples: [u8; 8]) -> Result<()> {
    page.put("HashMetaPageData", at::TUPLES, &tuples)
}

pub(super) fn set_first_free(page: &mut Page<'_>, bit: u32) -> Result<()> {
    set(page, at::FIRST_FREE, bit)
}

/// Adds a bitmap page to the list of them.
fn add_map(page: &mut Page<'_>, block: u32) -> Result<()> {
    let maps = page.u32_at(at::MAPS) as usize;
    if maps >= max_maps(page) {
        return Err(Misfit::new("hashm_nmaps", format_args!("less than {}", max_maps(page)), maps));
    }
    set(page, at::MAP + 4 * maps, block)?;
    set(page, at::MAPS, maps as u32 + 1)
}

/// The first bitmap lies behind the first buckets.
pub(super) fn add_first_bitmap(page: &mut Page<'_>) -> Result<()> {
    let buckets = page.u32_at(at::MAX_BUCKET).wrapping_add(1);
    add_map(page, buckets.wrapping_add(1))
}

fn spare_at(split_point: u32) -> Result<usize> {
    if split_point as usize >= SPLIT_POINTS {
        return Err(Misfit::new("hashm_ovflpoint", format_args!("less than {SPLIT_POINTS}"), split_point));
    }
    Ok(at::SPARES + 4 * split_point as usize)
}

/// `XLOG_HASH_ADD_OVFL_PAGE`: the page is one that was free, or a new one, maybe with a new bitmap page before it.
pub(super) fn add_overflow_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u16("bmsize")?;
    let is_reused = main.u8("bmpage_found")? != 0;
    set_first_free(page, change.data().u32("hashm_firstfree")?)?;
    if is_reused {
        return Ok(());
    }
    let spare = spare_at(page.u32_at(at::SPLIT_POINT))?;
    let mut new_pages = 1;
    if let Some(map) = change.record.block(3) {
        add_map(page, map.block)?;
        new_pages = 2;
    }
    set(page, spare, page.u32_at(spare).wrapping_add(new_pages))
}

/// `XLOG_HASH_SPLIT_ALLOCATE_PAGE`.
pub(super) fn add_bucket(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let split = super::SplitAllocate::parse(change)?;
    let mut data = change.data();
    set(page, at::MAX_BUCKET, split.new_bucket)?;
    if split.flags & UPDATE_MASKS != 0 {
        set(page, at::LOW_MASK, data.u32("hashm_lowmask")?)?;
        set(page, at::HIGH_MASK, data.u32("hashm_highmask")?)?;
    }
    if split.flags & UPDATE_SPLIT_POINT != 0 {
        let split_point = data.u32("hashm_ovflpoint")?;
        set(page, spare_at(split_point)?, data.u32("hashm_spares")?)?;
        set(page, at::SPLIT_POINT, split_point)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_point_ends_where_its_buckets_end() {
        for point in 0..SPLIT_POINTS as u32 - 8 {
            let buckets = total_buckets(point);
            assert_eq!(spare_index(buckets), point, "{buckets} buckets");
            // One bucket more belongs to the next one.
            assert_eq!(spare_index(buckets + 1), point + 1, "{buckets} buckets and one");
        }
    }
}
