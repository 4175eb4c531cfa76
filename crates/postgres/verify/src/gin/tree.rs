//! The trees of a GIN index: each page has one downlink, and the right siblings are those that the downlinks say.

use std::collections::HashMap;

use leadline_page::postgres::gin::{Opaque, GIN_DATA, GIN_DELETED, GIN_LEAF, GIN_LIST};
use leadline_page::postgres::index_tuple::IndexTuple;

use super::tids::{order, tid_at, DATA};
use super::{About, INCOMPLETE_SPLIT, NOTHING, UNKNOWN};
use crate::blocks::{Blocks, Page};
use crate::index_pages::{block_name, items, u16_at, Few, Twice, NO_BLOCK};
use crate::problem::Report;

/// `GIN_ROOT_BLKNO`.
const ROOT: u32 = 1;
/// No tree has more levels: each has half as many pages at most.
const MOST_LEVELS: u32 = 32;
const LOST: &str = "index scans miss rows, or fail";

/// All pages of an index.
pub(super) struct Tree<'a> {
    pub(super) pages: Vec<About>,
    /// The first and the last downlink of an inner page.
    ends: HashMap<u32, (u32, u32)>,
    names: &'a Blocks,
    told: HashMap<&'static str, Few>,
    twice: Twice,
}

impl<'a> Tree<'a> {
    pub(super) fn new(count: u32, names: &'a Blocks) -> Tree<'a> {
        let mut pages = vec![NOTHING; count as usize];
        if let Some(root) = pages.get_mut(ROOT as usize) {
            root.is_root = true;
        }
        Tree { pages, ends: HashMap::new(), names, told: HashMap::new(), twice: Twice::default() }
    }

    /// Something is wrong.
    pub(super) fn found(
        &mut self,
        class: &'static str,
        block: u32,
        item: Option<u16>,
        message: String,
        means: &'static str,
        report: &mut Report<'_>,
    ) {
        if self.told.entry(class).or_default().take(block) {
            report.found(self.names.problem(class, block, item, message, means));
        }
    }

    /// What was found but not told.
    pub(super) fn tell(&self, report: &mut Report<'_>) {
        self.told.values().for_each(|few| few.tell(report));
    }

    /// Notes a page.
    pub(super) fn take(&mut self, page: &Page<'_>, opaque: &Opaque) {
        let about = &mut self.pages[page.block as usize];
        (about.right, about.flags, about.maxoff) = (opaque.rightlink, opaque.flags, opaque.maxoff);
        about.bound = if opaque.flags & GIN_DATA != 0 { order(tid_at(page.bytes, 24)) } else { 0 };
        about.is_settled = true;
    }

    /// Notes a page with nothing in it.
    pub(super) fn take_new(&mut self, block: u32) {
        let about = &mut self.pages[block as usize];
        (about.flags, about.is_settled) = (GIN_DELETED, true);
    }

    /// Notes the downlinks of an inner page of a tree of rows.
    pub(super) fn data_downlinks(&mut self, page: &Page<'_>, opaque: &Opaque, report: &mut Report<'_>) {
        let mut all = Downlinks::of(page.block);
        let places = page.bytes.get(DATA..usize::from(page.header.pd_special)).unwrap_or(&[]);
        for (i, item) in places.chunks_exact(10).take(opaque.maxoff.into()).enumerate() {
            let child = u32::from(u16_at(item, 0)) << 16 | u32::from(u16_at(item, 2));
            self.downlink(&mut all, i as u16 + 1, child, order(tid_at(item, 4)), report);
        }
        self.ends.extend(all.ends());
    }

    /// Notes the downlinks of an inner page of the tree of entries.
    pub(super) fn entry_downlinks(&mut self, page: &Page<'_>, report: &mut Report<'_>) {
        let mut all = Downlinks::of(page.block);
        for (number, item) in items(page) {
            let child = IndexTuple::parse(item).unwrap_or_default().t_tid.block;
            self.downlink(&mut all, number, child, 0, report);
        }
        self.ends.extend(all.ends());
    }

    fn downlink(&mut self, all: &mut Downlinks, item: u16, child: u32, key: u64, report: &mut Report<'_>) {
        let count = self.pages.len();
        let before = format!("item {item} of block {} leads to block {child}", all.parent);
        let message = match self.pages.get_mut(child as usize) {
            None => format!("{before}, but the index has {count} blocks"),
            Some(_) if child <= ROOT => format!("{before}, which is no child of any"),
            Some(about) if about.parent != NO_BLOCK && !self.twice.take(about.parent, all.parent) => {
                all.miss();
                return;
            }
            Some(about) if about.parent != NO_BLOCK => format!("{before}, to which block {} leads too", about.parent),
            Some(about) => {
                (about.parent, about.key) = (all.parent, key);
                if let Some(last) = all.last.filter(|_| all.is_whole) {
                    self.pages[last as usize].expected = child;
                }
                all.first.get_or_insert(child);
                (all.last, all.is_whole) = (Some(child), true);
                return;
            }
        };
        all.miss();
        self.found("downlink", all.parent, Some(item), message, LOST, report);
    }

    /// An entry has its rows in the tree that begins there.
    pub(super) fn root(&mut self, block: u32, item: u16, root: u32, report: &mut Report<'_>) {
        let count = self.pages.len();
        let before = format!("item {item} of block {block} has its rows in the tree at block {root}");
        let message = match self.pages.get_mut(root as usize) {
            None => format!("{before}, but the index has {count} blocks"),
            Some(_) if root <= ROOT => format!("{before}, which is no such tree"),
            Some(about) if about.is_root => format!("{before}, which is the root of another"),
            Some(about) => {
                about.is_root = true;
                return;
            }
        };
        self.found("posting_tree", block, Some(item), message, LOST, report);
    }

    /// Compares the pages with each other, when all were noted.
    pub(super) fn compare(&mut self, report: &mut Report<'_>) {
        self.expect_across_parents();
        for block in 1..self.pages.len() as u32 {
            let about = self.pages[block as usize];
            if !about.is_settled || report.is_stopped() {
                continue;
            }
            let wrong = self.bad_root(block, &about).or_else(|| self.bad_child(block, &about));
            if let Some((class, at, message)) = wrong.or_else(|| self.bad_sibling(block, &about)) {
                self.found(class, at, None, message, LOST, report);
            }
        }
    }

    /// The last child of a page stands left of the first child of its right sibling.
    fn expect_across_parents(&mut self) {
        for (parent, (_, last)) in &self.ends {
            let right = self.pages[*parent as usize].right;
            let next = if right == NO_BLOCK { Some(NO_BLOCK) } else { self.ends.get(&right).map(|(first, _)| *first) };
            if let Some(next) = next {
                self.pages[*last as usize].expected = next;
            }
        }
    }

    fn bad_root(&self, block: u32, about: &About) -> Option<(&'static str, u32, String)> {
        let is_entry = block == ROOT;
        if !about.is_root || about.has(GIN_LIST) {
            return None;
        }
        let message = if about.has(GIN_DELETED) {
            format!("block {block} is the root of a tree of rows, but not in use")
        } else if about.has(GIN_DATA) == is_entry {
            format!("block {block} is a root, but of the other sort of tree")
        } else if about.right != NO_BLOCK {
            format!("block {block} is a root, but has the right sibling {}", block_name(about.right))
        } else if about.parent != NO_BLOCK {
            format!("block {block} is a root, but has a downlink from block {}", about.parent)
        } else {
            return None;
        };
        Some(("posting_tree", block, message))
    }

    fn bad_child(&self, block: u32, about: &About) -> Option<(&'static str, u32, String)> {
        let parent = self.pages.get(about.parent as usize)?;
        let before = format!("block {} leads to block {block}", about.parent);
        let message = if about.has(GIN_DELETED) {
            format!("{before}, which is not in use")
        } else if about.has(GIN_LIST) || about.has(GIN_DATA) != parent.has(GIN_DATA) {
            format!("{before}, which is of another sort")
        } else {
            let (level, above) = (self.level(block)?, self.level(about.parent)?);
            if level + 1 == above {
                return None;
            }
            format!("{before}, which is at level {level}, but should be at level {}", above.wrapping_sub(1))
        };
        Some(("downlink", about.parent, message))
    }

    /// Levels below a page: on the way down along the first downlinks.
    fn level(&self, block: u32) -> Option<u32> {
        let mut at = block;
        for level in 0..MOST_LEVELS {
            let about = self.pages.get(at as usize).filter(|about| about.is_live())?;
            if about.has(GIN_LEAF) {
                return Some(level);
            }
            at = self.ends.get(&at)?.0;
        }
        None
    }

    /// Compares a page with its right sibling.
    fn bad_sibling(&mut self, block: u32, about: &About) -> Option<(&'static str, u32, String)> {
        if !about.is_live() {
            return None;
        }
        if about.parent != NO_BLOCK && about.expected != UNKNOWN && about.right != about.expected {
            let is_reached = about.has(INCOMPLETE_SPLIT) && self.leads_to(about.parent, about.right, about.expected);
            if !is_reached {
                let (right, expected) = (block_name(about.right), block_name(about.expected));
                let message = format!(
                    "right sibling of block {block} is {right}, but by the downlinks of block {} it is {expected}",
                    about.parent
                );
                return Some(("link", block, message));
            }
        }
        if !about.has(GIN_DATA) {
            return None;
        }
        // That of the last page of a level means nothing, but is the same in both places, too.
        if about.parent != NO_BLOCK && about.key != about.bound && !about.has(INCOMPLETE_SPLIT) {
            let message = format!(
                "right bound of block {block} is {}, but its downlink in block {} has {}",
                words(about.bound),
                about.parent,
                words(about.key)
            );
            return Some(("bound", block, message));
        }
        let right = self.pages.get(about.right as usize).filter(|right| right.is_live() && right.has(GIN_LEAF))?;
        (about.has(GIN_LEAF) && right.low != 0 && right.low <= about.bound).then(|| {
            let message = format!(
                "the first row of block {} is {}, but right bound of block {block}, left of it, is {}",
                about.right,
                words(right.low),
                words(about.bound)
            );
            ("bound", about.right, message)
        })
    }

    /// Whether siblings without a downlink lead to a page, as long as their splits are not complete. They are of the same parent then.
    fn leads_to(&mut self, parent: u32, from: u32, to: u32) -> bool {
        let mut block = from;
        for _ in 0..self.pages.len() {
            let Some(about) = self.pages.get_mut(block as usize) else { return false };
            if !about.is_settled {
                return true;
            }
            if about.parent != NO_BLOCK || !about.is_live() {
                return false;
            }
            (about.parent, about.key) = (parent, about.bound);
            block = about.right;
            if block == to {
                return true;
            }
        }
        false
    }

    /// Whether a root that is in use leads to this page.
    pub(super) fn is_reached(&self, block: u32) -> bool {
        let mut at = block;
        for _ in 0..MOST_LEVELS {
            let Some(about) = self.pages.get(at as usize).filter(|about| about.is_settled) else { return false };
            if about.is_root {
                return !about.has(GIN_DELETED);
            }
            at = about.parent;
        }
        false
    }
}

/// The downlinks of a page, while they are noted.
struct Downlinks {
    parent: u32,
    first: Option<u32>,
    last: Option<u32>,
    /// Nothing is missing between the last one and the next.
    is_whole: bool,
    is_first_known: bool,
}

impl Downlinks {
    fn of(parent: u32) -> Downlinks {
        Downlinks { parent, first: None, last: None, is_whole: true, is_first_known: true }
    }

    /// What is left of the child that a downlink should lead to is not known, nor which one is the first.
    fn miss(&mut self) {
        self.is_whole = false;
        self.is_first_known &= self.first.is_some();
    }

    fn ends(&self) -> Option<(u32, (u32, u32))> {
        // Without the first or the last one it is not known which children have which neighbours.
        let last = self.last.filter(|_| self.is_whole && self.is_first_known)?;
        Some((self.parent, (self.first?, last)))
    }
}

/// A row pointer in words.
fn words(order: u64) -> String {
    format!("({},{})", order >> 16, order & 0xffff)
}
