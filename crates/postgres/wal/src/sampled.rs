//! The records that a server was seen to replay: each is known by the place that was replayed before it, and by its end.
//!
//! Only the pages around these places are read, so that a long WAL costs no more than a short one.

use std::sync::Arc;

use crate::reader::Reader;
use crate::record::{Block, Record};
use crate::wal::{Range, Wal};
use leadline_datadir::Lsn;
use leadline_errors::{Error, Kind, Result};

/// What is told of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // columns of replay_record
pub struct Sampled {
    pub start: Lsn,
    pub end: Lsn,
    pub rmid: u8,
    pub info: u8,
    pub length: usize,
    pub image_bytes: usize,
    pub blocks: usize,
    /// The first block it refers to.
    pub block: Option<Block>,
}

impl Sampled {
    fn of(record: &Record<'_>) -> Sampled {
        Sampled {
            start: record.start,
            end: record.end,
            rmid: record.rmid,
            info: record.info,
            length: record.length(),
            image_bytes: record.image_bytes(),
            blocks: record.blocks.len(),
            block: record.blocks.first().copied(),
        }
    }
}

/// The records, and how many places had none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// In the order asked for.
    pub records: Vec<Sampled>,
    /// The record that follows the place ends somewhere else.
    pub wrong: u64,
    /// The WAL of the place is not there any more.
    pub gone: u64,
}

/// `places`: what was replayed before each record, and where the record ends. `go_on`: called now and then; false ends the search.
///
/// # Errors
/// The WAL cannot be read.
pub fn records_between(log: &Arc<Wal>, places: &[(u64, u64)], go_on: &mut dyn FnMut() -> bool) -> Result<Found> {
    let has = log.bounds();
    let mut found = Found::default();
    for (n, &(from, end)) in places.iter().enumerate() {
        if n % 256 == 0 && !go_on() {
            break;
        }
        if from < has.from.0 || end > has.to.0 || from >= end {
            found.gone += 1;
            continue;
        }
        let mut reader = Reader::new(log.clone(), Range { from: Lsn(from), to: Lsn(end) });
        match reader.next_record() {
            Ok(Some(record)) if record.end.0 == end => found.records.push(Sampled::of(&record)),
            Ok(Some(_)) => found.wrong += 1,
            Ok(None) => found.gone += 1, // the server has used the file again
            Err(Error { kind: Kind::Gone | Kind::NotFound | Kind::Invalid, .. }) => found.gone += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Folder, Writer, MAGIC_18, SEGMENT};

    #[test]
    fn each_place_gives_its_record_and_no_other() {
        let mut made = Writer::new(MAGIC_18, 1, 1);
        // short ones, and one that goes over pages
        let starts: Vec<u64> =
            [20usize, 200, 30_000, 7, 100].iter().map(|n| made.main(5, 10, 0x20, &vec![1; *n])).collect();
        let end = made.at;
        let folder = Folder::new("sampled");
        made.store(&folder.0);
        let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
        let ends: Vec<u64> = starts[1..].iter().copied().chain([end]).collect();
        let befores: Vec<u64> = [SEGMENT].into_iter().chain(ends.iter().copied()).collect();
        let places: Vec<(u64, u64)> = befores.into_iter().zip(ends.clone()).collect();
        let found = records_between(&log, &places, &mut || true).unwrap();
        assert_eq!((found.wrong, found.gone), (0, 0));
        assert_eq!(found.records.iter().map(|r| r.end.0).collect::<Vec<_>>(), ends);
        assert_eq!(found.records[0].start.0, starts[0]);

        let off =
            [(places[1].0, places[1].1 + 8), (0, 8), (places[4].1, places[4].1 + 64), (u64::MAX - 8, u64::MAX), (9, 8)];
        let found = records_between(&log, &off, &mut || true).unwrap();
        assert_eq!((found.records.len(), found.wrong, found.gone), (0, 1, 4));
        assert_eq!(records_between(&log, &places, &mut || false).unwrap(), Found::default());
    }
}
