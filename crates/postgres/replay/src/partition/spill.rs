//! Records that do not fit the memory: in a temporary file, by groups of partitions, so that each page is still written once.
//!
//! The file has no name as soon as it is open: nothing is left of it when we end, however we end. It is written in large pieces, one
//! after the other, and read again group by group. Pieces are compressed: most of them is page images, whose unused and repeated bytes
//! cost more time to read again from a disk than to pack.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;

use leadline_errors::{Error, Kind, Result};
use leadline_wal::Decoder;
use parking_lot::Mutex;

use crate::files::cluster::{failed, Cluster};
use crate::partition::partitioned::PartitionedRefs;
use crate::partition::record_refs::{ChunkRefs, ForkId, RecordRef, Records, ENTRY, PARTITIONS};

/// Groups of partitions: of each at least so much is in memory at once.
const GROUPS: usize = 64;
const PER_GROUP: usize = PARTITIONS / GROUPS;

/// Bytes before those of a piece: its partition, how many entries, how many bytes of records, where its chunk begins.
const FRONT: usize = 20;

/// Pieces of one group that were written at once.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Where they are in the file.
    place: Range<u64>,
    /// Bytes of them; as many as in the file when they could not be compressed.
    bytes: usize,
}

/// The temporary file.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    path: PathBuf,
    /// Where it ends.
    end: AtomicU64,
    /// By group, in the order of the WAL.
    groups: Vec<Vec<Block>>,
}

impl Spill {
    pub(crate) fn create(cluster: &Cluster) -> Result<Spill> {
        let path = cluster.temporary_file()?;
        let file = cluster.open_or_create(&path)?;
        fs::remove_file(&path).map_err(|e| failed("remove", &path, &e))?;
        cluster.remove_temporary_folder();
        Ok(Spill { file, path, end: AtomicU64::new(0), groups: vec![Vec::new(); GROUPS] })
    }

    /// Bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Writes all records that are kept, and drops them. Threads take groups.
    pub(crate) fn add(&mut self, partitions: &mut [Vec<ChunkRefs>], major: u8, threads: usize) -> Result<()> {
        let groups = Mutex::new(partitions.chunks_mut(PER_GROUP).enumerate());
        let next = || groups.lock().next();
        let this = &*self;
        let work = || {
            let mut packer = Packer::default();
            let mut written = Vec::new();
            while let Some((group, of_group)) = next() {
                packer.pack(group * PER_GROUP, of_group, major)?;
                written.extend(this.write(&mut packer)?.map(|block| (group, block)));
            }
            Ok::<_, Error>(written)
        };
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                let (work, send) = (&work, send.clone());
                scope.spawn(move || send.send(work()));
            }
        });
        drop(send);
        for written in receive {
            for (group, block) in written? {
                self.groups[group].push(block);
            }
        }
        Ok(())
    }

    fn write(&self, packer: &mut Packer) -> Result<Option<Block>> {
        if packer.pieces.is_empty() {
            return Ok(None);
        }
        let stored = packer.compressed();
        let begin = self.end.fetch_add(stored.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(stored, begin).map_err(|e| failed("write", &self.path, &e))?;
        Ok(Some(Block { place: begin..begin + stored.len() as u64, bytes: packer.pieces.len() }))
    }

    /// What is read at once: of each group all, or as much of it as fits the memory.
    pub(crate) fn rounds(&self, memory: usize) -> Vec<Vec<Vec<Block>>> {
        let of_group = |blocks: &Vec<Block>| {
            let (mut rounds, mut sum) = (Vec::<Vec<Block>>::new(), usize::MAX);
            for block in blocks {
                sum = sum.saturating_add(block.bytes);
                match rounds.last_mut() {
                    Some(last) if sum <= memory => last.push(block.clone()),
                    _ => {
                        rounds.push(vec![block.clone()]);
                        sum = block.bytes;
                    }
                }
            }
            rounds
        };
        self.groups.iter().map(of_group).filter(|rounds| !rounds.is_empty()).collect()
    }

    /// The records of some blocks, by partition.
    pub(crate) fn read(&self, blocks: &[Block]) -> Result<Vec<Vec<ChunkRefs>>> {
        let mut partitions: Vec<Vec<ChunkRefs>> = (0..PARTITIONS).map(|_| Vec::new()).collect();
        let mut stored = Vec::new();
        for Block { place, bytes } in blocks {
            let changed = || Error::new(Kind::Storage, "a temporary file is not what was written to it").at(&self.path);
            stored.resize((place.end - place.start) as usize, 0);
            self.file.read_exact_at(&mut stored, place.start).map_err(|e| failed("read", &self.path, &e))?;
            let pieces = if stored.len() == *bytes {
                std::mem::take(&mut stored)
            } else {
                lz4_flex::block::decompress(&stored, *bytes).map_err(|_| changed())?
            };
            let (pieces, mut at) = (Arc::new(pieces), 0);
            while at < pieces.len() {
                let (partition, placed, after) = unpack(&pieces, at).ok_or_else(changed)?;
                if let Some(of) = partitions.get_mut(partition) {
                    of.push(placed);
                }
                at = after;
            }
        }
        Ok(partitions)
    }
}

/// A part of the file that is read at once.
pub(crate) enum Spilled {
    Waiting(Arc<Spill>, Arc<Vec<ForkId>>, Vec<Block>),
    /// By a thread of its own.
    Begun(JoinHandle<Result<PartitionedRefs>>),
}

impl Spilled {
    pub(crate) fn new(spill: &Arc<Spill>, forks: &Arc<Vec<ForkId>>, blocks: Vec<Block>) -> Spilled {
        Spilled::Waiting(Arc::clone(spill), Arc::clone(forks), blocks)
    }

    /// Begins to read it.
    pub(crate) fn begin(self) -> Spilled {
        match self {
            Spilled::Waiting(spill, forks, blocks) => {
                Spilled::Begun(std::thread::spawn(move || Ok(PartitionedRefs::of(spill.read(&blocks)?, &forks))))
            }
            begun => begun,
        }
    }

    /// Ends to read it.
    pub(crate) fn read(self) -> Result<PartitionedRefs> {
        match self {
            Spilled::Waiting(spill, forks, blocks) => Ok(PartitionedRefs::of(spill.read(&blocks)?, &forks)),
            Spilled::Begun(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Error::new(Kind::Fault, "a thread that reads a temporary file ended early"))),
        }
    }
}

/// What is written at once, with memory that is used again.
#[derive(Default)]
struct Packer {
    decoder: Decoder,
    pieces: Vec<u8>,
    compressed: Vec<u8>,
}

impl Packer {
    /// Takes the pieces of partitions, of which `first` is the number of the first.
    fn pack(&mut self, first: usize, partitions: &mut [Vec<ChunkRefs>], major: u8) -> Result<()> {
        self.pieces.clear();
        for (partition, of_one) in (first..).zip(partitions) {
            for placed in of_one.drain(..) {
                pack(&mut self.pieces, partition, &placed, &mut self.decoder, major)?;
            }
        }
        Ok(())
    }

    /// They compressed, or as they are where that does not make them fewer.
    fn compressed(&mut self) -> &[u8] {
        self.compressed.resize(lz4_flex::block::get_maximum_output_size(self.pieces.len()), 0);
        match lz4_flex::block::compress_into(&self.pieces, &mut self.compressed) {
            Ok(length) if length < self.pieces.len() => &self.compressed[..length],
            _ => &self.pieces,
        }
    }
}

/// Adds a piece to what is to be written: its entries, then of each its record with no image but that of its own block.
fn pack(into: &mut Vec<u8>, partition: usize, placed: &ChunkRefs, decoder: &mut Decoder, major: u8) -> Result<()> {
    let begin = into.len();
    into.resize(begin + FRONT + placed.entries.len() * ENTRY, 0);
    let records = into.len();
    for (n, entry) in placed.entries.iter().enumerate() {
        let at = into.len() - records;
        let Some(()) = placed.records.copy(decoder, entry, major, into) else {
            return Err(Error::new(Kind::Invalid, "a record has an invalid format")
                .at(format!("LSN {}", placed.records.start(entry))));
        };
        let place = begin + FRONT + n * ENTRY;
        into[place..place + ENTRY].copy_from_slice(&entry.to_bytes(at as u32));
    }
    let length = (into.len() - records) as u32;
    let front = &mut into[begin..begin + FRONT];
    front[..4].copy_from_slice(&(partition as u32).to_le_bytes());
    front[4..8].copy_from_slice(&(placed.entries.len() as u32).to_le_bytes());
    front[8..12].copy_from_slice(&length.to_le_bytes());
    front[12..].copy_from_slice(&placed.records.base().to_le_bytes());
    Ok(())
}

/// The piece that begins at an offset in what was read, with its partition; and where it ends.
fn unpack(bytes: &Arc<Vec<u8>>, at: usize) -> Option<(usize, ChunkRefs, usize)> {
    let (front, rest) = bytes.get(at..)?.split_at_checked(FRONT)?;
    let word = |at: usize| Some(u32::from_le_bytes(*front.get(at..)?.first_chunk()?));
    let base = u64::from_le_bytes(*front.get(12..)?.first_chunk()?);
    let (entries, rest) = rest.split_at_checked((word(4)? as usize).checked_mul(ENTRY)?)?;
    let begin = bytes.len() - rest.len();
    let end = begin.checked_add(word(8)? as usize).filter(|end| *end <= bytes.len())?;
    let entries =
        entries.chunks_exact(ENTRY).filter_map(|bytes| bytes.first_chunk()).map(RecordRef::from_bytes).collect();
    let records = Records::Copies { base, bytes: Arc::clone(bytes), range: begin..end };
    Some((word(0)? as usize, ChunkRefs { entries, records: Arc::new(records) }, end))
}
