//! Equal keys of a unique index: of their rows only one can be live.

use std::collections::HashMap;

use leadline_page::Tid;

use super::found::{AllFound, Found};
use super::keys::place;

/// Rows with equal keys that are kept of one thread: at 16 bytes each.
const MOST: usize = 1 << 18;

/// Rows of entries with equal keys on the same page, each with a number for its key.
#[derive(Debug, Default)]
pub(crate) struct Equals {
    rows: Vec<(u64, u64)>,
    pub left_out: u64,
    group: u64,
}

impl Equals {
    /// The rows of an item with the same key as the one before. `is_new`: it is that one, the first of its key.
    pub(super) fn item(&mut self, block: u32, number: u32, is_new: bool, rows: impl Iterator<Item = Tid>) {
        if is_new {
            self.group = u64::from(block) << 16 | u64::from(number);
        }
        for tid in rows {
            if self.rows.len() < MOST {
                self.rows.push((place(tid), self.group));
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Puts what all threads kept together.
    pub(super) fn all(all: impl Iterator<Item = Equals>) -> Equals {
        let mut one = Equals::default();
        for part in all {
            one.left_out += part.left_out;
            one.rows.extend(part.rows);
        }
        one.rows.sort_unstable();
        one
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether the row of an entry is one of them.
    pub(crate) fn has(&self, tid: Tid) -> bool {
        self.rows.binary_search_by_key(&place(tid), |(place, _)| *place).is_ok()
    }

    /// Tells of keys with more than one live row.
    pub(super) fn tell(&self, live: &[Tid], found: &mut AllFound) {
        let mut first: HashMap<u64, Tid> = HashMap::new();
        for tid in live {
            let Ok(at) = self.rows.binary_search_by_key(&place(*tid), |(place, _)| *place) else { continue };
            let group = self.rows[at].1;
            let Some(other) = first.insert(group, *tid) else { continue };
            let message = format!(
                "rows ({},{}) and ({},{}) are both live and have the same key in a unique index",
                other.block, other.posid, tid.block, tid.posid
            );
            let means = "a key is there twice that should be unique";
            found.push(Found::new("unique", (group >> 16) as u32, message, means).item(group as u16));
        }
    }
}
