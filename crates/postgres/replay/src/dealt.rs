//! The records of many chunks by partition, and the forks that they name by number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pieces::{Entry, ForkId, Placed, Records, PARTITIONS};

/// Forks by number.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    pub ids: Vec<ForkId>,
    numbers: HashMap<ForkId, u32>,
}

impl Forks {
    /// The numbers of those of a chunk.
    pub(crate) fn numbers(&mut self, of_chunk: &[ForkId]) -> Vec<u32> {
        let Forks { ids, numbers } = self;
        let number = |id: &ForkId| {
            *numbers.entry(*id).or_insert_with(|| {
                ids.push(*id);
                ids.len() as u32 - 1
            })
        };
        of_chunk.iter().map(number).collect()
    }
}

/// Records by partition.
#[derive(Debug, Default)]
pub(crate) struct Dealt {
    pub partitions: Vec<Vec<Placed>>,
    pub forks: Forks,
}

impl Dealt {
    pub(crate) fn new() -> Dealt {
        Dealt { partitions: (0..PARTITIONS).map(|_| Vec::new()).collect(), ..Dealt::default() }
    }

    /// Those that were read again from a file.
    pub(crate) fn of(partitions: Vec<Vec<Placed>>, forks: &[ForkId]) -> Dealt {
        Dealt { partitions, forks: Forks { ids: forks.to_vec(), ..Forks::default() } }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partitions.iter().all(Vec::is_empty)
    }

    /// Adds the pieces of the next chunk; `of_chunk` are its forks, by the numbers they have in it.
    pub(crate) fn add(&mut self, of_chunk: &[ForkId], records: Records, pieces: Vec<(u32, Vec<Entry>)>) {
        let Dealt { partitions, forks } = self;
        let of = forks.numbers(of_chunk);
        let records = Arc::new(records);
        for (partition, mut entries) in pieces {
            entries.iter_mut().for_each(|entry| entry.fork = of[entry.fork as usize]);
            partitions[partition as usize].push(Placed { entries, records: Arc::clone(&records) });
        }
    }
}
