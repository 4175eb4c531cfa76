//! The chains of overflow pages of a hash index, and the bitmaps that say which of those are in use.

use leadline_errors::Result;
use leadline_page::postgres::Kind;

use super::meta::Meta;
use super::{flag, About};
use crate::blocks::Blocks;
use crate::index_pages::{block_name, Comparable, Few, NO_BLOCK};
use crate::problem::Report;

const LOST: &str = "index scans miss rows";

/// The pages of an index, and which of its chains are whole.
pub(super) struct Chains<'a> {
    pub(super) pages: Vec<About>,
    pub(super) names: &'a Blocks,
    /// By the number of the bucket: its chain was followed to its end.
    pub(super) whole: Vec<bool>,
}

impl Chains<'_> {
    /// Follows the chains of all buckets: of those that the meta page has, or else of those that are met.
    pub(super) fn walk(&mut self, meta: Option<&Meta>, report: &mut Report<'_>) {
        let count = self.pages.len() as u32;
        self.whole = vec![false; count as usize];
        let mut told = Few::default();
        if let Some(meta) = meta {
            for bucket in 0..=meta.maxbucket {
                let first = meta.bucket(bucket);
                if let Some(message) = self.bad_first(bucket, first, meta.maxbucket) {
                    if told.take(first) {
                        report.found(self.names.problem("bucket", first, None, message, LOST));
                    }
                } else if self.pages[first as usize].is_settled {
                    self.chain(bucket, first, report);
                }
            }
        } else {
            for block in 0..count {
                let about = self.pages[block as usize];
                if about.is(flag::BUCKET) && about.bucket < count {
                    self.chain(about.bucket, block, report);
                }
            }
        }
        told.tell(report);
    }

    /// Why a page is not the first of a bucket.
    fn bad_first(&self, bucket: u32, block: u32, maxbucket: u32) -> Option<String> {
        let Some(about) = self.pages.get(block as usize).filter(|about| about.is_settled) else {
            let count = self.pages.len();
            return (block as usize >= count)
                .then(|| format!("bucket {bucket} should begin at block {block}, but the index has {count} blocks"));
        };
        if !about.is(flag::BUCKET) {
            return Some(format!("block {block} should be the first page of bucket {bucket}, but is none of a bucket"));
        }
        if about.bucket != bucket {
            return Some(format!("block {block} should be of bucket {bucket}, but is of bucket {}", about.bucket));
        }
        (!(bucket..=maxbucket).contains(&about.prev)).then(|| {
            format!(
                "block {block} of bucket {bucket} says that the last bucket was {}, which is not from {bucket} to {maxbucket}",
                about.prev
            )
        })
    }

    /// Follows one.
    fn chain(&mut self, bucket: u32, first: u32, report: &mut Report<'_>) {
        let mut block = first;
        self.pages[first as usize].is_reached = true;
        loop {
            let next = self.pages[block as usize].next;
            if next == NO_BLOCK {
                if let Some(whole) = self.whole.get_mut(bucket as usize) {
                    *whole = true;
                }
                return;
            }
            if let Some(message) = self.bad_next(bucket, block, next) {
                report.found(self.names.problem("link", block, None, message, LOST));
                return;
            }
            if !self.pages[next as usize].is_settled {
                return;
            }
            self.pages[next as usize].is_reached = true;
            block = next;
        }
    }

    fn bad_next(&self, bucket: u32, block: u32, next: u32) -> Option<String> {
        let before = format!("block {block} of bucket {bucket} leads to block {next}");
        let Some(about) = self.pages.get(next as usize) else {
            return Some(format!("{before}, but the index has {} blocks", self.pages.len()));
        };
        if !about.is_settled {
            return None;
        }
        if !about.is(flag::OVERFLOW) {
            return Some(format!("{before}, which is no overflow page"));
        }
        if about.bucket != bucket {
            return Some(format!("{before}, which is of bucket {}", about.bucket));
        }
        if about.prev != block {
            return Some(format!("{before}, but the page before block {next} is {}", block_name(about.prev)));
        }
        about.is_reached.then(|| format!("{before}, which was in a chain before"))
    }

    /// Compares the bitmaps with the pages. A bit is set for a page in use; bits beyond the last page are set, too.
    pub(super) fn compare_bitmaps(&self, meta: &Meta, blocks: &mut Blocks, report: &mut Report<'_>) -> Result<()> {
        let (maps, bits) = meta.bitmaps();
        let mut told = Few::default();
        let mut comparable = Comparable::of(blocks);
        for (i, map) in maps.iter().enumerate() {
            let first = i as u32 * bits;
            if *map as usize >= self.pages.len() {
                let message =
                    format!("bitmap {i} should be block {map}, but the index has {} blocks", self.pages.len());
                report.found(self.names.problem("meta", 0, None, message, "inserts fail"));
                continue;
            }
            let Some(page) = blocks.read(*map)? else { continue };
            if !comparable.take(&page) {
                continue;
            }
            if page.kind != Kind::HashBitmap {
                let message = format!("bitmap {i} should be block {map}, but that is a {} page", page.kind.as_str());
                report.found(self.names.problem("meta", 0, None, message, "inserts fail"));
                continue;
            }
            for bit in first..first.saturating_add(bits) {
                let at = 24 + ((bit - first) / 8) as usize;
                let in_use = page.bytes.get(at).is_some_and(|byte| byte >> (bit % 8) & 1 != 0);
                if bit >= meta.overflow_pages() {
                    if !in_use && told.take(*map) {
                        let message = format!(
                            "bit {bit} of bitmap {i} is free, but there are {} overflow pages",
                            meta.overflow_pages()
                        );
                        let means = "an insert uses a page twice, and rows are lost";
                        report.found(self.names.problem("bitmap", *map, None, message, means));
                    }
                    continue;
                }
                let block = meta.overflow_page(bit);
                if let Some((message, means)) = self.bad_bit(block, in_use, maps) {
                    if told.take(block) {
                        report.found(self.names.problem("bitmap", block, None, message, means));
                    }
                }
            }
        }
        told.tell(report);
        Ok(())
    }

    fn bad_bit(&self, block: u32, in_use: bool, maps: &[u32]) -> Option<(String, &'static str)> {
        let about = self.pages.get(block as usize).filter(|about| about.is_settled)?;
        let is_overflow = about.is(flag::OVERFLOW);
        if !in_use && is_overflow {
            let message =
                format!("block {block} is an overflow page of bucket {}, but free in the bitmap", about.bucket);
            return Some((message, "an insert uses the page for another bucket, and rows are lost"));
        }
        if !in_use && about.is(flag::BITMAP) {
            return Some((
                format!("block {block} is a bitmap, but free in the bitmap"),
                "an insert overwrites the page",
            ));
        }
        if in_use && is_overflow && !about.is_reached && self.whole.get(about.bucket as usize).copied().unwrap_or(false)
        {
            let message = format!("block {block} is an overflow page of bucket {}, but not in its chain", about.bucket);
            return Some((message, LOST));
        }
        let is_map = || about.is(flag::BITMAP) && maps.contains(&block);
        (in_use && !is_overflow && !is_map()).then(|| {
            (format!("block {block} is in use in the bitmap, but is no overflow page"), "the page is never used again")
        })
    }
}
