//! Where in WAL a time is: at the first record that tells it, or a later one.

use std::sync::Arc;

use crate::describe::time_of;
use crate::reader::Reader;
use crate::wal::{Range, Wal};
use leadline_datadir::Lsn;
use leadline_errors::Result;

/// The first record of the range that tells this time (Unix microseconds) or a later one; the end of the range when none does.
///
/// Times of commits are in order but for moments, so that of the segments before it only the beginnings are read.
///
/// # Errors
/// Those of [`Reader::next_record`], in the segment where the time is.
pub fn at_time(log: &Arc<Wal>, range: Range, time: i64) -> Result<Lsn> {
    let segment = log.segment_size;
    let mut starts = vec![range.from];
    starts.extend((range.from.0 / segment + 1..range.to.0.div_ceil(segment)).map(|n| Lsn(n * segment)));
    // What cannot be read, as behind the end of the WAL, is after every time.
    let is_before = |from: &Lsn| matches!(first(log, Range { from: *from, to: range.to }, |_| true), Ok(Some((_, told))) if told < time);
    let after = starts.partition_point(is_before);
    let from = starts[after.saturating_sub(1)];
    let found = first(log, Range { from, to: range.to }, |told| told >= time)?;
    Ok(found.map_or(range.to, |(lsn, _)| lsn))
}

/// The first record with a time that is wanted.
fn first(log: &Arc<Wal>, range: Range, is_wanted: impl Fn(i64) -> bool) -> Result<Option<(Lsn, i64)>> {
    let mut reader = Reader::new(Arc::clone(log), range);
    while let Some(record) = reader.next_record()? {
        if let Some(time) = time_of(&record).filter(|time| is_wanted(*time)) {
            return Ok(Some((record.start, time)));
        }
    }
    Ok(None)
}
