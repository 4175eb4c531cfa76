//! The pages of each level from left to right, against the downlinks to them.
//!
//! From one page with a downlink to the next one, the downlinks must be neighbours too, and the key between them a copy of the high key of the
//! page before (verify_nbtree.c, `bt_child_highkey_check`). Pages without a downlink may only be between them where a split or a deletion
//! was interrupted.

use super::found::{AllFound, Found};
use super::rows::{Row, Up};
use super::tree::{Tree, MOST_LEVELS};

const MISSES: &str = "an index scan misses rows";

/// What is right of a downlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The downlink of this number in this block.
    Is(u32, u16),
    None,
    Unknown,
}

/// One way along a level.
struct Way<'a, 'b> {
    tree: &'a Tree<'b>,
    /// The last downlink and the page that it leads to; at the beginning of a level there is none before the first.
    last: Option<(Up, u32)>,
    is_at_beginning: bool,
    /// The first page behind it that has none and should have.
    gap: Option<u32>,
    /// High key of the last page before the next downlink.
    bound: Option<(u32, u32)>,
    left_is_split: bool,
}

pub(super) struct Walk;

impl Walk {
    /// Goes along all levels; whether nothing was wrong.
    pub(super) fn all(tree: &Tree<'_>, found: &mut AllFound) -> bool {
        let mut seen = vec![false; tree.rows.len()];
        let mut is_right = true;
        let linked = |block: &u32| tree.row(*block).is_linked();
        for block in (1..tree.rows.len() as u32).filter(linked) {
            let row = tree.row(block);
            if row.prev == 0 || !tree.are_siblings(row.prev, block) {
                is_right &= Way::of(tree, &row).walk(block, &mut seen, found);
            }
        }
        // All others are in circles.
        for block in (1..tree.rows.len() as u32).filter(linked) {
            if seen[block as usize] {
                continue;
            }
            is_right = false;
            let mut at = block;
            while !std::mem::replace(&mut seen[at as usize], true) {
                at = tree.row(at).next;
            }
            let message =
                format!("right siblings of block {block} lead back to it; expected to end at the rightmost page");
            found.push(Found::new("sibling", block, message, "an index scan never ends or misses rows"));
        }
        is_right
    }
}

impl<'a, 'b> Way<'a, 'b> {
    fn of(tree: &'a Tree<'b>, first: &Row) -> Way<'a, 'b> {
        let is_at_beginning = first.prev == 0;
        Way { tree, last: None, is_at_beginning, gap: None, bound: None, left_is_split: false }
    }

    fn walk(mut self, from: u32, seen: &mut [bool], found: &mut AllFound) -> bool {
        let mut is_right = true;
        let mut block = from;
        loop {
            if std::mem::replace(&mut seen[block as usize], true) {
                return is_right;
            }
            is_right &= self.page(block, found);
            let row = self.tree.row(block);
            if row.next == 0 {
                return self.end(block, found) && is_right;
            }
            if !self.tree.are_siblings(block, row.next) {
                return is_right;
            }
            block = row.next;
        }
    }

    fn page(&mut self, block: u32, found: &mut AllFound) -> bool {
        let tree = self.tree;
        let row = tree.row(block);
        match tree.is_dying(block) {
            Some(false) => {}
            Some(true) => {
                self.left_is_split = false;
                return true;
            }
            None => {
                *self = Way { is_at_beginning: false, left_is_split: row.is_split(), ..Way::of(tree, &row) };
                return true;
            }
        }
        let up = tree.ups[block as usize];
        let mut is_right = true;
        if up.parent != 0 {
            if self.left_is_split {
                let message = format!(
                    "a downlink in block {} leads to it, but its left sibling says that there is none yet",
                    up.parent
                );
                found.push(Found::new("split", block, message, MISSES).and(&[up.parent, row.prev]));
                (is_right, self.bound) = (false, None);
            } else {
                is_right = self.downlink(block, up, found);
            }
            (self.last, self.gap, self.is_at_beginning) = (Some((up, block)), None, false);
        } else if !self.left_is_split && !self.is_root(&row) {
            self.gap.get_or_insert(block);
        }
        self.left_is_split = row.is_split();
        if !row.is_split() {
            self.bound = Some((block, row.high_key));
        }
        is_right
    }

    fn is_root(&self, row: &Row) -> bool {
        self.tree.meta.is_none_or(|meta| !meta.is_settled || u32::from(row.level) >= meta.level)
    }

    /// Compares the downlink to a page with the one before.
    fn downlink(&mut self, block: u32, up: Up, found: &mut AllFound) -> bool {
        let tree = self.tree;
        let after = match self.last {
            Some((last, _)) => self.after(last),
            None if self.is_at_beginning => self.first_of(up),
            None => return true,
        };
        if after == After::Unknown {
            return true;
        }
        let before = self.last.map_or(0, |(_, block)| block);
        if after != After::Is(up.parent, up.order) {
            let wanted = match after {
                After::Is(parent, order) => format!("downlink {} of block {parent}", order + 1),
                _ => "no downlink".into(),
            };
            let where_from = if before == 0 {
                format!("block {block} is the leftmost page of its level")
            } else {
                format!("block {block} is the next page behind block {before} with a downlink")
            };
            let message = format!(
                "{where_from}, but its own is downlink {} of block {}; expected {wanted}",
                up.order + 1,
                up.parent
            );
            let mut wrong = Found::new("downlink", block, message, MISSES).and(&[up.parent]);
            wrong.others.extend((before != 0).then_some(before));
            wrong.others.extend(self.last.map(|(last, _)| last.parent));
            found.push(wrong);
            return false;
        }
        if let Some(gap) = self.gap {
            let message = match self.last {
                Some((last, left)) => format!(
                    "no downlink leads to block {gap}, which is between block {left} and block {block}, whose downlinks are neighbours in block {}",
                    last.parent
                ),
                None => format!("no downlink leads to block {gap}, which is left of the first page with one, block {block}"),
            };
            found.push(Found::new("downlink", gap, message, MISSES).and(&[up.parent, block]));
            return false;
        }
        let Some((left, high_key)) = self.bound else { return true };
        // The first downlink of a page has no key: the high key of the page before it stands for it.
        let separator = match self.last {
            Some((last, _)) if up.order == 0 => tree.row(last.parent).high_key,
            _ => up.separator,
        };
        let is_first = self.last.is_none();
        if !is_first && separator != 0 && high_key != 0 && separator != high_key {
            let what = match self.last {
                Some((last, _)) if up.order == 0 => format!("the high key of block {}", last.parent),
                _ => format!("the key of downlink {} in block {}", up.order + 1, up.parent),
            };
            let message = format!("high key of block {left} is not the same as {what}, which leads to block {block}");
            let parent = self.last.map_or(up.parent, |(last, _)| last.parent);
            found.push(Found::new("high_key", left, message, MISSES).and(&[up.parent, parent, block]));
            return false;
        }
        true
    }

    /// The downlink right of another one.
    fn after(&self, up: Up) -> After {
        let parent = self.tree.row(up.parent);
        if up.order + 1 < parent.items {
            return After::Is(up.parent, up.order + 1);
        }
        let mut block = up.parent;
        // Few pages in a row are being deleted.
        for _ in 0..MOST_LEVELS {
            let next = self.tree.row(block).next;
            if next == 0 {
                return After::None;
            }
            if !self.tree.are_siblings(block, next) {
                return After::Unknown;
            }
            block = next;
            match self.tree.is_dying(block) {
                Some(true) => {}
                Some(false) if self.tree.row(block).items > 0 => return After::Is(block, 0),
                _ => return After::Unknown,
            }
        }
        After::Unknown
    }

    /// What the first downlink of a level must be, if another one is the first that was met.
    fn first_of(&self, up: Up) -> After {
        let mut block = up.parent;
        for _ in 0..MOST_LEVELS {
            let prev = self.tree.row(block).prev;
            if prev == 0 {
                return After::Is(up.parent, 0);
            }
            if !self.tree.are_siblings(prev, block) {
                return After::Unknown;
            }
            block = prev;
            match (self.tree.is_dying(block), self.tree.row(block).items) {
                (Some(true), _) => {}
                (Some(false), 1..) => return After::Is(block, 0),
                _ => return After::Unknown,
            }
        }
        After::Unknown
    }

    /// The rightmost page of a level has the last downlink.
    fn end(&self, block: u32, found: &mut AllFound) -> bool {
        let Some((last, left)) = self.last else { return true };
        match self.after(last) {
            After::Is(parent, order) => {
                let message = format!(
                    "block {block} is the rightmost page of its level, but downlink {} of block {parent} comes after that to block {left}",
                    order + 1
                );
                found.push(Found::new("downlink", block, message, MISSES).and(&[parent, left, last.parent]));
                false
            }
            After::None => self.gap.is_none_or(|gap| {
                let message =
                    format!("no downlink leads to block {gap}; the last one of its level leads to block {left}");
                found.push(Found::new("downlink", gap, message, MISSES).and(&[left, last.parent]));
                false
            }),
            After::Unknown => true,
        }
    }
}
