//! Values stored outside of their rows, put together from the toast table's own pages.
//!
//! The table is gone through once, when the first such value is asked for, and where its values are is remembered
//! ([`crate::toast_places`]); its index is not read, since the files of a running or broken server may have the one and not the
//! other.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::heap_file::{tuples, HeapFile, Tuple};
use crate::settle::{settle, Settled};
use crate::toast_places::{Builder, Places};
use crate::tuple::{deform, Storage, Stored};
use crate::varlena::{self, External, Varlena};
use crate::xact::Xacts;
use leadline_bytes::ReadBuffer;
use leadline_errors::Result;

/// chunk_id, chunk_seq, chunk_data
const CHUNK: [Storage; 3] = [
    Storage { attlen: 4, attalign: b'i' },
    Storage { attlen: 4, attalign: b'i' },
    Storage { attlen: -1, attalign: b'i' },
];
/// Blocks read at a time: the values of neighbouring rows are neighbours.
const BLOCKS: usize = 4;

/// `chunk_id`, `chunk_seq` and data.
fn chunk<'a>(tuple: &Tuple<'a>, out: &mut Vec<Stored<'a>>) -> Option<(u32, u32, &'a [u8])> {
    deform(tuple.data, tuple.bitmap, tuple.natts(), &CHUNK, out)?;
    match out[..] {
        [Stored::Fixed(id), Stored::Fixed(seq), Stored::Varlena(Varlena::Plain(data))] => {
            let number = |b: &[u8]| b.first_chunk().map(|b| u32::from_le_bytes(*b));
            Some((number(id)?, number(seq)?, data))
        }
        _ => None,
    }
}

/// Where the values of a toast table are.
///
/// # Errors
/// When the file system says no.
pub fn places(heap: &mut HeapFile) -> Result<Places> {
    let mut builder = Builder::new();
    let mut failed = None;
    heap.each_tuple(false, |block, _, tuple| {
        if let Some((id, ..)) = chunk(tuple, &mut Vec::new()) {
            failed = failed.take().or_else(|| builder.push(id, block).err());
        }
    })?;
    failed.map_or_else(|| Ok(builder.finish()), Err)
}

/// A piece that was found: its number, whether no snapshot sees it, and where its bytes are.
type Piece = (u32, bool, Range<usize>);

/// What came of fetching a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Fetched {
    Whole,
    /// Its pieces are not all there.
    Missing,
    /// Its pieces are all there and cannot be unpacked.
    Damaged,
    /// There are two visible pieces for one place in it, and they differ.
    Ambiguous,
}

/// Fetches values, with a file handle and a buffer of its own.
pub struct Toast {
    heap: HeapFile,
    places: Arc<Places>,
    xacts: Xacts,
    /// Whether its pages have checksums.
    verify: bool,
    /// Blocks with another checksum than their bytes, in which pieces were found.
    pub wrong_checksums: BTreeSet<u32>,
    buffer: ReadBuffer,
    /// The blocks in the buffer, and a bit for each whose checksum was compared, and is wrong.
    read: Range<u32>,
    checked: u8,
    wrong: u8,
    blocks: Vec<u32>,
    pieces: Vec<Piece>,
    /// Whether the pieces were found as they follow one another, each once: what is stored then is the value.
    in_order: bool,
    stored: Vec<u8>,
}

impl Toast {
    /// `verify`: its pages have checksums.
    pub fn new(heap: HeapFile, places: Arc<Places>, xacts: Xacts, verify: bool) -> Toast {
        let buffer = ReadBuffer::new(BLOCKS * heap.block_size);
        let (read, blocks, pieces, stored) = (0..0, Vec::new(), Vec::new(), Vec::new());
        Toast {
            heap,
            places,
            xacts,
            verify,
            wrong_checksums: BTreeSet::new(),
            buffer,
            read,
            checked: 0,
            wrong: 0,
            blocks,
            pieces,
            in_order: true,
            stored,
        }
    }

    /// The value's bytes, unpacked, in `out`.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn fetch(&mut self, external: &External, out: &mut Vec<u8>) -> Result<Fetched> {
        let wanted = external.stored();
        self.pieces.clear();
        self.stored.clear();
        self.in_order = true;
        let mut blocks = std::mem::take(&mut self.blocks);
        let found = self.places.find(external.va_valueid, &mut blocks);
        // Versions of rows that are gone may have left pieces of the same number; more than that is damage.
        let most = wanted.saturating_mul(4).saturating_add(1 << 16);
        for first in &blocks {
            for block in *first.. {
                if !self.pieces_of(external.va_valueid, block)? || self.stored.len() > most {
                    break;
                }
                if self.stored.len() >= wanted && blocks.len() == 1 && self.in_order {
                    break;
                }
            }
        }
        self.blocks = blocks;
        found?;
        if !self.in_order && !self.put_in_order(wanted) {
            return Ok(Fetched::Ambiguous);
        }
        if self.stored.len() != wanted {
            return Ok(Fetched::Missing);
        }
        out.clear();
        if !external.is_compressed() {
            out.extend_from_slice(&self.stored);
            return Ok(Fetched::Whole);
        }
        let unpacked = |(size, method, packed)| {
            (size == external.unpacked()).then(|| varlena::unpack(size, method, packed)).flatten()
        };
        Ok(match varlena::compressed(&self.stored).and_then(unpacked) {
            Some(value) => {
                *out = value;
                Fetched::Whole
            }
            None => Fetched::Damaged,
        })
    }

    /// Of each piece that was found for the last value its number, whether no snapshot sees it, and its length.
    pub fn chunks(&self) -> impl Iterator<Item = (u32, bool, usize)> + '_ {
        self.pieces.iter().map(|(seq, gone, bytes)| (*seq, *gone, bytes.len()))
    }

    /// Takes the pieces of a value from a block; whether there are any.
    fn pieces_of(&mut self, id: u32, block: u32) -> Result<bool> {
        if !self.read.contains(&block) {
            self.read = 0..0;
            if block >= self.heap.blocks {
                return Ok(false);
            }
            let read = self.heap.read(block, &mut self.buffer)?;
            self.read = block..block + read as u32;
            (self.checked, self.wrong) = (0, 0);
            if read == 0 {
                return Ok(false);
            }
        }
        let (bit, size) = (1 << (block - self.read.start), self.heap.block_size);
        let at = (block - self.read.start) as usize * size;
        if self.verify && self.checked & bit == 0 {
            let heap = &mut self.heap;
            let settled =
                settle(&mut self.buffer[at..at + size], block, |page| matches!(heap.read(block, page), Ok(1)));
            self.checked |= bit;
            self.wrong |= if settled == Settled::Sound { 0 } else { bit };
        }
        let before = self.pieces.len();
        let mut parts = Vec::new();
        for (_, item) in tuples(&self.buffer[at..at + size]).into_iter().flatten() {
            let Some(tuple) = Tuple::parse(item) else { continue };
            if tuple.data.first_chunk() != Some(&id.to_le_bytes()) {
                continue;
            }
            let Some((_, seq, data)) = chunk(&tuple, &mut parts) else { continue };
            let gone = !self.xacts.status(&tuple.header).is_shown();
            self.in_order &= seq as usize == self.pieces.len();
            let start = self.stored.len();
            self.stored.extend_from_slice(data);
            self.pieces.push((seq, gone, start..self.stored.len()));
        }
        let found = self.pieces.len() > before;
        if found && self.wrong & bit != 0 {
            self.wrong_checksums.insert(block);
        }
        Ok(found)
    }

    /// Of pieces with the same number the visible one counts; false when there are two that differ.
    fn put_in_order(&mut self, wanted: usize) -> bool {
        self.pieces.sort_by_key(|p| (p.0, p.1));
        let data = |piece: &Piece| &self.stored[piece.2.clone()];
        let differ = |pair: &[Piece]| pair[0].0 == pair[1].0 && !pair[1].1 && data(&pair[0]) != data(&pair[1]);
        if self.pieces.windows(2).any(differ) {
            return false;
        }
        self.pieces.dedup_by_key(|p| p.0);
        let mut whole = Vec::with_capacity(wanted.min(self.stored.len()));
        for (i, (seq, _, range)) in self.pieces.iter().enumerate() {
            if *seq as usize == i && whole.len() < wanted {
                whole.extend_from_slice(&self.stored[range.clone()]);
            }
        }
        self.stored = whole;
        true
    }
}
