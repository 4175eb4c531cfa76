//! The pages of a btree as their links say, for those who compare them.

use std::collections::HashMap;

use super::about::About;
use super::meta::Meta;
use super::rows::{Row, State, Up};

/// Levels that a tree can have; there are not so many rows for more.
pub(super) const MOST_LEVELS: u32 = 64;

/// All that is known of the pages of a tree.
pub(super) struct Tree<'a> {
    pub about: &'a About,
    pub meta: Option<&'a Meta>,
    pub rows: &'a [Row],
    /// Inner pages with only one downlink, and their child.
    pub only_child: HashMap<u32, u32>,
    pub ups: Vec<Up>,
}

impl Tree<'_> {
    pub(super) fn row(&self, block: u32) -> Row {
        self.rows.get(block as usize).copied().unwrap_or_default()
    }

    /// Whether two pages agree that they are siblings.
    pub(super) fn are_siblings(&self, left: u32, right: u32) -> bool {
        let (a, b) = (self.row(left), self.row(right));
        a.is_linked() && b.is_linked() && a.next == right && b.prev == left && a.level == b.level && left != right
    }

    /// Whether a page is being deleted, or an inner page above only such a page: the downlink to the topmost one is gone already, and the
    /// deletion was interrupted. None: nobody knows.
    pub(super) fn is_dying(&self, block: u32) -> Option<bool> {
        let mut block = block;
        for _ in 0..MOST_LEVELS {
            match (self.row(block).state, self.only_child.get(&block)) {
                (State::Live, Some(child)) => block = *child,
                (State::Live, None) => return Some(false),
                (State::HalfDead, _) => return Some(true),
                _ => return None,
            }
        }
        None
    }
}
