//! Records kept by the pages they change.
//!
//! Pages are dealt out to partitions by relation and range of blocks. Of each chunk of the log every partition gets one piece: the
//! records that change its pages, in their order, one after the other in memory. So a thread that takes a partition forward reads what
//! fits its cache, and no page is in two partitions.

use leadline_datadir::RelFile;
use leadline_redo::{Part, Target};
use leadline_wal::{Lsn, Record};
use std::sync::Arc;

/// How many partitions there are: enough that the records of one fit a cache, and that threads end together.
pub(crate) const PARTITIONS: usize = 1024;
/// Blocks in a row that are in one partition: written at once when all of them change.
const RANGE: u32 = 64;

/// A relation and a fork of it.
pub(crate) type ForkId = (RelFile, u8);

/// Where to find a record for one page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub block: u32,
    /// Number of the fork within the chunk.
    pub fork: u32,
    /// Where the record begins and ends, from the beginning of the chunk.
    start: u32,
    end: u32,
    /// Bytes kept of it.
    pub length: u32,
    /// Heap block or count of heap blocks, for maps that the record does not name.
    number: u32,
    part: u8,
    /// Block id, or bits.
    detail: u8,
    /// It makes the page whatever was there.
    pub starts_page: bool,
}

const BLOCK: u8 = 0;
const CLEAR_VISIBLE: u8 = 1;
const TRUNCATE_VISIBLE: u8 = 2;
const TRUNCATE_FREE_SPACE: u8 = 3;

impl Entry {
    pub(crate) fn part(&self) -> Part {
        match self.part {
            CLEAR_VISIBLE => Part::ClearVisible { heap_block: self.number, bits: self.detail },
            TRUNCATE_VISIBLE => Part::TruncateVisible { heap_blocks: self.number },
            TRUNCATE_FREE_SPACE => Part::TruncateFreeSpace { heap_blocks: self.number },
            _ => Part::Block(self.detail),
        }
    }

    /// The block id whose image the kept bytes have.
    pub(crate) fn image_of(&self) -> Option<u8> {
        (self.part == BLOCK).then_some(self.detail)
    }
}

/// What one partition has of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub entries: Vec<Entry>,
    pub bytes: Vec<u8>,
}

/// The same with what is known once chunks are in order.
#[derive(Debug)]
pub(crate) struct Placed {
    pub piece: Piece,
    /// Where the chunk begins.
    pub base: u64,
    /// Numbers of the chunk's forks in all of the log.
    pub forks: Arc<Vec<u32>>,
}

impl Placed {
    pub(crate) fn start(&self, entry: &Entry) -> Lsn {
        Lsn(self.base + u64::from(entry.start))
    }

    pub(crate) fn end(&self, entry: &Entry) -> Lsn {
        Lsn(self.base + u64::from(entry.end))
    }
}

/// Deals out the records of a chunk.
pub(crate) struct Dealer<'a> {
    base: u64,
    rooms: &'a Rooms,
    pieces: Vec<Piece>,
    /// Partitions that have a piece.
    used: Vec<u32>,
}

/// Entries and bytes that each partition had in a thread's last chunk: most likely about as many as in its next one.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Vec<(usize, usize)>);

impl Rooms {
    pub(crate) fn learn(&mut self, pieces: &[(u32, Piece)]) {
        self.0.clear();
        self.0.resize(PARTITIONS, (0, 0));
        for (partition, piece) in pieces {
            self.0[*partition as usize] = (piece.entries.len(), piece.bytes.len());
        }
    }
}

impl<'a> Dealer<'a> {
    pub(crate) fn new(base: u64, rooms: &'a Rooms) -> Dealer<'a> {
        Dealer { base, rooms, pieces: (0..PARTITIONS).map(|_| Piece::default()).collect(), used: Vec::new() }
    }

    #[inline]
    pub(crate) fn put(
        &mut self,
        record: &Record<'_>,
        target: &Target,
        fork: u32,
        hash: u64,
        starts_page: bool,
    ) -> usize {
        let partition = partition_of(hash, target.page.block);
        let piece = &mut self.pieces[partition];
        if piece.entries.is_empty() {
            self.used.push(partition as u32);
            let (entries, bytes) = self.rooms.0.get(partition).copied().unwrap_or_default();
            piece.entries.reserve(entries);
            piece.bytes.reserve(bytes);
        }
        let (part, detail, number) = match target.part {
            Part::Block(id) => (BLOCK, id, 0),
            Part::ClearVisible { heap_block, bits } => (CLEAR_VISIBLE, bits, heap_block),
            Part::TruncateVisible { heap_blocks } => (TRUNCATE_VISIBLE, 0, heap_blocks),
            Part::TruncateFreeSpace { heap_blocks } => (TRUNCATE_FREE_SPACE, 0, heap_blocks),
        };
        let image = (part == BLOCK).then_some(detail);
        // What else a clear needs is in the entry.
        let length = if part == BLOCK { record.copy_for(image, &mut piece.bytes) } else { 0 };
        piece.entries.push(Entry {
            block: target.page.block,
            fork,
            start: (record.start.0 - self.base) as u32,
            end: (record.end.0 - self.base) as u32,
            length: length as u32,
            number,
            part,
            detail,
            starts_page,
        });
        length + std::mem::size_of::<Entry>()
    }

    /// The pieces, with the partition of each.
    pub(crate) fn into_pieces(mut self) -> Vec<(u32, Piece)> {
        let Dealer { pieces, used, .. } = &mut self;
        used.iter().map(|n| (*n, std::mem::take(&mut pieces[*n as usize]))).collect()
    }
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
