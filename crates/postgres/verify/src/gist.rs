//! GiST indexes: each page has one downlink, all leaves are at the same depth, and keys of inner pages contain those below.
//!
//! Source: src/include/access/gist.h, src/backend/access/gist/README, gist.c (`gistplacetopage` logs all pages of a split in one record; until
//! their downlinks are in the parent, F_FOLLOW_RIGHT is set in all of them but the last), gistvacuum.c (`gistdeletepage` takes the downlink
//! away in the same record; right links to the page stay, and mean nothing).

mod keys;

use std::collections::HashMap;

use leadline_errors::Result;
use leadline_page::postgres::gist::{F_DELETED, F_LEAF};
use leadline_page::postgres::index_tuple::IndexTuple;
use leadline_page::postgres::Kind;

use crate::blocks::{Blocks, Page};
use crate::heap_tids::{Entries, Repeats, TakeTid};
use crate::index_pages::{self, items, u16_at, u32_at, Comparable, Few, Twice, NO_BLOCK};
use crate::problem::{Level, Report};
use crate::target::Target;

use keys::{Sort, Union};

/// `GIST_ROOT_BLKNO`.
const ROOT: u32 = 0;
const F_FOLLOW_RIGHT: u16 = 8;
/// Instead of the number of an item: an inner tuple that a crash before 9.1 left.
const TUPLE_IS_INVALID: u16 = 0xfffe;
const MOST_LEVELS: u32 = 64;
const LOST: &str = "index scans miss rows";

/// What is kept of each page.
#[derive(Debug, Clone, Copy)]
struct About {
    right: u32,
    flags: u16,
    /// It can be compared.
    is_settled: bool,
    has_items: bool,
    /// A page whose split is not complete leads here.
    follows: bool,
    parent: u32,
    /// The first child of an inner page.
    first: u32,
}

const NOTHING: About = About {
    right: NO_BLOCK,
    flags: 0,
    is_settled: false,
    has_items: false,
    follows: false,
    parent: NO_BLOCK,
    first: NO_BLOCK,
};

impl About {
    fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }
}

/// All pages of an index.
struct Tree<'a> {
    pages: Vec<About>,
    names: &'a Blocks,
    told: HashMap<&'static str, Few>,
    twice: Twice,
    /// All pages with downlinks could be compared.
    is_whole: bool,
    /// What contains all keys of each page, if their sort is known.
    unions: Option<(Sort, Vec<Union>)>,
}

/// Checks a GiST index.
///
/// # Errors
/// When the file system says no.
pub(crate) fn check(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    let Some(mut blocks) = index_pages::open(target, report)? else { return Ok(()) };
    let names = blocks.again();
    let before = index_pages::found(report);
    let sort = Sort::of(target);
    let (pages, are_all) = structure(&mut blocks, &names, sort, report)?;
    let is_whole = are_all && index_pages::found(report) == before;
    let repeats = Repeats::Wrong;
    let entries = Entries { index: *target, names: &names, repeats, is_whole, skips_nulls: false, level };
    entries.check(report, |take| each_tid(&mut blocks, &pages, take))
}

/// Compares the pages with each other, and says whether all of them could be compared.
fn structure(
    blocks: &mut Blocks,
    names: &Blocks,
    sort: Option<Sort>,
    report: &mut Report<'_>,
) -> Result<(Vec<About>, bool)> {
    let mut comparable = Comparable::of(blocks);
    let count = blocks.count() as usize;
    let mut tree = Tree {
        pages: vec![NOTHING; count],
        names,
        told: HashMap::new(),
        twice: Twice::default(),
        is_whole: false,
        unions: sort.map(|sort| (sort, vec![Union::default(); count])),
    };
    // Pages of zeros that are newer than the others have no downlinks.
    let mut new = 0;
    blocks.each(0..u32::MAX, |page| {
        if comparable.take_own(&page, is_own, names, report) {
            tree.take(&page, report);
        } else if page.kind == Kind::New && !page.is_settled {
            new += 1;
        }
        Ok(!report.is_stopped())
    })?;
    tree.is_whole = comparable.are_all_but(new);
    comparable.tell(report);
    tree.compare(report);
    tree.compare_keys(blocks, report)?;
    tree.told.values().for_each(|few| few.tell(report));
    Ok((tree.pages, comparable.are_all()))
}

fn is_own(block: u32, kind: Kind) -> bool {
    let is_free = block != ROOT && matches!(kind, Kind::GistDeleted | Kind::New);
    is_free || matches!(kind, Kind::GistLeaf | Kind::GistInner)
}

/// Goes through the rows of all leaves.
fn each_tid(blocks: &mut Blocks, pages: &[About], take: &mut TakeTid<'_>) -> Result<()> {
    blocks.each(0..u32::MAX, |page: Page<'_>| {
        let about = pages.get(page.block as usize).copied().unwrap_or(NOTHING);
        let is_reached = about.parent != NO_BLOCK || page.block == ROOT || about.follows;
        if page.is_settled && page.kind == Kind::GistLeaf && about.is_settled && is_reached {
            for (number, item) in items(&page) {
                take(page.block, number, IndexTuple::parse(item).unwrap_or_default().t_tid);
            }
        }
        Ok(true)
    })
}

impl Tree<'_> {
    fn found(
        &mut self,
        class: &'static str,
        at: (u32, Option<u16>),
        message: String,
        means: &'static str,
        report: &mut Report<'_>,
    ) {
        if self.told.entry(class).or_default().take(at.0) {
            report.found(self.names.problem(class, at.0, at.1, message, means));
        }
    }

    /// Notes a page and its downlinks.
    fn take(&mut self, page: &Page<'_>, report: &mut Report<'_>) {
        let special = page.special();
        let about = &mut self.pages[page.block as usize];
        about.is_settled = true;
        if page.kind == Kind::New {
            about.flags = F_DELETED;
            return;
        }
        (about.right, about.flags) = (u32_at(special, 8), u16_at(special, 12));
        // The NSN has the halves of an LSN: the high one first.
        let nsn = u64::from(u32_at(special, 0)) << 32 | u64::from(u32_at(special, 4));
        if page.kind == Kind::GistDeleted {
            return;
        }
        about.has_items = items(page).next().is_some();
        let flags = about.flags;
        let right = about.right;
        if flags & F_FOLLOW_RIGHT != 0 {
            match self.pages.get_mut(right as usize) {
                Some(about) => about.follows = true,
                None => {
                    let message = format!(
                        "the split of block {} is not complete, but its right sibling {right} is not there",
                        page.block
                    );
                    self.found("link", (page.block, None), message, LOST, report);
                }
            }
        }
        // Each change that sets it sets the LSN to the same, and no change makes that less.
        if nsn > page.header.pd_lsn && page.header.pd_lsn > 1 {
            let message = format!("NSN of block {} is {nsn:#x}, but its LSN is {:#x}", page.block, page.header.pd_lsn);
            self.found("nsn", (page.block, None), message, "rows may come back twice", report);
        }
        if page.kind == Kind::GistInner {
            items(page).for_each(|(number, item)| self.downlink(page.block, number, item, report));
        }
        if let Some((sort, unions)) = &mut self.unions {
            let union = &mut unions[page.block as usize];
            items(page).for_each(|(_, item)| union.add(sort.key(item)));
        }
    }

    fn downlink(&mut self, parent: u32, item: u16, tuple: &[u8], report: &mut Report<'_>) {
        let tid = IndexTuple::parse(tuple).unwrap_or_default().t_tid;
        let child = tid.block;
        let count = self.pages.len();
        let before = format!("item {item} of block {parent} leads to block {child}");
        let message = match self.pages.get_mut(child as usize) {
            None => format!("{before}, but the index has {count} blocks"),
            Some(_) if child == ROOT => format!("{before}, which is the root"),
            Some(about) if about.parent != NO_BLOCK && !self.twice.take(about.parent, parent) => return,
            Some(about) if about.parent != NO_BLOCK => format!("{before}, to which block {} leads too", about.parent),
            Some(about) => {
                about.parent = parent;
                let above = &mut self.pages[parent as usize];
                if above.first == NO_BLOCK {
                    above.first = child;
                }
                if tid.posid != TUPLE_IS_INVALID {
                    return;
                }
                let message = format!("item {item} of block {parent} is a tuple that a crash before 9.1 left");
                let means = "the server refuses to use the index";
                return self.found("invalid_tuple", (parent, Some(item)), message, means, report);
            }
        };
        self.found("downlink", (parent, Some(item)), message, "index scans miss rows, or find them twice", report);
    }

    /// Compares the pages with each other, when all were noted.
    fn compare(&mut self, report: &mut Report<'_>) {
        for block in 0..self.pages.len() as u32 {
            let about = self.pages[block as usize];
            if !about.is_settled || report.is_stopped() {
                continue;
            }
            if let Some(message) = self.bad_follow(block, &about) {
                self.found("link", (block, None), message, "rows may come back twice", report);
            }
            if about.parent != NO_BLOCK {
                if let Some(why) = self.bad_child(block, &about) {
                    let message = format!("block {} leads to block {block}, {why}", about.parent);
                    self.found("downlink", (about.parent, None), message, LOST, report);
                }
            } else if block != ROOT && !about.follows && self.is_whole && about.has_items && !about.has(F_DELETED) {
                let message = format!("no downlink leads to block {block}, which has items");
                self.found("unreached", (block, None), message, LOST, report);
            }
        }
    }

    /// The downlink of the right sibling and the end of the split are one record.
    fn bad_follow(&self, block: u32, about: &About) -> Option<String> {
        if !about.has(F_FOLLOW_RIGHT) || about.has(F_DELETED) {
            return None;
        }
        let right = self.pages.get(about.right as usize)?;
        let before =
            format!("the split of block {block} is not complete, but its right sibling, block {},", about.right);
        if right.parent != NO_BLOCK {
            return Some(format!("{before} has a downlink from block {}", right.parent));
        }
        (right.is_settled && right.has(F_DELETED)).then(|| format!("{before} is not in use"))
    }

    fn bad_child(&self, block: u32, about: &About) -> Option<String> {
        if about.has(F_DELETED) {
            return Some("which is not in use".into());
        }
        let (level, above) = (self.level(block)?, self.level(about.parent)?);
        (level + 1 != above)
            .then(|| format!("which is at level {level}, but should be at level {}", above.wrapping_sub(1)))
    }

    /// Levels below a page: on the way down along the first downlinks.
    fn level(&self, block: u32) -> Option<u32> {
        let mut at = block;
        for level in 0..MOST_LEVELS {
            let about = self.pages.get(at as usize).filter(|about| about.is_settled && !about.has(F_DELETED))?;
            if about.has(F_LEAF) {
                return Some(level);
            }
            at = about.first;
        }
        None
    }

    /// Compares the keys of inner pages with those below, if their sort is known. The key of a downlink is made larger before anything is put
    /// below it (`gistdoinsert`).
    fn compare_keys(&mut self, blocks: &mut Blocks, report: &mut Report<'_>) -> Result<()> {
        let Some((sort, unions)) = self.unions.take() else { return Ok(()) };
        blocks.each(0..u32::MAX, |page| {
            let about = self.pages[page.block as usize];
            if page.kind != Kind::GistInner || !about.is_settled || !page.is_settled {
                return Ok(true);
            }
            for (number, item) in items(&page) {
                let child = IndexTuple::parse(item).unwrap_or_default().t_tid.block;
                let below =
                    self.pages.get(child as usize).filter(|below| below.is_settled && below.parent == page.block);
                if below.is_none() || unions[child as usize].is_within(&sort.key(item)) {
                    continue;
                }
                let message = format!(
                    "the key of item {number} of block {} does not contain all keys of block {child}",
                    page.block
                );
                self.found("key", (page.block, Some(number)), message, LOST, report);
            }
            Ok(!report.is_stopped())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{found, page, tuple, words, Made, Random};

    fn special(right: u32, flags: u16) -> Vec<u8> {
        let mut special = words(&[0, 0, right]);
        special.extend(flags.to_le_bytes());
        special.extend(0xff81u16.to_le_bytes());
        special
    }

    fn key(numbers: [f64; 4]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    /// A root with two leaves.
    fn pages() -> Vec<Vec<u8>> {
        let (low, high) = (key([1.0, 1.0, 0.0, 0.0]), key([9.0, 9.0, 5.0, 5.0]));
        vec![
            page(&[tuple(1, 0xffff, &low), tuple(2, 0xffff, &high)], &special(NO_BLOCK, 0)),
            page(&[tuple(0, 1, &low)], &special(2, 1)),
            page(&[tuple(0, 2, &high)], &special(NO_BLOCK, 1)),
        ]
    }

    fn problems(name: &str, pages: &[Vec<u8>]) -> Vec<String> {
        let made = Made::new(name, pages);
        found(|report| drop(structure(&mut made.blocks(), &made.blocks(), Some(Sort::Box), report).unwrap()))
    }

    #[test]
    fn each_page_has_one_downlink_whose_key_contains_its_keys() {
        assert_eq!(problems("gist", &pages()), Vec::<String>::new());
        let changed = |block: usize, at: usize, to: u8| {
            let mut pages = pages();
            pages[block][at] = to;
            problems(&format!("gist-{block}-{at}"), &pages)
        };
        let (first, second) = (8176 - 40, 8176 - 80);
        let twice = "downlink: item 2 of block 0 leads to block 1, to which block 0 leads too";
        assert_eq!(changed(0, second + 2, 1)[..2], [twice, "unreached: no downlink leads to block 2, which has items"]);
        assert_eq!(changed(2, 8176 + 12, 3), ["downlink: block 0 leads to block 2, which is not in use"]);
        assert_eq!(
            changed(0, first + 8 + 7, 0),
            ["key: the key of item 1 of block 0 does not contain all keys of block 1"]
        );
        assert!(changed(1, 8176 + 12, 9)[0].starts_with("link: the split of block 1 is not complete"));
    }

    #[test]
    fn a_split_that_is_not_complete_is_no_problem() {
        let mut pages = pages();
        pages[0][12] -= 4;
        pages[1][8176 + 12] |= 8;
        assert_eq!(problems("gist-split", &pages), Vec::<String>::new());
    }

    #[test]
    fn damaged_pages_never_stop_the_check() {
        let mut random = Random(5);
        for _ in 0..300 {
            let mut pages = pages();
            random.damage(&mut pages);
            problems("gist-random", &pages);
        }
    }
}
