//! GIN indexes: the tree of entries, the trees of rows, the list of pending entries.
//!
//! Source: src/include/access/ginblock.h, src/backend/access/gin/README, ginbtree.c (a split and its downlink are two records: the flag
//! GIN_INCOMPLETE_SPLIT stands between them), gindatapage.c, ginvacuum.c (`ginDeletePage` changes the page, its left sibling and its parent
//! in one record), ginfast.c.

mod entries;
mod lists;
mod pending;
mod tids;
mod tree;

use leadline_errors::Result;
use leadline_page::postgres::gin::{GIN_DELETED, GIN_LIST};
use leadline_page::postgres::{gin::Opaque, Kind};

use crate::blocks::{Blocks, Page};
use crate::heap_tids::{Entries, Repeats, TakeTid};
use crate::index_pages::{self, Comparable, NO_BLOCK};
use crate::problem::{Level, Report};
use crate::target::Target;

use pending::Meta;
use tree::Tree;

const INCOMPLETE_SPLIT: u16 = 1 << 6;
const COMPRESSED: u16 = 1 << 7;
/// Which block is the right sibling by the downlinks: not known.
const UNKNOWN: u32 = NO_BLOCK - 1;

/// What is kept of each page.
#[derive(Debug, Clone, Copy)]
struct About {
    right: u32,
    flags: u16,
    /// Of a page of the pending list: rows in it.
    maxoff: u16,
    /// It can be compared.
    is_settled: bool,
    /// An entry has its rows in the tree that begins here, or it is in the pending list.
    is_root: bool,
    /// The page with its downlink.
    parent: u32,
    /// Its right sibling by the downlinks.
    expected: u32,
    /// Its right bound by its downlink, and by itself; its first row. All as [`order`](super::tids::order) has them.
    key: u64,
    bound: u64,
    low: u64,
}

const NOTHING: About = About {
    right: NO_BLOCK,
    flags: 0,
    maxoff: 0,
    is_settled: false,
    is_root: false,
    parent: NO_BLOCK,
    expected: UNKNOWN,
    key: 0,
    bound: 0,
    low: 0,
};

impl About {
    fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// It is in a tree.
    fn is_live(&self) -> bool {
        self.is_settled && !self.has(GIN_DELETED | GIN_LIST)
    }
}

/// Checks a GIN index.
///
/// # Errors
/// When the file system says no.
pub(crate) fn check(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    let Some(mut blocks) = index_pages::open(target, report)? else { return Ok(()) };
    let names = blocks.again();
    let before = index_pages::found(report);
    let orders = entries::Orders::of(target);
    let (tree, are_all) = structure(&mut blocks, &names, &orders, report)?;
    let is_whole = are_all && index_pages::found(report) == before;
    let repeats = Repeats::Right;
    let entries = Entries { index: *target, names: &names, repeats, is_whole, skips_nulls: false, level };
    entries.check(report, |take| each_tid(&mut blocks, &tree, take))
}

/// Compares the pages with each other, and says whether all of them could be compared.
fn structure<'a>(
    blocks: &mut Blocks,
    names: &'a Blocks,
    orders: &entries::Orders,
    report: &mut Report<'_>,
) -> Result<(Tree<'a>, bool)> {
    let mut comparable = Comparable::of(blocks);
    let mut tree = Tree::new(blocks.count(), names);
    let mut meta = None;
    blocks.each(0..u32::MAX, |page| {
        if !comparable.take_own(&page, is_own, names, report) {
            return Ok(true);
        }
        if page.kind == Kind::New {
            tree.take_new(page.block);
            return Ok(true);
        }
        let Some(opaque) = Opaque::parse(page.special()) else { return Ok(true) };
        tree.take(&page, &opaque);
        match page.kind {
            Kind::GinDataLeaf => lists::check_leaf(&page, &opaque, &mut tree, report),
            Kind::GinDataInner => tree.data_downlinks(&page, &opaque, report),
            Kind::GinEntryInner => tree.entry_downlinks(&page, report),
            Kind::GinEntryLeaf => entries::check(&page, orders, &mut tree, report),
            Kind::GinMeta if page.block == 0 => meta = Meta::parse(page.bytes),
            _ => {}
        }
        Ok(!report.is_stopped())
    })?;
    comparable.tell(report);
    tree.compare(report);
    let mut are_all = comparable.are_all();
    if let Some(meta) = meta {
        pending::check(&meta, &mut tree, report);
        // Before 9.1, rows without keys had no entry.
        are_all &= meta.version > 0;
    }
    tree.tell(report);
    Ok((tree, are_all))
}

fn is_own(block: u32, kind: Kind) -> bool {
    let is_entry = matches!(kind, Kind::GinEntryLeaf | Kind::GinEntryInner);
    let is_row =
        matches!(kind, Kind::GinDataLeaf | Kind::GinDataInner | Kind::GinPending | Kind::GinDeleted | Kind::New);
    match block {
        0 => kind == Kind::GinMeta,
        1 => is_entry,
        _ => is_entry || is_row,
    }
}

/// Goes through the rows of all entries. Trees that no entry leads to are left out: a crash leaves some, and VACUUM does not find them.
fn each_tid(blocks: &mut Blocks, tree: &Tree<'_>, take: &mut TakeTid<'_>) -> Result<()> {
    blocks.each(0..u32::MAX, |page: Page<'_>| {
        if !page.is_settled || !tree.is_reached(page.block) {
            return Ok(true);
        }
        match page.kind {
            Kind::GinDataLeaf => lists::leaf_tids(&page, &mut |tid| take(page.block, 0, tid)),
            Kind::GinEntryLeaf => entries::tids(&page, &mut |number, tid| take(page.block, number, tid)),
            Kind::GinPending => index_pages::items(&page).for_each(|(number, item)| {
                if let Some(tuple) = leadline_page::postgres::index_tuple::IndexTuple::parse(item) {
                    take(page.block, number, tuple.t_tid);
                }
            }),
            _ => {}
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{found, page, page_of, tid, tuple, words, Made, Random};

    fn special(right: u32, maxoff: u16, flags: u16) -> Vec<u8> {
        let mut special = words(&[right]);
        special.extend(maxoff.to_le_bytes());
        special.extend(flags.to_le_bytes());
        special
    }

    /// A page of a tree of rows: its right bound, and what follows.
    fn data(bound: [u8; 6], contents: &[u8], special: &[u8]) -> Vec<u8> {
        page_of(&[&bound[..], &[0, 0], contents].concat(), special)
    }

    fn list(block: u32, posid: u16, packed: &[u8]) -> Vec<u8> {
        [&tid(block, posid)[..], &(packed.len() as u16).to_le_bytes(), packed].concat()
    }

    fn child(block: u32, key: [u8; 6]) -> Vec<u8> {
        [&tid(block, 0)[..4], &key].concat()
    }

    /// One entry with a tree of two leaves.
    fn pages() -> Vec<Vec<u8>> {
        let mut meta = words(&[NO_BLOCK, NO_BLOCK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        meta.resize(56, 0);
        let entry = tuple(2, 0xffff, &words(&[7, 0]));
        let children = [child(3, tid(5, 9)), child(4, tid(0, 0))].concat();
        vec![
            page_of(&meta, &special(NO_BLOCK, 0, 8)),
            page(&[entry], &special(NO_BLOCK, 0, 2)),
            data(tid(0, 0), &children, &special(NO_BLOCK, 2, 1)),
            data(tid(5, 9), &list(1, 1, &[1, 2]), &special(4, 0, 0x83)),
            data(tid(0, 0), &list(6, 1, &[1, 2]), &special(NO_BLOCK, 0, 0x83)),
        ]
    }

    fn problems(name: &str, pages: &[Vec<u8>]) -> Vec<String> {
        let made = Made::new(name, pages);
        let orders = entries::Orders::default();
        found(|report| {
            structure(&mut made.blocks(), &made.blocks(), &orders, report).unwrap();
        })
    }

    #[test]
    fn pages_are_where_downlinks_and_siblings_say() {
        assert_eq!(problems("gin", &pages()), Vec::<String>::new());
        let changed = |block: usize, at: usize, to: &[u8]| {
            let mut pages = pages();
            pages[block][at..at + to.len()].copy_from_slice(to);
            problems(&format!("gin-{block}-{at}"), &pages)
        };
        let link = "link: right sibling of block 3 is no block, but by the downlinks of block 2 it is block 4";
        assert_eq!(changed(3, 8184, &words(&[NO_BLOCK])), [link]);
        assert_eq!(
            changed(3, 24, &tid(5, 8)),
            ["bound: right bound of block 3 is (5,8), but its downlink in block 2 has (5,9)"]
        );
        assert_eq!(changed(3, 24, &tid(1, 2))[0], "posting_list: block 3 has row (1,4), but its right bound is (1,2)");
        assert_eq!(
            changed(2, 32, &tid(4, 0)[..4])[0],
            "downlink: item 2 of block 2 leads to block 4, to which block 2 leads too"
        );
        assert_eq!(changed(0, 36, &[1])[0], "pending: nPendingPages should be 0, but is 1");
        assert_eq!(
            changed(4, 32, &tid(5, 9)),
            ["bound: the first row of block 4 is (5,9), but right bound of block 3, left of it, is (5,9)"]
        );
    }

    #[test]
    fn a_split_that_is_not_complete_is_no_problem() {
        let mut pages = pages();
        // The second leaf was split off and has no downlink yet.
        pages[2][8188] = 1;
        pages[3][8190] |= 0x40;
        assert_eq!(problems("gin-split", &pages), Vec::<String>::new());
    }

    #[test]
    fn damaged_pages_never_stop_the_check() {
        let mut random = Random(3);
        for _ in 0..300 {
            let mut pages = pages();
            random.damage(&mut pages);
            problems("gin-random", &pages);
        }
    }
}
