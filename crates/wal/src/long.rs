//! Records too long to be held whole: up to 1020 MB (`XLogRecordMaxSize`) of which nearly all is main data, the last thing in them.
//!
//! Their CRC is computed as they are read. Kept are the front with all block data and images, the first bytes of main data, and
//! the few pieces behind them with what comes next ([`crate::describe::missing`]). What is not kept is counted; who needs
//! all of a list reads it from the log once more, a bit at a time ([`Again`]).

use std::sync::Arc;

use crate::crc::{crc_of, Words};
use crate::log::{Log, Range};
use crate::page::{LONG, SHORT};
use crate::reader::Reader;
use crate::record::{Record, BEFORE_MAIN, HEADER};
use leadline_datadir::Lsn;
use leadline_errors::Result;

/// What is kept of a long record, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// From the record's beginning, while it is put together: what there can be before the main data, and `main`.
    pub front: usize,
    /// From the beginning of the main data.
    pub main: usize,
    /// Of each piece behind it.
    pub piece: usize,
}

/// What is kept unless a test says otherwise. A MiB of main data has 65,536 invalidation messages or 262,144 subtransactions. To print
/// them takes about a hundred times as much memory, of which there are to be less than 300 MB.
pub const KEPT: Kept = Kept { front: BEFORE_MAIN + (1 << 20), main: 1 << 20, piece: 1 << 16 };

/// A part of a long record's main data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where in the main data it begins.
    pub at: usize,
    pub bytes: Vec<u8>,
}

/// A list of which only the first things may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T> {
    /// The first ones.
    pub known: Vec<T>,
    /// How many more there are.
    pub left_out: usize,
    /// Where in the main data those begin.
    pub rest_at: usize,
}

impl<T> List<T> {
    /// A list of nothing.
    pub(crate) fn none() -> List<T> {
        List { known: Vec::new(), left_out: 0, rest_at: 0 }
    }

    /// Where it begins, when nothing of it is kept.
    pub(crate) fn unknown(&self) -> Option<usize> {
        (self.known.is_empty() && self.left_out > 0).then_some(self.rest_at)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.left_out == 0
    }
}

/// A record put together from the parts that pages have of it.
#[derive(Default)]
pub(crate) struct Assembled {
    /// All of it, or the front of a long one.
    pub front: Vec<u8>,
    /// Bytes of the whole.
    pub length: usize,
    /// Once there was more than is kept: the CRC of all behind the header so far.
    crc: u32,
}

impl Assembled {
    pub(crate) fn clear(&mut self) {
        self.front.clear();
        self.length = 0;
    }

    /// Adds the part that follows, of which only what makes `most` bytes is kept.
    pub(crate) fn add(&mut self, part: &[u8], most: usize) {
        let (kept, rest) = part.split_at(part.len().min(most.saturating_sub(self.front.len())));
        let first = self.length == self.front.len();
        self.front.extend_from_slice(kept);
        self.length += part.len();
        if !rest.is_empty() {
            let before = if first { crc32c::crc32c(&self.front[HEADER..]) } else { self.crc };
            self.crc = crc32c::crc32c_append(before, rest);
        }
    }

    /// The CRC of the whole record.
    pub(crate) fn crc(&self, words: &mut Words) -> u32 {
        if self.length == self.front.len() {
            return crc_of(&self.front, words);
        }
        crc32c::crc32c_append(self.crc, &self.front[..20])
    }
}

/// The main data of a record from some byte on, read from the log a second time.
pub struct Again {
    reader: Reader,
    /// Position of the next byte.
    at: u64,
    /// Bytes of the record from there on.
    left: usize,
}

impl Again {
    /// Reads a record's main data again, beginning at byte `from` of it.
    pub fn of(log: &Arc<Log>, record: &Record<'_>, from: usize) -> Again {
        let mut skipped = (record.length() - record.main_length()).saturating_add(from).min(record.length());
        let left = record.length() - skipped;
        let mut at = record.start.0;
        loop {
            let here = log.page_size - at % log.page_size;
            if (skipped as u64) < here {
                break;
            }
            skipped -= here as usize;
            at += here;
            at += header_size(log, at);
        }
        let range = Range { from: record.start, to: Lsn(record.start.0 + 1) };
        Again { reader: Reader::new(log.clone(), range), at: at + skipped as u64, left }
    }

    /// Adds the next `wanted` bytes to `into`; fewer where the record ends.
    ///
    /// # Errors
    /// Those of reading, and [`crate::Kind::Invalid`] when the record is not there any more.
    pub fn read(&mut self, wanted: usize, into: &mut Vec<u8>) -> Result<()> {
        let mut wanted = wanted.min(self.left);
        while wanted > 0 {
            let part = self.reader.part_of_record(self.at, self.left)?;
            let part = &part[..part.len().min(wanted)];
            into.extend_from_slice(part);
            wanted -= part.len();
            self.left -= part.len();
            self.at += part.len() as u64;
            let log = self.reader.log();
            if self.at % log.page_size == 0 {
                self.at += header_size(log, self.at);
            }
        }
        Ok(())
    }
}

/// Bytes of the header of the page that begins here.
fn header_size(log: &Log, page: u64) -> u64 {
    if page % log.segment_size == 0 {
        LONG as u64
    } else {
        SHORT as u64
    }
}
