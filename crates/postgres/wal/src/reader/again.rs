//! The main data of a record, read from the WAL a second time: for lists of which not all is kept.

use std::sync::Arc;

use leadline_datadir::Lsn;
use leadline_errors::Result;

use super::Reader;
use crate::page::{LONG, SHORT};
use crate::record::Record;
use crate::wal::{Range, Wal};

/// The main data of a record from some byte on, read from the WAL a second time.
pub struct Again {
    reader: Reader,
    /// Position of the next byte.
    at: u64,
    /// Bytes of the record from there on.
    left: usize,
}

impl Again {
    /// Reads a record's main data again, beginning at byte `from` of it.
    pub fn of(log: &Arc<Wal>, record: &Record<'_>, from: usize) -> Again {
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
    /// Those of reading, and [`leadline_errors::Kind::Invalid`] when the record is not there any more.
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
            if self.at.is_multiple_of(log.page_size) {
                self.at += header_size(log, self.at);
            }
        }
        Ok(())
    }
}

/// Bytes of the header of the page that begins here.
fn header_size(log: &Wal, page: u64) -> u64 {
    if page.is_multiple_of(log.segment_size) {
        LONG as u64
    } else {
        SHORT as u64
    }
}
