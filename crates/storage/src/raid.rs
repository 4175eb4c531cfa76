//! What a group does for a request: which reads, and then which writes, on which of its drives.

use std::collections::{BTreeMap, HashMap};

use crate::drive::Op;
use crate::layout::{GroupSpec, MirrorReads, PartialWrites, KB};

/// A part of a request that is done in two phases: reads, and when all have ended, writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub reads: Vec<Op>,
    pub writes: Vec<Op>,
}

#[derive(Debug)]
pub(crate) struct Raid {
    level: u32,
    /// Its first drive among all, and how many it has.
    first: usize,
    drives: u64,
    stripe: u64,
    mirror_reads: MirrorReads,
    partial_writes: PartialWrites,
    rows: RowCache,
    turn: usize,
}

/// A piece of a chunk.
#[derive(Debug, Clone, Copy)]
struct Piece {
    chunk: u64,
    /// In the chunk.
    from: u64,
    to: u64,
}

impl Raid {
    pub fn new(spec: &GroupSpec, first: usize) -> Raid {
        Raid {
            level: spec.raid,
            first,
            drives: spec.drives as u64,
            stripe: spec.stripe_kb * KB,
            mirror_reads: spec.mirror_reads,
            partial_writes: spec.partial_writes,
            rows: RowCache { most: spec.stripe_cache, ..RowCache::default() },
            turn: 0,
        }
    }

    /// Drives whose room holds data.
    pub fn data_drives(&self) -> u64 {
        match self.level {
            1 => 1,
            10 => self.drives / 2,
            5 => self.drives - 1,
            6 => self.drives - 2,
            _ => self.drives,
        }
    }

    /// Data of one stripe.
    pub fn row_bytes(&self) -> u64 {
        self.data_drives() * self.stripe
    }

    /// `inside`: requests in each drive of all. `thread`: who asks.
    pub fn read(&mut self, at: u64, bytes: u64, thread: usize, inside: &dyn Fn(usize) -> usize) -> Part {
        let mut reads = Vec::new();
        for (drive, at, bytes) in self.places(at, bytes) {
            let copies = self.copies(drive);
            let drive = if copies.len() == 1 { drive } else { self.copy(copies, thread, inside) };
            reads.push(Op { drive: self.first + drive, at, bytes, write: false });
        }
        Part { reads, writes: Vec::new() }
    }

    pub fn write(&mut self, at: u64, bytes: u64) -> Vec<Part> {
        if matches!(self.level, 5 | 6) {
            return self.parity_rows(at, bytes);
        }
        let op = |drive: usize, at, bytes| Op { drive: self.first + drive, at, bytes, write: true };
        let mut writes = Vec::new();
        for (drive, at, bytes) in self.places(at, bytes) {
            writes.extend(self.copies(drive).map(|copy| op(copy, at, bytes)));
        }
        vec![Part { reads: Vec::new(), writes }]
    }

    /// Drives of the group that hold the same as this one, its first.
    fn copies(&self, drive: usize) -> std::ops::Range<usize> {
        match self.level {
            1 => 0..self.drives as usize,
            10 => drive..drive + 2,
            _ => drive..drive + 1,
        }
    }

    fn copy(&mut self, copies: std::ops::Range<usize>, thread: usize, inside: &dyn Fn(usize) -> usize) -> usize {
        let count = copies.len();
        if self.mirror_reads == MirrorReads::Thread {
            return copies.start + thread % count;
        }
        // Among equals each in turn.
        self.turn = self.turn.wrapping_add(1);
        let of = |n: usize| copies.start + (n + self.turn) % count;
        (0..count).map(of).min_by_key(|copy| inside(self.first + copy)).unwrap_or(copies.start)
    }

    /// Drive of the group, byte on it, and length of each piece, in order.
    fn places(&self, at: u64, bytes: u64) -> Vec<(usize, u64, u64)> {
        if self.level == 1 {
            return vec![(0, at, bytes)];
        }
        let data = self.data_drives();
        let place = |piece: Piece| {
            let (row, n) = (piece.chunk / data, piece.chunk % data);
            let drive = match self.level {
                10 => 2 * n,
                5 | 6 => self.data_drive(row, n),
                _ => n,
            };
            (drive as usize, row * self.stripe + piece.from, piece.to - piece.from)
        };
        self.pieces(at, bytes).map(place).collect()
    }

    fn pieces(&self, at: u64, bytes: u64) -> impl Iterator<Item = Piece> {
        let (stripe, end) = (self.stripe, at + bytes);
        (at / stripe..=(end - 1) / stripe).map(move |chunk| Piece {
            chunk,
            from: at.saturating_sub(chunk * stripe),
            to: (end - chunk * stripe).min(stripe),
        })
    }

    /// Parity moves one drive on with each row, and data begins behind it (left-symmetric).
    fn parity_drive(&self, row: u64) -> u64 {
        self.drives - 1 - row % self.drives
    }

    fn data_drive(&self, row: u64, n: u64) -> u64 {
        (self.parity_drive(row) + (self.drives - self.data_drives()) + n) % self.drives
    }

    fn parity_rows(&mut self, at: u64, bytes: u64) -> Vec<Part> {
        let data = self.data_drives();
        let mut rows: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        for piece in self.pieces(at, bytes) {
            rows.entry(piece.chunk / data).or_default().push(piece);
        }
        rows.into_iter().map(|(row, pieces)| self.parity_row(row, &pieces)).collect()
    }

    fn parity_row(&mut self, row: u64, pieces: &[Piece]) -> Part {
        let (data, parities) = (self.data_drives(), self.drives - self.data_drives());
        let op = |drive: u64, from: u64, to: u64, write| Op {
            drive: self.first + (drive % self.drives) as usize,
            at: row * self.stripe + from,
            bytes: to - from,
            write,
        };
        // The bytes of each chunk that parity changes for.
        let from = pieces.iter().map(|piece| piece.from).min().unwrap_or(0);
        let to = pieces.iter().map(|piece| piece.to).max().unwrap_or(0);
        let behind = self.parity_drive(row);
        let parity = |write| (0..parities).map(|n| op(behind + n, from, to, write)).collect::<Vec<_>>();
        let new = |write| {
            pieces
                .iter()
                .map(|piece| op(self.data_drive(row, piece.chunk % data), piece.from, piece.to, write))
                .collect::<Vec<_>>()
        };
        let mut writes = new(true);
        writes.extend(parity(true));

        let mut reconstruct = Vec::new();
        for n in 0..data {
            match pieces.iter().find(|piece| piece.chunk % data == n) {
                None => reconstruct.push(op(self.data_drive(row, n), from, to, false)),
                Some(piece) if piece.from > from || piece.to < to => {
                    reconstruct.push(op(self.data_drive(row, n), from, to, false));
                }
                Some(_) => {}
            }
        }
        let whole = reconstruct.is_empty();
        let mut modify = new(false);
        modify.extend(parity(false));
        let reads = match self.partial_writes {
            _ if whole && from == 0 && to == self.stripe => Vec::new(),
            PartialWrites::WholeStripe => (0..self.drives).map(|drive| op(drive, 0, self.stripe, false)).collect(),
            PartialWrites::ReadModifyWrite => modify,
            PartialWrites::Cheapest if modify.len() <= reconstruct.len() => modify,
            PartialWrites::Cheapest | PartialWrites::Reconstruct => reconstruct,
        };
        let reads = if self.rows.has(row) { Vec::new() } else { reads };
        Part { reads, writes }
    }
}

/// Rows that are held in memory, those that were used last.
#[derive(Debug, Default)]
struct RowCache {
    most: usize,
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl RowCache {
    /// Whether it is there; it is afterwards.
    fn has(&mut self, row: u64) -> bool {
        if self.most == 0 {
            return false;
        }
        self.uses += 1;
        let before = self.used.insert(row, self.uses);
        self.by_use.insert(self.uses, row);
        if let Some(before) = before {
            self.by_use.remove(&before);
        } else if self.used.len() > self.most {
            if let Some((_, oldest)) = self.by_use.pop_first() {
                self.used.remove(&oldest);
            }
        }
        before.is_some()
    }
}
