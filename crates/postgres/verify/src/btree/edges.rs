//! Keys at the edges of pages: the high key of a page is before the first key of its right sibling.
//!
//! Where the sibling is the next block, the two are compared as they are read. Else copies of both are kept until all pages were read.

use std::cmp::Ordering;

use super::found::{AllFound, Found};
use super::keys::Keys;
use super::rows::Row;
use super::tuple::Tuple;

/// Bytes of copies that are kept.
const MOST: usize = 64 << 20;

/// A copy.
#[derive(Debug, Clone, Copy)]
struct Edge {
    /// The page that is right of the edge.
    right: u32,
    /// The page that the key is of.
    of: u32,
    at: u32,
    len: u16,
}

/// The copies of one thread.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    bytes: Vec<u8>,
    highs: Vec<Edge>,
    firsts: Vec<Edge>,
    /// The page before and its right sibling, and how long its high key is.
    before: Option<(u32, u32)>,
    before_key: Vec<u8>,
    /// Keys that there was no room for.
    pub left_out: u64,
    most: usize,
}

const MEANS: &str = "an index scan misses rows";

impl Edges {
    /// Of one of so many threads.
    pub(crate) fn new(threads: usize) -> Edges {
        Edges { most: MOST / threads.max(1), ..Edges::default() }
    }

    /// The next page in the order of the file, with its high key and its first key, if it has them.
    pub(crate) fn page(
        &mut self,
        block: u32,
        row: &Row,
        high: Option<&[u8]>,
        first: Option<&[u8]>,
        keys: &Keys,
        found: &mut AllFound,
    ) {
        match (first, self.before) {
            (Some(first), Some((left, next))) if next == block && row.prev == left => {
                compare(left, &self.before_key, block, first, keys, found);
            }
            (Some(first), _) if row.prev != 0 => self.keep(row.prev, block, first, false),
            _ => {}
        }
        self.before = None;
        let Some(high) = high else { return };
        if row.next == block.wrapping_add(1) {
            self.before = Some((block, row.next));
            self.before_key.clear();
            self.before_key.extend_from_slice(high);
        } else {
            self.keep(block, row.next, high, true);
        }
    }

    /// The pages of this thread end.
    pub(crate) fn end(&mut self) {
        if let Some((block, next)) = self.before.take() {
            let key = std::mem::take(&mut self.before_key);
            self.keep(block, next, &key, true);
        }
    }

    fn keep(&mut self, left: u32, right: u32, key: &[u8], is_high: bool) {
        if self.bytes.len() + key.len() > self.most {
            self.left_out += 1;
            return;
        }
        let edge = Edge {
            right,
            of: if is_high { left } else { right },
            at: self.bytes.len() as u32,
            len: key.len().min(usize::from(u16::MAX)) as u16,
        };
        self.bytes.extend_from_slice(key);
        if is_high {
            self.highs.push(edge);
        } else {
            self.firsts.push(edge);
        }
    }

    fn key(&self, edge: Edge) -> &[u8] {
        self.bytes.get(edge.at as usize..edge.at as usize + usize::from(edge.len)).unwrap_or_default()
    }
}

/// Compares what all threads kept.
pub(crate) fn join(all: &[Edges], rows: &[Row], keys: &Keys, found: &mut AllFound) {
    let mut firsts: Vec<(u32, usize, Edge)> = Vec::new();
    for (i, edges) in all.iter().enumerate() {
        firsts.extend(edges.firsts.iter().map(|edge| (edge.right, i, *edge)));
    }
    firsts.sort_unstable_by_key(|(right, ..)| *right);
    for edges in all {
        for high in &edges.highs {
            let Ok(at) = firsts.binary_search_by_key(&high.right, |(right, ..)| *right) else { continue };
            let (right, i, first) = firsts[at];
            // Where they do not agree that they are siblings, that is told.
            if rows.get(right as usize).is_some_and(|row| row.prev == high.of) {
                compare(high.of, edges.key(*high), right, all[i].key(first), keys, found);
            }
        }
    }
}

fn compare(left: u32, high: &[u8], right: u32, first: &[u8], keys: &Keys, found: &mut AllFound) {
    let (Some(high), Some(first)) = (Tuple::parse(high), Tuple::parse(first)) else { return };
    let wrong = match keys.compare(&high, &first) {
        None | Some(Ordering::Less) => return,
        Some(Ordering::Equal) if !keys.has_tids => return,
        Some(Ordering::Equal) => "equal to",
        Some(Ordering::Greater) => "greater than",
    };
    let message = format!(
        "high key of block {left} is {wrong} the first key of block {right}, which is its right sibling; expected less"
    );
    found.push(Found::new("order", right, message, MEANS).and(&[left]));
}
