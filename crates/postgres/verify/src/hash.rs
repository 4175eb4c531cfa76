//! Hash indexes: buckets where the meta page says, their chains of overflow pages, and hash codes in the right bucket.
//!
//! Source: src/include/access/hash.h, src/backend/access/hash/README, hashovfl.c (`_hash_addovflpage` and `_hash_freeovflpage` change a chain,
//! its bitmap and the meta page in one record), hashpage.c (`_hash_expandtable` does so for a new bucket), hashutil.c.

mod chains;
mod items;
mod meta;

use leadline_errors::Result;
use leadline_page::postgres::Kind;

use crate::blocks::{Blocks, Page};
use crate::heap_tids::{Entries, Repeats, TakeTid};
use crate::index_pages::{self, u16_at, u32_at, Comparable};
use crate::problem::{Level, Report};
use crate::target::Target;

use chains::Chains;
use meta::Meta;

/// `hasho_flag`.
mod flag {
    pub(super) const OVERFLOW: u16 = 1;
    pub(super) const BUCKET: u16 = 2;
    pub(super) const BITMAP: u16 = 4;
    pub(super) const TYPE: u16 = 15;
    pub(super) const BEING_SPLIT: u16 = 1 << 5;
    pub(super) const NEEDS_SPLIT_CLEANUP: u16 = 1 << 6;
}

/// What is kept of each page.
#[derive(Debug, Clone, Copy, Default)]
struct About {
    /// Of the first page of a bucket: the number of the last bucket when this one was made or last split.
    prev: u32,
    next: u32,
    bucket: u32,
    flag: u16,
    /// It can be compared.
    is_settled: bool,
    /// It is in a chain.
    is_reached: bool,
}

impl About {
    fn of(page: &Page<'_>) -> About {
        let special = page.special();
        About {
            prev: u32_at(special, 0),
            next: u32_at(special, 4),
            bucket: u32_at(special, 8),
            flag: u16_at(special, 12),
            is_settled: true,
            is_reached: false,
        }
    }

    /// Bucket, overflow page, bitmap: a bit of the flags.
    fn is(&self, wanted: u16) -> bool {
        self.is_settled && self.flag & flag::TYPE == wanted
    }
}

/// Checks a hash index.
///
/// # Errors
/// When the file system says no.
pub(crate) fn check(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    let Some(mut blocks) = index_pages::open(target, report)? else { return Ok(()) };
    let names = blocks.again();
    let before = index_pages::found(report);
    let (pages, are_all) = structure(&mut blocks, &names, report)?;
    // While a bucket is split, items are in both.
    let is_split =
        |about: &About| about.is(flag::BUCKET) && about.flag & (flag::BEING_SPLIT | flag::NEEDS_SPLIT_CLEANUP) != 0;
    let repeats = if pages.iter().any(is_split) { Repeats::Right } else { Repeats::Wrong };
    let is_whole = are_all && index_pages::found(report) == before;
    let entries = Entries { index: *target, names: &names, repeats, is_whole, skips_nulls: true, level };
    entries.check(report, |take| each_tid(&mut blocks, &pages, take))
}

/// Compares the pages with each other, and says whether all of them could be compared.
fn structure(blocks: &mut Blocks, names: &Blocks, report: &mut Report<'_>) -> Result<(Vec<About>, bool)> {
    let mut pages = vec![About::default(); blocks.count() as usize];
    let mut comparable = Comparable::of(blocks);
    let mut meta = None;
    blocks.each(0..u32::MAX, |page| {
        if comparable.take_own(&page, is_own, names, report) {
            match page.kind {
                Kind::HashMeta if page.block == 0 => meta = Meta::parse(page.bytes),
                Kind::HashBucket | Kind::HashOverflow | Kind::HashBitmap | Kind::HashUnused => {
                    pages[page.block as usize] = About::of(&page);
                }
                // An extension leaves zeros behind: what belongs there is told by the meta page.
                Kind::New => pages[page.block as usize].is_settled = true,
                _ => {}
            }
        }
        Ok(true)
    })?;
    comparable.tell(report);
    let meta = meta.filter(|meta| match meta.wrong(names) {
        Some(message) => {
            report.found(names.problem("meta", 0, None, message, "index scans and inserts go to the wrong pages"));
            false
        }
        None => true,
    });
    let mut chains = Chains { pages, names, whole: Vec::new() };
    chains.walk(meta.as_ref(), report);
    if let Some(meta) = &meta {
        chains.compare_bitmaps(meta, blocks, report)?;
    }
    items::check(&chains, blocks, report)?;
    Ok((chains.pages, comparable.are_all()))
}

fn is_own(block: u32, kind: Kind) -> bool {
    let bucket =
        matches!(kind, Kind::HashBucket | Kind::HashOverflow | Kind::HashBitmap | Kind::HashUnused | Kind::New);
    if block == 0 {
        kind == Kind::HashMeta
    } else {
        bucket
    }
}

/// Goes through the entries of all buckets.
fn each_tid(blocks: &mut Blocks, pages: &[About], take: &mut TakeTid<'_>) -> Result<()> {
    blocks.each(0..u32::MAX, |page| {
        if pages.get(page.block as usize).is_some_and(|about| about.is_reached) && page.is_settled {
            for (number, item) in index_pages::items(&page) {
                if let Some(tuple) = leadline_page::postgres::index_tuple::IndexTuple::parse(item) {
                    take(page.block, number, tuple.t_tid);
                }
            }
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{found, page, page_of, tuple, words, Made, Random};

    const NONE: u32 = u32::MAX;

    fn special(prev: u32, next: u32, bucket: u32, flag: u16) -> Vec<u8> {
        let mut special = words(&[prev, next, bucket]);
        special.extend(flag.to_le_bytes());
        special.extend(0xff80u16.to_le_bytes());
        special
    }

    fn item(hash: u32) -> Vec<u8> {
        let mut item = tuple(0, 1, &words(&[hash, 0]));
        item[6] = 16;
        item
    }

    /// Two buckets, of which the second has an overflow page.
    fn pages() -> Vec<Vec<u8>> {
        let mut meta = words(&[0x0644_0640, 4, 0, 0]);
        meta.extend([75, 0, 0xd8, 0x1f, 0, 16, 15, 0]);
        meta.extend(words(&[1, 3, 1, 1, 0, 1, 450]));
        meta.extend(words(&[0, 2]));
        meta.resize(52 + 4 * (98 + 1024), 0);
        meta[52 + 4 * 98] = 3;
        vec![
            page_of(&meta, &special(NONE, NONE, NONE, 8)),
            page(&[item(2), item(8)], &special(1, NONE, 0, 2)),
            page(&[item(1)], &special(1, 4, 1, 2)),
            page_of(&[0xff; 4096], &special(NONE, NONE, NONE, 4)),
            page(&[item(3), item(5)], &special(2, NONE, 1, 1)),
        ]
    }

    fn problems(name: &str, pages: &[Vec<u8>]) -> Vec<String> {
        let made = Made::new(name, pages);
        found(|report| drop(structure(&mut made.blocks(), &made.blocks(), report).unwrap()))
    }

    #[test]
    fn buckets_and_chains_are_as_the_meta_page_says() {
        assert_eq!(problems("hash", &pages()), Vec::<String>::new());
        let changed = |block: usize, at: usize, to: u8| {
            let mut pages = pages();
            pages[block][at] = to;
            problems(&format!("hash-{block}-{at}"), &pages)
        };
        assert_eq!(changed(0, 24 + 24, 2)[0], "meta: hashm_ovflpoint should be 2, as for 3 buckets, but is 1");
        assert_eq!(changed(2, 8176 + 4, 3)[0], "link: block 2 of bucket 1 leads to block 3, which is no overflow page");
        assert_eq!(
            changed(4, 8176, 1)[0],
            "link: block 2 of bucket 1 leads to block 4, but the page before block 4 is block 1"
        );
        assert_eq!(changed(3, 24, 0xfd)[0], "bitmap: block 4 is an overflow page of bucket 1, but free in the bitmap");
        let item = 8176 - 32 + 8;
        assert!(changed(4, item, 4)[0].starts_with("bucket: item 2 has the hash code 0x00000004 of bucket 0"));
        assert!(changed(4, item, 1)[0].starts_with("order: the hash code of item 2 is 0x00000001, less than"));
    }

    #[test]
    fn damaged_pages_never_stop_the_check() {
        let mut random = Random(7);
        for _ in 0..300 {
            let mut pages = pages();
            random.damage(&mut pages);
            problems("hash-random", &pages);
        }
    }
}
