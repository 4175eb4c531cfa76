//! Links between the pages of a btree: root, siblings, downlinks.

use std::collections::{HashMap, HashSet};

use super::about::About;
use super::found::{AllFound, Found};
use super::meta::Meta;
use super::rows::{Downlink, Row, State, Up, BTP_ROOT};
use super::tree::Tree;
use super::walk::Walk;
use crate::blocks::Settled;

const MISSES: &str = "an index scan misses rows";
const FAILS: &str = "index scans fail or miss rows";

pub(super) fn check(
    about: &About,
    meta: Option<&Meta>,
    rows: &[Row],
    downlinks: Vec<Vec<Downlink>>,
    found: &mut AllFound,
) {
    let mut tree = Tree { about, meta, rows, only_child: HashMap::new(), ups: vec![Up::default(); rows.len()] };
    tree.root(found);
    let told = tree.siblings(found);
    tree.downlinks(downlinks, found);
    let walk = Walk::all(&tree, found);
    if told.is_empty() && walk {
        tree.levels(found);
    }
}

impl Tree<'_> {
    fn root(&self, found: &mut AllFound) {
        let Some(meta) = self.meta.filter(|meta| meta.is_settled) else { return };
        let mut wrong = |message: String, block: u32| {
            found.push(Found::new("meta", 0, message, FAILS).and(if block == 0 {
                &[]
            } else {
                std::slice::from_ref(&block)
            }));
        };
        if meta.root == 0 {
            // An index without rows: there is no root yet.
            if meta.fast_root != 0 {
                wrong(format!("no root, but block {} is the fast root; expected none", meta.fast_root), 0);
            }
            return;
        }
        for (name, block, level) in [("root", meta.root, meta.level), ("fast root", meta.fast_root, meta.fast_level)] {
            let row = self.row(block);
            let is_beyond = block >= self.about.blocks;
            match row.state {
                _ if block == 0 || is_beyond && self.about.settled == Settled::All => {
                    wrong(
                        format!(
                            "{name} is block {block}; expected one of the index, which has {} blocks",
                            self.about.blocks
                        ),
                        0,
                    );
                }
                State::Unknown => {}
                State::Live if u32::from(row.level) != level => {
                    wrong(format!("level of the {name} is {level}, but that of block {block} is {}", row.level), block);
                }
                State::Live if row.prev != 0 => {
                    wrong(
                        format!("{name} is block {block}, which has a left sibling, block {}; expected none", row.prev),
                        block,
                    );
                }
                State::Live if name == "root" && row.next != 0 && !row.is_split() => {
                    wrong(
                        format!("root is block {block}, which has a right sibling, block {}; expected none", row.next),
                        block,
                    );
                }
                State::Live if name == "root" && row.flags & BTP_ROOT == 0 && !row.is_split() => {
                    wrong(format!("root is block {block}, whose flags do not say that it is a root"), block);
                }
                State::Live => {}
                state => wrong(format!("{name} is block {block}, which is {}", said(state)), block),
            }
        }
        if meta.fast_level > meta.level {
            wrong(format!("level of the fast root is {}, that of the root is {}", meta.fast_level, meta.level), 0);
        }
        for (block, row) in self.live() {
            if block != meta.root && row.flags & BTP_ROOT != 0 {
                let message = format!("flags say that it is the root, which is block {}", meta.root);
                found.push(Found::new("root", block, message, FAILS).and(&[0]));
            }
            if u32::from(row.level) > meta.level {
                let message =
                    format!("level is {}, but that of the root, block {}, is {}", row.level, meta.root, meta.level);
                found.push(Found::new("level", block, message, FAILS).and(&[0]));
            }
        }
    }

    /// Live pages with their numbers.
    fn live(&self) -> impl Iterator<Item = (u32, &Row)> {
        (0..).zip(self.rows).filter(|(_, row)| row.state == State::Live)
    }

    /// Left and right siblings of each page; the blocks that something is told of.
    fn siblings(&self, found: &mut AllFound) -> HashSet<u32> {
        let mut told = HashSet::new();
        for to_right in [true, false] {
            for (block, row) in (0..).zip(self.rows).filter(|(_, row)| row.is_linked()) {
                let other = if to_right { row.next } else { row.prev };
                if other == 0 || !to_right && (told.contains(&block) || told.contains(&other)) {
                    continue;
                }
                if let Some(message) = self.sibling(block, row, other, to_right) {
                    told.extend([block, other]);
                    found.push(Found::new("sibling", block, message, MISSES).and(&[other]));
                }
            }
        }
        told
    }

    fn sibling(&self, block: u32, row: &Row, other: u32, to_right: bool) -> Option<String> {
        let (side, back) = if to_right { ("right", "left") } else { ("left", "right") };
        let of = self.row(other);
        if other >= self.about.blocks {
            let message = format!("{side} sibling is block {other}, but the index has {} blocks", self.about.blocks);
            return (self.about.settled == Settled::All).then_some(message);
        }
        if other == block {
            return Some(format!("{side} sibling of block {block} is itself"));
        }
        match of.state {
            State::Unknown | State::Other => None,
            State::New | State::Deleted => {
                Some(format!("{side} sibling of block {block} is block {other}, which is {}", said(of.state)))
            }
            State::HalfDead | State::Live => {
                let its = if to_right { of.prev } else { of.next };
                if its != block {
                    let its = if its == 0 { "none".to_owned() } else { format!("block {its}") };
                    return Some(format!(
                        "{side} sibling of block {block} is block {other}, but the {back} sibling of block {other} is {its}"
                    ));
                }
                let (a, b) = (row.level, of.level);
                (a != b).then(|| {
                    format!("level of block {block} is {a}, but that of its {side} sibling, block {other}, is {b}")
                })
            }
        }
    }

    /// Notes the downlink to each page.
    fn downlinks(&mut self, all: Vec<Vec<Downlink>>, found: &mut AllFound) {
        let is_only =
            |link: &&Downlink| link.order == 0 && self.rows.get(link.parent as usize).is_some_and(|row| row.items == 1);
        self.only_child = all.iter().flatten().filter(is_only).map(|link| (link.parent, link.child)).collect();
        let mut other_level = HashSet::new();
        for link in all.into_iter().flatten() {
            let (child, parent) = (self.row(link.child), self.row(link.parent));
            if parent.state != State::Live || self.is_dying(link.parent) != Some(false) {
                continue;
            }
            let wrong = |message: String| {
                let item = link.order + 1 + u16::from(parent.next != 0);
                Found::new("downlink", link.parent, message, MISSES).item(item).and(&[link.child])
            };
            let block = link.child;
            match child.state {
                State::Live if child.level != parent.level - 1 && !other_level.insert(link.parent) => {}
                State::Live if child.level != parent.level - 1 => {
                    found.push(wrong(format!(
                        "downlink to block {block} of level {}; expected level {}",
                        child.level,
                        parent.level - 1
                    )));
                }
                State::New | State::Deleted | State::HalfDead => {
                    found.push(wrong(format!("downlink to block {block}, which is {}", said(child.state))));
                }
                _ => {
                    let Some(up) = self.ups.get_mut(block as usize) else { continue };
                    if up.parent != 0 {
                        let message =
                            format!("downlink to block {block}, to which there is another one in block {}", up.parent);
                        let other = up.parent;
                        let mut twice = wrong(message);
                        twice.others.push(other);
                        found.push(twice);
                        continue;
                    }
                    *up = Up { parent: link.parent, separator: link.separator, order: link.order };
                }
            }
        }
    }

    /// Where all links are right, there is one chain of pages in each level.
    fn levels(&self, found: &mut AllFound) {
        if self.rows.iter().skip(1).any(|row| row.state == State::Unknown) {
            return;
        }
        let mut leftmost: HashMap<u8, u32> = HashMap::new();
        for (block, row) in self.live().filter(|(_, row)| row.prev == 0) {
            if let Some(other) = leftmost.insert(row.level, block) {
                let message = format!("leftmost page of level {}, but so is block {other}", row.level);
                found.push(Found::new("sibling", block, message, MISSES).and(&[other]));
            }
        }
    }
}

pub(super) fn said(state: State) -> &'static str {
    match state {
        State::New => "empty",
        State::Deleted => "deleted",
        State::HalfDead => "half dead",
        State::Live => "live",
        State::Unknown | State::Other => "no page of a btree",
    }
}
