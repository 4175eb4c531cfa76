//! The meta page of a hash index: where buckets and overflow pages are.
//!
//! Source: `_hash_spareindex` and `_hash_get_totalbuckets` in hashutil.c, `BUCKET_TO_BLKNO` in hash.h, `bitno_to_blkno` in hashovfl.c.

use leadline_page::postgres::hash::{spare_index, total_buckets};

use crate::blocks::Blocks;
use crate::index_pages::{u16_at, u32_at};

/// Behind the page header.
const AT: usize = 24;
const SPLIT_POINTS: usize = 98;

/// The fields of `HashMetaPageData` that say where pages are.
pub(super) struct Meta {
    version: u32,
    bmsize: u16,
    bmshift: u16,
    pub(super) maxbucket: u32,
    highmask: u32,
    lowmask: u32,
    ovflpoint: u32,
    nmaps: u32,
    spares: Vec<u32>,
    mapp: Vec<u32>,
}

impl Meta {
    pub(super) fn parse(page: &[u8]) -> Option<Meta> {
        let u32s = |at: usize, count: usize| (0..count).map(|i| u32_at(page, at + 4 * i)).collect();
        let most_maps = (page.len() / 8).min(1024);
        (page.len() >= AT + 52 + 4 * (SPLIT_POINTS + most_maps)).then(|| Meta {
            version: u32_at(page, AT + 4),
            bmsize: u16_at(page, AT + 20),
            bmshift: u16_at(page, AT + 22),
            maxbucket: u32_at(page, AT + 24),
            highmask: u32_at(page, AT + 28),
            lowmask: u32_at(page, AT + 32),
            ovflpoint: u32_at(page, AT + 36),
            nmaps: u32_at(page, AT + 44),
            spares: u32s(AT + 52, SPLIT_POINTS),
            mapp: u32s(AT + 52 + 4 * SPLIT_POINTS, most_maps),
        })
    }

    /// What contradicts itself, in words.
    pub(super) fn wrong(&self, blocks: &Blocks) -> Option<String> {
        let Meta { maxbucket, highmask, lowmask, ovflpoint, nmaps, .. } = *self;
        let count = blocks.count();
        if self.version != 4 {
            return Some(format!("hashm_version should be 4, but is {}", self.version));
        }
        if maxbucket >= count {
            return Some(format!("hashm_maxbucket is {maxbucket}, but the index has {count} blocks"));
        }
        if !u64::from(highmask).wrapping_add(1).is_power_of_two() || lowmask != highmask >> 1 {
            return Some(format!("hashm_lowmask should be half of hashm_highmask {highmask:#x}, but is {lowmask:#x}"));
        }
        if !(lowmask..=highmask).contains(&maxbucket) {
            return Some(format!(
                "hashm_maxbucket should be from {lowmask} to {highmask}, as the masks say, but is {maxbucket}"
            ));
        }
        let wanted = spare_index(maxbucket + 1);
        if ovflpoint != wanted {
            return Some(format!(
                "hashm_ovflpoint should be {wanted}, as for {} buckets, but is {ovflpoint}",
                maxbucket + 1
            ));
        }
        let spares = &self.spares[..=ovflpoint as usize];
        if let Some(i) = (1..spares.len()).find(|i| spares[*i] < spares[i - 1]) {
            return Some(format!(
                "hashm_spares[{i}] is {}, less than {} of the split point before it",
                spares[i],
                spares[i - 1]
            ));
        }
        let overflow = self.overflow_pages();
        let expected = u64::from(total_buckets(ovflpoint)) + u64::from(overflow) + 1;
        if expected > count.into() {
            return Some(format!("buckets and overflow pages need {expected} blocks, but the index has {count}"));
        }
        let bits = u32::from(self.bmsize) * 8;
        if !self.bmsize.is_power_of_two()
            || u32::from(self.bmshift) != bits.ilog2()
            || usize::from(self.bmsize) > blocks.block_size()
        {
            return Some(format!("hashm_bmshift {} does not fit hashm_bmsize {}", self.bmshift, self.bmsize));
        }
        let maps = overflow.div_ceil(bits);
        if nmaps != maps || nmaps as usize > self.mapp.len() {
            return Some(format!("hashm_nmaps should be {maps}, as for {overflow} overflow pages, but is {nmaps}"));
        }
        None
    }

    /// How many there are, bitmaps too. Only if nothing is wrong.
    pub(super) fn overflow_pages(&self) -> u32 {
        self.spares[self.ovflpoint as usize]
    }

    /// The bitmaps, and how many pages each is of. Only if nothing is wrong.
    pub(super) fn bitmaps(&self) -> (&[u32], u32) {
        (&self.mapp[..self.nmaps as usize], u32::from(self.bmsize) * 8)
    }

    /// Where the first page of a bucket is.
    pub(super) fn bucket(&self, bucket: u32) -> u32 {
        let before = if bucket == 0 { 0 } else { self.spares[spare_index(bucket + 1) as usize - 1] };
        bucket + before + 1
    }

    /// Where the overflow page of a bit is.
    pub(super) fn overflow_page(&self, bit: u32) -> u32 {
        let number = bit + 1;
        let point = (1..self.ovflpoint).find(|i| number <= self.spares[*i as usize]).unwrap_or(self.ovflpoint.max(1));
        total_buckets(point) + number
    }
}
