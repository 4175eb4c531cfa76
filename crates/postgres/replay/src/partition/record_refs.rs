//! Records kept for the pages they change.
//!
//! Records that change pages stay where they are: each chunk of the WAL is read into memory of its own and kept there. It is read and not
//! mapped, since a file that somebody truncates while it is mapped ends the process. Pages are put into partitions by relation and range of
//! blocks: of each chunk every partition gets one piece, which says where the records of its pages are, in their order. So a thread that
//! takes a partition forward works in its cache, and no page is in two partitions.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use leadline_bytes::ReadBuffer;
use leadline_datadir::RelFile;
use leadline_redo::{rule, Part, Target};
use leadline_wal::{Decoder, Lsn, Pages, Record};
use parking_lot::Mutex;

use crate::pages::prefetch::prefetch;

/// How many partitions there are: enough that the pieces of one fit a cache, and that threads end together.
pub(crate) const PARTITIONS: usize = 1024;
/// Blocks in a row that are in one partition: written at once when all of them change.
const RANGE: u32 = 16;

/// A relation and a fork of it.
pub(crate) type ForkId = (RelFile, u8);

/// Where to find a record for one page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordRef {
    pub block: u32,
    /// Number of the fork: within the chunk, and once chunks are in order, in all of the WAL.
    pub fork: u32,
    /// Where in the chunk's records it is.
    at: u32,
    why: Why,
    /// Block id.
    id: u8,
    /// Of the visibility map, those that are cleared.
    bits: u8,
    /// It makes the page whatever was there.
    pub starts_page: bool,
}

/// Why the page changes: [`Part`] without what the record itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Block,
    ClearVisible,
    TruncateVisible,
    TruncateFreeSpace,
}

/// Bytes of an entry in a file.
pub(crate) const ENTRY: usize = 16;

impl RecordRef {
    /// For a file, with another place of its record.
    pub(crate) fn to_bytes(self, at: u32) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..4].copy_from_slice(&self.block.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.fork.to_le_bytes());
        bytes[8..12].copy_from_slice(&at.to_le_bytes());
        bytes[12..].copy_from_slice(&[self.why as u8, self.id, self.bits, self.starts_page.into()]);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; ENTRY]) -> RecordRef {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let why = match bytes[12] {
            0 => Why::Block,
            1 => Why::ClearVisible,
            2 => Why::TruncateVisible,
            _ => Why::TruncateFreeSpace,
        };
        let (block, fork, at) = (word(0), word(4), word(8));
        RecordRef { block, fork, at, why, id: bytes[13], bits: bytes[14], starts_page: bytes[15] != 0 }
    }

    /// The block id whose image is needed.
    fn image_of(&self) -> Option<u8> {
        (self.why == Why::Block).then_some(self.id)
    }

    /// What the record has to do with the page; none when the record does not say it.
    #[inline]
    pub(crate) fn part(&self, record: &Record<'_>) -> Option<Part> {
        let heap_blocks = || rule::truncation(record).map(|truncation| truncation.blocks);
        Some(match self.why {
            Why::Block => Part::Block(self.id),
            Why::ClearVisible => Part::ClearVisible { heap_block: record.block(self.id)?.block, bits: self.bits },
            Why::TruncateVisible => Part::TruncateVisible { heap_blocks: heap_blocks()? },
            Why::TruncateFreeSpace => Part::TruncateFreeSpace { heap_blocks: heap_blocks()? },
        })
    }
}

/// The records of a chunk that change pages.
#[derive(Debug)]
pub(crate) enum Records {
    /// Where they are in the WAL.
    InLog(InLog),
    /// Each is kept for one entry: it has no image but that of the entry's block.
    Copies { base: u64, bytes: Arc<Vec<u8>>, range: Range<usize> },
}

/// Pages of the WAL, and records of which they have not all.
#[derive(Debug)]
pub(crate) struct InLog {
    pages: Option<Pages>,
    /// As copies are.
    others: Vec<u8>,
    base: u64,
    memory: Arc<Memory>,
    /// See [`Records::is_first_to_keep`]: 0 for none.
    kept_in: AtomicUsize,
    /// Most of it are page images.
    is_images: bool,
    /// See [`Records::hold`].
    is_held: AtomicBool,
}

/// Memory for pages of the WAL that is used again: new memory costs more time than to read pages into it. In huge pages it costs most of
/// all: where memory is in use the kernel has to move others to make room for them.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    free: Mutex<Vec<ReadBuffer>>,
    held: AtomicUsize,
}

impl Memory {
    /// Bytes of records that are held; see [`Records::hold`].
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// So many bytes at least.
    pub(crate) fn take(&self, bytes: usize) -> ReadBuffer {
        let mut free = self.free.lock();
        let fits = free.iter().position(|buffer| buffer.len() >= bytes);
        fits.map_or_else(|| ReadBuffer::new(bytes), |n| free.swap_remove(n))
    }

    fn give(&self, buffer: ReadBuffer) {
        self.free.lock().push(buffer);
    }
}

impl InLog {
    fn bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, |pages| pages.bytes().len()) + self.others.len()
    }
}

impl Drop for InLog {
    fn drop(&mut self) {
        if *self.is_held.get_mut() {
            self.memory.held.fetch_sub(self.bytes(), Ordering::Relaxed);
        }
        if let Some(pages) = self.pages.take() {
            self.memory.give(pages.into_memory());
        }
    }
}

/// Bytes before those of a copy: where the record begins, where it ends, and its length.
const FRONT: usize = 12;

/// Of an entry's place in [`InLog`]: the record is among the others.
const ELSEWHERE: u32 = 1 << 31;

/// Front and bytes of a copy.
#[inline]
fn copy_at(bytes: &[u8], at: usize) -> Option<([u32; 2], &[u8])> {
    let (front, rest) = bytes.get(at..)?.split_first_chunk::<FRONT>()?;
    let word = |at: usize| u32::from_le_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]]);
    Some(([word(0), word(4)], rest.get(..word(8) as usize)?))
}

impl Records {
    /// Adds the entry's record to others, with what the entry needs of it. None when it is no record.
    pub(crate) fn copy(&self, decoder: &mut Decoder, entry: &RecordRef, major: u8, into: &mut Vec<u8>) -> Option<()> {
        let record = self.decode(decoder, entry, major)?;
        put_copy(&record, self.base(), entry.image_of(), into)
    }

    /// Whether nobody kept these records before, in this round of those who keep some of them.
    pub(crate) fn is_first_to_keep(&self, round: usize) -> bool {
        match self {
            Records::InLog(InLog { kept_in, .. }) => kept_in.swap(round + 1, Ordering::Relaxed) != round + 1,
            Records::Copies { .. } => false,
        }
    }

    /// Most of them are page images.
    pub(crate) fn is_images(&self) -> bool {
        matches!(self, Records::InLog(InLog { is_images: true, .. }))
    }

    /// Counts their bytes in [`Memory::held`] from now on, for as long as they are there.
    pub(crate) fn hold(&self) {
        if let Records::InLog(records) = self {
            if !records.is_held.swap(true, Ordering::Relaxed) {
                records.memory.held.fetch_add(records.bytes(), Ordering::Relaxed);
            }
        }
    }

    /// Bytes of memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Records::InLog(records) => records.bytes(),
            Records::Copies { range, .. } => range.len(),
        }
    }

    /// From where on places are counted.
    pub(crate) fn base(&self) -> u64 {
        match self {
            Records::InLog(InLog { base, .. }) | Records::Copies { base, .. } => *base,
        }
    }

    /// Where the entry's record begins.
    pub(crate) fn start(&self, entry: &RecordRef) -> Lsn {
        let of_copy = |bytes, at| copy_at(bytes, at).map_or(0, |(front, _)| u64::from(front[0]));
        Lsn(self.base()
            + match self {
                Records::InLog(InLog { others, .. }) if entry.at & ELSEWHERE != 0 => {
                    of_copy(others, (entry.at ^ ELSEWHERE) as usize)
                }
                Records::InLog(_) => u64::from(entry.at),
                Records::Copies { bytes, range, .. } => of_copy(bytes, range.start + entry.at as usize),
            })
    }

    /// The entry's record.
    #[inline]
    pub(crate) fn decode<'a>(&'a self, decoder: &'a mut Decoder, entry: &RecordRef, major: u8) -> Option<Record<'a>> {
        let lsns = |base: u64, [start, end]: [u32; 2]| (Lsn(base + u64::from(start)), Lsn(base + u64::from(end)));
        match self {
            Records::InLog(InLog { pages, others, base, .. }) => {
                if entry.at & ELSEWHERE == 0 {
                    return pages.as_ref()?.decode(decoder, entry.at as usize, major);
                }
                let (front, bytes) = copy_at(others, (entry.at ^ ELSEWHERE) as usize)?;
                let (start, end) = lsns(*base, front);
                decoder.decode_whole(bytes, start, end, major)
            }
            Records::Copies { base, bytes, range } => {
                let (front, bytes) = copy_at(bytes, range.start + entry.at as usize)?;
                let (start, end) = lsns(*base, front);
                decoder.decode(bytes, entry.image_of(), start, end, major)
            }
        }
    }

    /// Asks the processor for the entry's record, which it then has when it is needed.
    ///
    /// Records of a page lie far apart. One that is not in the cache costs more time than to apply it, but many can come at once.
    #[inline]
    pub(crate) fn touch(&self, entry: &RecordRef) {
        let (bytes, at) = match self {
            Records::InLog(InLog { pages: Some(pages), .. }) => (pages.bytes(), entry.at as usize),
            Records::InLog(_) => return,
            Records::Copies { bytes, range, .. } => (&bytes[..], range.start + entry.at as usize),
        };
        prefetch(bytes, at);
        prefetch(bytes, at + 64);
    }
}

/// Adds a record with its front to others.
fn put_copy(record: &Record<'_>, base: u64, image_of: Option<u8>, into: &mut Vec<u8>) -> Option<()> {
    let at = into.len();
    for lsn in [record.start, record.end, Lsn(base)] {
        into.extend_from_slice(&((lsn.0 - base) as u32).to_le_bytes());
    }
    let length = record.copy_for(image_of, into) as u32;
    into.get_mut(at + 8..at + FRONT)?.copy_from_slice(&length.to_le_bytes());
    Some(())
}

/// What one partition has of one chunk, once chunks are in order.
#[derive(Debug)]
pub(crate) struct ChunkRefs {
    pub entries: Vec<RecordRef>,
    pub records: Arc<Records>,
}

/// Deals out the records of a chunk.
pub(crate) struct Partitioner<'a> {
    rooms: &'a CapacityHints,
    pieces: Vec<Vec<RecordRef>>,
    /// Partitions that have a piece.
    used: Vec<u32>,
    others: Vec<u8>,
    base: u64,
    /// Where the record is whose changes are partitioned, once it is kept.
    at: Option<u32>,
}

/// Entries that each partition had in a thread's last chunk: most likely about as many as in its next one.
#[derive(Debug, Default)]
pub(crate) struct CapacityHints(Vec<usize>);

impl CapacityHints {
    pub(crate) fn learn(&mut self, pieces: &[(u32, Vec<RecordRef>)]) {
        self.0.clear();
        self.0.resize(PARTITIONS, 0);
        for (partition, piece) in pieces {
            self.0[*partition as usize] = piece.len();
        }
    }
}

impl<'a> Partitioner<'a> {
    /// `base`: where the first page of the chunk begins.
    pub(crate) fn new(base: u64, rooms: &'a CapacityHints) -> Partitioner<'a> {
        let pieces = (0..PARTITIONS).map(|_| Vec::new()).collect();
        Partitioner { rooms, pieces, used: Vec::new(), others: Vec::new(), base, at: None }
    }

    /// Changes of another record follow. `at`: where it is in the pages that are kept.
    #[inline]
    pub(crate) fn next_record(&mut self, at: Option<usize>) {
        self.at = at.map(|at| at as u32);
    }

    /// Keeps a record that is not in the pages; gives where it is.
    #[cold]
    fn keep(&mut self, record: &Record<'_>) -> u32 {
        let (at, bytes) = (self.others.len() as u32, record.bytes());
        for word in [record.start.0 - self.base, record.end.0 - self.base, bytes.len() as u64] {
            self.others.extend_from_slice(&(word as u32).to_le_bytes());
        }
        self.others.extend_from_slice(bytes);
        at | ELSEWHERE
    }

    #[inline]
    pub(crate) fn put(&mut self, record: &Record<'_>, target: &Target, fork: u32, hash: u64, starts_page: bool) {
        let at = match self.at {
            Some(at) => at,
            None => {
                let at = self.keep(record);
                *self.at.insert(at)
            }
        };
        let (why, id, bits) = match target.part {
            Part::Block(id) => (Why::Block, id, 0),
            Part::ClearVisible { heap_block, bits } => (Why::ClearVisible, id_of(record, heap_block), bits),
            Part::TruncateVisible { .. } => (Why::TruncateVisible, 0, 0),
            Part::TruncateFreeSpace { .. } => (Why::TruncateFreeSpace, 0, 0),
        };
        let partition = partition_of(hash, target.page.block);
        let piece = &mut self.pieces[partition];
        if piece.is_empty() {
            self.used.push(partition as u32);
            piece.reserve(self.rooms.0.get(partition).copied().unwrap_or_default());
        }
        piece.push(RecordRef { block: target.page.block, fork, at, why, id, bits, starts_page });
    }

    /// The pieces, with the partition of each, and their records. `is_images`: most of these are page images.
    pub(crate) fn finish(
        self,
        pages: Option<Pages>,
        memory: &Arc<Memory>,
        is_images: bool,
    ) -> (Vec<(u32, Vec<RecordRef>)>, Records) {
        let Partitioner { mut pieces, used, others, base, .. } = self;
        let (memory, kept_in, is_held) = (Arc::clone(memory), AtomicUsize::new(0), AtomicBool::new(false));
        let records = Records::InLog(InLog { pages, others, base, memory, kept_in, is_images, is_held });
        (used.into_iter().map(|n| (n, std::mem::take(&mut pieces[n as usize]))).collect(), records)
    }
}

/// The id of the heap block whose bits are cleared.
fn id_of(record: &Record<'_>, heap_block: u32) -> u8 {
    record.blocks.iter().find(|block| block.block == heap_block).map_or(0, |block| block.id)
}

/// A number for a fork that is spread over all bits; the same in every chunk.
pub(crate) fn hash(relation: RelFile, fork: u8) -> u64 {
    let mix = |a: u64| (a ^ a >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mix(mix(u64::from(relation.spc) << 32 | u64::from(relation.db)) ^ (u64::from(relation.rel) << 8 | u64::from(fork)))
}

#[inline]
fn partition_of(hash: u64, block: u32) -> usize {
    let mixed = (hash ^ u64::from(block / RANGE)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 54) as usize % PARTITIONS
}
