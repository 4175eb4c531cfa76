//! The records of many chunks by partition, and the forks that they name by number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pieces::{Entry, ForkId, Placed, Records, PARTITIONS};

/// Records by partition.
#[derive(Debug, Default)]
pub(crate) struct Dealt {
    pub partitions: Vec<Vec<Placed>>,
    pub forks: Vec<ForkId>,
    numbers: HashMap<ForkId, u32>,
    bytes: usize,
}

impl Dealt {
    pub(crate) fn new() -> Dealt {
        Dealt { partitions: (0..PARTITIONS).map(|_| Vec::new()).collect(), ..Dealt::default() }
    }

    /// Those that were read again from a file.
    pub(crate) fn of(partitions: Vec<Vec<Placed>>, forks: &[ForkId]) -> Dealt {
        Dealt { partitions, forks: forks.to_vec(), ..Dealt::default() }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the pieces of the next chunk; `of_chunk` are its forks, by the numbers they have in it.
    pub(crate) fn add(&mut self, of_chunk: &[ForkId], records: Records, pieces: Vec<(u32, Vec<Entry>)>, bytes: usize) {
        let Dealt { partitions, forks, numbers, .. } = self;
        let of = of_chunk.iter().map(|id| {
            *numbers.entry(*id).or_insert_with(|| {
                forks.push(*id);
                forks.len() as u32 - 1
            })
        });
        let of: Vec<u32> = of.collect();
        let records = Arc::new(records);
        self.bytes += bytes;
        for (partition, mut entries) in pieces {
            entries.iter_mut().for_each(|entry| entry.fork = of[entry.fork as usize]);
            partitions[partition as usize].push(Placed { entries, records: Arc::clone(&records) });
        }
    }

    /// All partitions, to be emptied: they take no memory any more.
    pub(crate) fn hand_over(&mut self) -> &mut [Vec<Placed>] {
        self.bytes = 0;
        &mut self.partitions
    }
}
