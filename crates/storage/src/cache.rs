//! A write-back cache of a controller: a write has ended when it is in the cache, and goes to the drives later, with its neighbours.

use std::collections::{BTreeSet, VecDeque};

use crate::layout::CacheSpec;

/// The cache counts in blocks of this size.
const BLOCK: u64 = 4096;

/// A write that waits for room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocked {
    pub request: usize,
    pub at: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Cache {
    room: u64,
    pub latency_ns: u64,
    most_destages: usize,
    /// A write to the drives ends within one stripe, so that a whole one reads nothing.
    row_bytes: u64,
    dirty: BTreeSet<u64>,
    /// Blocks on their way to the drives, which are still in the cache.
    leaving: u64,
    destages: usize,
    from: u64,
    pub blocked: VecDeque<Blocked>,
}

impl Cache {
    pub fn new(spec: &CacheSpec, row_bytes: u64) -> Cache {
        Cache {
            room: (spec.size_mb * (1 << 20) as f64) as u64 / BLOCK,
            latency_ns: (spec.latency_us * 1e3) as u64,
            most_destages: spec.destage,
            row_bytes,
            dirty: BTreeSet::new(),
            leaving: 0,
            destages: 0,
            from: 0,
            blocked: VecDeque::new(),
        }
    }

    fn blocks(at: u64, bytes: u64) -> std::ops::Range<u64> {
        at / BLOCK..(at + bytes).div_ceil(BLOCK)
    }

    /// Whether a write can ever be taken in.
    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        let blocks = Self::blocks(at, bytes);
        blocks.end - blocks.start <= self.room
    }

    /// Takes a write in, if there is room.
    pub fn take(&mut self, at: u64, bytes: u64) -> bool {
        let new = Self::blocks(at, bytes).filter(|block| !self.dirty.contains(block)).count() as u64;
        if self.dirty.len() as u64 + self.leaving + new > self.room {
            return false;
        }
        self.dirty.extend(Self::blocks(at, bytes));
        true
    }

    /// Whether a read finds all of it here.
    pub fn has(&self, at: u64, bytes: u64) -> bool {
        Self::blocks(at, bytes).all(|block| self.dirty.contains(&block))
    }

    /// First byte and length of the next write to the drives: they go over the addresses again and again, in order.
    pub fn destage(&mut self) -> Option<(u64, u64)> {
        if self.destages == self.most_destages {
            return None;
        }
        let first = *self.dirty.range(self.from..).next().or_else(|| self.dirty.first())?;
        let last = ((first * BLOCK / self.row_bytes + 1) * self.row_bytes).div_ceil(BLOCK);
        let run = (first..last).take_while(|block| self.dirty.contains(block)).count() as u64;
        (first..first + run).for_each(|block| {
            self.dirty.remove(&block);
        });
        self.leaving += run;
        self.destages += 1;
        self.from = first + run;
        Some((first * BLOCK, run * BLOCK))
    }

    /// A write to the drives has ended.
    pub fn destaged(&mut self, bytes: u64) {
        self.destages -= 1;
        self.leaving -= bytes / BLOCK;
    }

    /// A write that waited and for which there is room now.
    pub fn unblock(&mut self) -> Option<Blocked> {
        let first = *self.blocked.front()?;
        if !self.take(first.at, first.bytes) {
            return None;
        }
        self.blocked.pop_front()
    }
}
