//! The records of a partition by page: pages in the order of their files, the records of each in the order of the WAL.
//!
//! Pages are few and records many, so pages are numbered and sorted, and records only counted into their places.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::partition::record_refs::{ChunkRefs, RecordRef};

/// Where a record of a page is: the piece, and the entry in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub piece: u32,
    entry: u32,
}

impl Place {
    /// Those of all entries.
    pub(crate) fn all(placed: &[ChunkRefs]) -> Vec<Place> {
        let of_piece = |(piece, placed): (usize, &ChunkRefs)| {
            (0..placed.entries.len() as u32).map(move |entry| Place { piece: piece as u32, entry })
        };
        placed.iter().enumerate().flat_map(of_piece).collect()
    }

    pub(crate) fn of<'a>(&self, placed: &'a [ChunkRefs]) -> &'a ChunkRefs {
        &placed[self.piece as usize]
    }

    pub(crate) fn entry<'a>(&self, placed: &'a [ChunkRefs]) -> &'a RecordRef {
        &placed[self.piece as usize].entries[self.entry as usize]
    }
}

/// The entries at some places, which are in order, with their records.
pub(crate) fn some<'a>(places: &'a [Place], of: &'a [ChunkRefs]) -> impl Iterator<Item = ChunkRefs> + 'a {
    places.chunk_by(|a, b| a.piece == b.piece).map(|in_piece| ChunkRefs {
        entries: in_piece.iter().map(|place| *place.entry(of)).collect(),
        records: Arc::clone(&in_piece[0].of(of).records),
    })
}

/// A page: its fork's number and its block.
pub(crate) type PageKey = u64;

/// What puts partitions in order, with memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct ByPage {
    numbers: HashMap<PageKey, u32, BuildHasherDefault<KeyHasher>>,
    pages: Vec<PageKey>,
    counts: Vec<u32>,
    /// The page's number, for each record.
    of: Vec<u32>,
    order: Vec<u32>,
    places: Vec<Place>,
    ranges: Vec<(PageKey, Range<usize>)>,
}

impl ByPage {
    /// Puts the records of a partition in order; at most 2^32 of them.
    pub(crate) fn sort(&mut self, placed: &[ChunkRefs]) {
        self.number(placed);
        let ByPage { pages, counts, of, order, places, ranges, .. } = self;
        order.clear();
        order.extend(0..pages.len() as u32);
        order.sort_unstable_by_key(|number| pages[*number as usize]);
        ranges.clear();
        let mut at = 0;
        for number in &*order {
            // From now on the count is where the page's next record goes.
            let count = std::mem::replace(&mut counts[*number as usize], at);
            ranges.push((pages[*number as usize], at as usize..(at + count) as usize));
            at += count;
        }
        places.clear();
        places.resize(of.len(), Place::default());
        let mut number = of.iter();
        for (piece, in_piece) in placed.iter().enumerate() {
            for (entry, number) in (0..in_piece.entries.len()).zip(&mut number) {
                let at = &mut counts[*number as usize];
                places[*at as usize] = Place { piece: piece as u32, entry: entry as u32 };
                *at += 1;
            }
        }
    }

    /// Numbers pages as they come, and counts their records.
    fn number(&mut self, placed: &[ChunkRefs]) {
        let ByPage { numbers, pages, counts, of, .. } = self;
        numbers.clear();
        pages.clear();
        counts.clear();
        of.clear();
        of.reserve(placed.iter().map(|piece| piece.entries.len()).sum());
        let mut last = (PageKey::MAX, 0);
        for piece in placed {
            for entry in &piece.entries {
                let key = u64::from(entry.fork) << 32 | u64::from(entry.block);
                if key != last.0 || pages.is_empty() {
                    let number = *numbers.entry(key).or_insert_with(|| {
                        pages.push(key);
                        counts.push(0);
                        pages.len() as u32 - 1
                    });
                    last = (key, number);
                }
                counts[last.1 as usize] += 1;
                of.push(last.1);
            }
        }
    }

    /// All records in order.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// A page by its number in order, and which records are its own.
    pub(crate) fn keyed(&self, number: usize) -> (PageKey, Range<usize>) {
        self.ranges[number].clone()
    }

    /// Likewise: its fork's number, its block, and which records are its own.
    pub(crate) fn page(&self, number: usize) -> (u32, u32, Range<usize>) {
        let (key, range) = self.keyed(number);
        ((key >> 32) as u32, key as u32, range)
    }
}

/// Spreads block numbers over all bits.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        let mixed = (self.0 ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::record_refs::Records;

    fn entry(fork: u32, block: u32) -> RecordRef {
        let mut bytes = [0; crate::partition::record_refs::ENTRY];
        bytes[..4].copy_from_slice(&block.to_le_bytes());
        bytes[4..8].copy_from_slice(&fork.to_le_bytes());
        RecordRef::from_bytes(&bytes)
    }

    #[test]
    fn pages_are_in_the_order_of_their_files_and_records_in_that_of_the_log() {
        let piece = |pages: &[(u32, u32)]| ChunkRefs {
            entries: pages.iter().map(|(fork, block)| entry(*fork, *block)).collect(),
            records: Arc::new(Records::Copies { base: 0, bytes: Arc::default(), range: 0..0 }),
        };
        let mut by_page = ByPage::default();
        by_page.sort(&[piece(&[(7, 7)])]);
        let placed = [piece(&[(1, 9), (0, 3), (1, 9)]), piece(&[]), piece(&[(1, 2), (0, 3), (u32::MAX, u32::MAX)])];
        by_page.sort(&placed);
        let found: Vec<_> = (0..by_page.len())
            .map(|number| {
                let (fork, block, range) = by_page.page(number);
                let places: Vec<_> = by_page.places()[range].iter().map(|place| (place.piece, place.entry)).collect();
                (fork, block, places)
            })
            .collect();
        let wanted = [
            (0, 3, vec![(0, 1), (2, 1)]),
            (1, 2, vec![(2, 0)]),
            (1, 9, vec![(0, 0), (0, 2)]),
            (u32::MAX, u32::MAX, vec![(2, 2)]),
        ];
        assert_eq!(found, wanted);
    }
}
