//! The records of many chunks by partition, and the forks that they name by number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::partition::record_refs::{ChunkRefs, ForkId, RecordRef, Records, PARTITIONS};

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
pub(crate) struct PartitionedRefs {
    pub partitions: Vec<Vec<ChunkRefs>>,
    pub forks: Forks,
}

impl PartitionedRefs {
    pub(crate) fn new() -> PartitionedRefs {
        PartitionedRefs { partitions: (0..PARTITIONS).map(|_| Vec::new()).collect(), ..PartitionedRefs::default() }
    }

    /// Those that were read again from a file.
    pub(crate) fn of(partitions: Vec<Vec<ChunkRefs>>, forks: &[ForkId]) -> PartitionedRefs {
        PartitionedRefs { partitions, forks: Forks { ids: forks.to_vec(), ..Forks::default() } }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partitions.iter().all(Vec::is_empty)
    }

    /// Adds the pieces of the next chunk; `of_chunk` are its forks, by the numbers they have in it.
    pub(crate) fn add(&mut self, of_chunk: &[ForkId], records: Records, pieces: Vec<(u32, Vec<RecordRef>)>) {
        let PartitionedRefs { partitions, forks } = self;
        let of = forks.numbers(of_chunk);
        let records = Arc::new(records);
        for (partition, mut entries) in pieces {
            entries.iter_mut().for_each(|entry| entry.fork = of[entry.fork as usize]);
            partitions[partition as usize].push(ChunkRefs { entries, records: Arc::clone(&records) });
        }
    }
}
