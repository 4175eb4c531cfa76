//! SP-GiST indexes: each chain of leaf tuples and each inner tuple has one downlink, and downlinks lead to nothing else.
//!
//! Source: src/include/access/spgist_private.h, src/backend/access/spgist/README, spgdoinsert.c (what moves, and the downlink to it, are in
//! one record; redirects are for scans that are under way alone), spgvacuum.c (a chain of which nothing is left keeps a dead tuple at its
//! head).

mod pages;

use leadline_errors::Result;
use leadline_page::postgres::index_tuple::IndexTuple;
use leadline_page::postgres::spgist::{SpgistTuple, SPGIST_NULLS};
use leadline_page::postgres::Kind;

use crate::blocks::{Blocks, Page};
use crate::heap_tids::{Entries, Repeats, TakeTid};
use crate::index_pages::{self, items, u16_at, Comparable, Few, ItemBits};
use crate::problem::{Level, Report};
use crate::target::Target;

/// `SPGIST_NULL_BLKNO`: the root of the tree of nulls. The one before it is of the others.
const LAST_ROOT: u32 = 2;
const LOST: &str = "index scans miss rows, or fail";

/// What is kept of each page beside the bits of its items.
#[derive(Debug, Clone, Copy, Default)]
struct About {
    /// It can be compared.
    is_settled: bool,
    /// Downlinks of the tree of nulls lead here, and those of the other tree.
    of_nulls: bool,
    of_values: bool,
}

/// All pages of an index.
struct Tree<'a> {
    pages: Vec<About>,
    /// Items to which downlinks lead.
    linked: ItemBits,
    names: &'a Blocks,
    /// All inner pages could be compared.
    is_whole: bool,
    links: Few,
}

/// Checks an SP-GiST index.
///
/// # Errors
/// When the file system says no.
pub(crate) fn check(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    let Some(mut blocks) = index_pages::open(target, report)? else { return Ok(()) };
    let names = blocks.again();
    let before = index_pages::found(report);
    let (pages, are_all) = structure(&mut blocks, &names, report)?;
    let is_whole = are_all && index_pages::found(report) == before;
    let repeats = Repeats::Wrong;
    let entries = Entries { index: *target, names: &names, repeats, is_whole, skips_nulls: false, level };
    entries.check(report, |take| each_tid(&mut blocks, &pages, take))
}

/// Compares the pages with each other, and says whether all of them could be compared.
fn structure(blocks: &mut Blocks, names: &Blocks, report: &mut Report<'_>) -> Result<(Vec<About>, bool)> {
    let mut comparable = Comparable::of(blocks);
    let count = blocks.count();
    let mut tree = Tree {
        pages: vec![About::default(); count as usize],
        // The least tuple has 16 bytes, and a line pointer of 4.
        linked: ItemBits::new(0..count, blocks.block_size() / 20),
        names,
        is_whole: false,
        links: Few::default(),
    };
    let (mut counts, mut chains) = (Few::default(), Few::default());
    // Pages of zeros that are newer than the others have no downlinks.
    let mut new = 0;
    blocks.each(0..u32::MAX, |page| {
        if !comparable.take_own(&page, is_own, names, report) {
            new += u32::from(page.kind == Kind::New && !page.is_settled);
            return Ok(true);
        }
        tree.pages[page.block as usize].is_settled = true;
        let is_leaf = page.kind == Kind::SpgistLeaf;
        if is_leaf || page.kind == Kind::SpgistInner {
            if let Some(message) = pages::bad_counts(&page).filter(|_| counts.take(page.block)) {
                report.found(names.problem("count", page.block, None, message, "VACUUM does not clean the page up"));
            }
        }
        if page.kind == Kind::SpgistInner {
            tree.downlinks(&page, report);
        }
        if is_leaf && page.block > LAST_ROOT {
            if let Some((item, message)) = pages::Chains::of(&page).wrong.filter(|_| chains.take(page.block)) {
                report.found(names.problem("chain", page.block, Some(item), message, LOST));
            }
        }
        Ok(!report.is_stopped())
    })?;
    tree.is_whole = comparable.are_all_but(new);
    comparable.tell(report);
    tree.compare(blocks, report)?;
    [&tree.links, &counts, &chains].iter().for_each(|few| few.tell(report));
    Ok((tree.pages, comparable.are_all()))
}

fn is_own(block: u32, kind: Kind) -> bool {
    let is_tree = matches!(kind, Kind::SpgistLeaf | Kind::SpgistInner);
    match block {
        0 => kind == Kind::SpgistMeta,
        1..=LAST_ROOT => is_tree,
        _ => is_tree || kind == Kind::New,
    }
}

/// Goes through the rows of all leaf tuples.
fn each_tid(blocks: &mut Blocks, pages: &[About], take: &mut TakeTid<'_>) -> Result<()> {
    blocks.each(0..u32::MAX, |page: Page<'_>| {
        if page.is_settled
            && page.kind == Kind::SpgistLeaf
            && pages.get(page.block as usize).is_some_and(|about| about.is_settled)
        {
            for (number, item) in items(&page) {
                if let Some(tuple) = SpgistTuple::parse(item, true).filter(SpgistTuple::is_live) {
                    take(page.block, number, tuple.item.t_tid);
                }
            }
        }
        Ok(true)
    })
}

impl Tree<'_> {
    fn found(&mut self, block: u32, item: u16, message: String, report: &mut Report<'_>) {
        if self.links.take(block) {
            report.found(self.names.problem("downlink", block, Some(item), message, LOST));
        }
    }

    /// Notes where the nodes of an inner page lead to.
    fn downlinks(&mut self, page: &Page<'_>, report: &mut Report<'_>) {
        let is_nulls = u16_at(page.special(), 0) & SPGIST_NULLS != 0;
        for (number, item) in items(page) {
            let Some(tuple) = SpgistTuple::parse(item, false).filter(SpgistTuple::is_live) else { continue };
            let mut at = SpgistTuple::head(false) + tuple.prefix();
            for _ in 0..tuple.nodes() {
                let Some(node) = item.get(at..).and_then(IndexTuple::parse) else { break };
                at += node.size().max(8);
                if node.t_tid.posid != 0 {
                    self.downlink(page.block, number, node, is_nulls, report);
                }
            }
        }
    }

    fn downlink(&mut self, block: u32, item: u16, node: IndexTuple, is_nulls: bool, report: &mut Report<'_>) {
        let to = node.t_tid;
        let before = format!("a node of item {item} of block {block} leads to {to}");
        let count = self.pages.len();
        let message = match self.pages.get_mut(to.block as usize) {
            None => format!("{before}, but the index has {count} blocks"),
            Some(_) if to.block <= LAST_ROOT => format!("{before}, which is no child of any"),
            Some(about) => {
                about.of_nulls |= is_nulls;
                about.of_values |= !is_nulls;
                match self.linked.set(to.block, to.posid) {
                    Some(false) => return,
                    Some(true) => format!("{before}, to which another one leads too"),
                    None => format!("{before}, but no page has so many items"),
                }
            }
        };
        self.found(block, item, message, report);
    }

    /// Compares items with the downlinks, when all were noted.
    fn compare(&mut self, blocks: &mut Blocks, report: &mut Report<'_>) -> Result<()> {
        let mut unreached = Few::default();
        blocks.each(LAST_ROOT + 1..u32::MAX, |page| {
            let about = self.pages[page.block as usize];
            if !about.is_settled || !page.is_settled {
                return Ok(true);
            }
            let block = page.block;
            let is_nulls = u16_at(page.special(), 0) & SPGIST_NULLS != 0;
            if page.kind != Kind::New && (about.of_nulls && !is_nulls || about.of_values && is_nulls) {
                let message = format!(
                    "the tree of {} leads to block {block}, which is of the other tree",
                    if is_nulls { "values" } else { "nulls" }
                );
                self.found(block, 1, message, report);
                return Ok(true);
            }
            let chains = pages::Chains::of(&page);
            let linked: Vec<u16> = self.linked.of_block(block).collect();
            for item in linked {
                if let Some(why) = chains.bad_target(&page, item) {
                    let message = format!("a downlink leads to item {item} of block {block}, {why}");
                    self.found(block, item, message, report);
                }
            }
            if self.is_whole {
                for item in chains.heads.iter().filter(|item| !self.linked.is_set(block, **item)) {
                    if unreached.take(block) {
                        let message = format!("no downlink leads to item {item} of block {block}");
                        report.found(self.names.problem(
                            "unreached",
                            block,
                            Some(*item),
                            message,
                            "index scans miss rows",
                        ));
                    }
                }
            }
            Ok(!report.is_stopped())
        })?;
        unreached.tell(report);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{found, page, page_of, tid, words, Made, Random};

    fn special(flags: u16, redirects: u16, placeholders: u16) -> Vec<u8> {
        [flags, redirects, placeholders, 0xff82].iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn leaf(state: u32, next: u16, row: u16) -> Vec<u8> {
        let mut item = words(&[16 << 2 | state]);
        item.extend(next.to_le_bytes());
        item.extend(tid(0, row));
        item.resize(16, 0);
        item
    }

    fn inner(nodes: &[[u8; 6]]) -> Vec<u8> {
        let mut item = words(&[(nodes.len() as u32) << 3]);
        item.extend((8 + 8 * nodes.len() as u16).to_le_bytes());
        item.extend([0, 0]);
        nodes.iter().for_each(|node| item.extend([&node[..], &[8, 0]].concat()));
        item
    }

    /// A root whose nodes lead to two chains on one page, and to a chain of which nothing is left.
    fn pages() -> Vec<Vec<u8>> {
        let leaves = [leaf(0, 3, 1), leaf(0, 0, 2), leaf(0, 0, 3), leaf(2, 0, 0), leaf(3, 0, 0)];
        let mut meta = words(&[0xba0b_abee]);
        meta.resize(72, 0);
        vec![
            page_of(&meta, &special(1, 0, 0)),
            page(&[inner(&[tid(3, 1), tid(3, 2), tid(u32::MAX, 0), tid(3, 4)])], &special(0, 0, 0)),
            page(&[], &special(4 | 8, 0, 0)),
            page(&leaves, &special(4, 0, 1)),
        ]
    }

    fn problems(name: &str, pages: &[Vec<u8>]) -> Vec<String> {
        let made = Made::new(name, pages);
        found(|report| drop(structure(&mut made.blocks(), &made.blocks(), report).unwrap()))
    }

    #[test]
    fn each_chain_has_one_downlink() {
        assert_eq!(problems("spgist", &pages()), Vec::<String>::new());
        let changed = |block: usize, at: usize, to: u8| {
            let mut pages = pages();
            pages[block][at] = to;
            problems(&format!("spgist-{block}-{at}"), &pages)
        };
        let node = |n: usize| 8184 - 40 + 8 + 8 * n + 4;
        let leaf = |n: usize| 8184 - 16 * n;
        assert_eq!(
            changed(1, node(1), 5)[0],
            "downlink: a downlink leads to item 5 of block 3, which is a placeholder"
        );
        assert_eq!(changed(1, node(1), 0), ["unreached: no downlink leads to item 2 of block 3"]);
        assert!(changed(1, node(1), 1)[0].ends_with("leads to (3,1), to which another one leads too"));
        assert_eq!(changed(3, leaf(1) + 4, 4)[0], "chain: item 1 of block 3 leads to item 4, which is not live");
        assert_eq!(changed(3, leaf(3) + 4, 1)[0], "chain: item 1 of block 3 is in a chain that begins nowhere");
        assert_eq!(changed(3, 8184 + 2, 2)[0], "count: block 3 has 0 redirects, but says 2");
        assert!(changed(3, 8184, 4 | 8)[0].contains("of the other tree"));
    }

    #[test]
    fn damaged_pages_never_stop_the_check() {
        let mut random = Random(9);
        for _ in 0..300 {
            let mut pages = pages();
            random.damage(&mut pages);
            problems("spgist-random", &pages);
        }
    }
}
