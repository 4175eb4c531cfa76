//! Files of packets, followed from their beginning to their end.

use crate::analyser::{Analyser, Options};
use crate::file::{FileCounts, Merged, Source};
use leadline_clockwork::OpenTables;
use leadline_errors::{Error, Kind, Result};

/// Packets between two looks at whether to go on.
const STEP: u64 = 65_536;
/// Round trips or connections that wait to be written.
const BATCH: usize = 65_536;
/// What may wait in memory for the end of a segment, in round trips; a row of a connection is as large as some of them.
const SEGMENT: usize = 500_000;
const CONNECTION: usize = 8;

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Go {
    On,
    /// What was read is all: as at the end.
    ToTheEnd,
    Away,
}

/// Reads files, by the time of their packets. Rows go to `tables` if there are any. `go` is asked now and then, and after each signal, with
/// the packets so far.
///
/// # Errors
/// A file cannot be read or is no file of packets, its link type is unknown, a table cannot be written, or `go` says so.
pub fn read_files(
    sources: Vec<Source>,
    options: Options,
    mut tables: Option<&mut OpenTables>,
    go: &mut dyn FnMut(u64) -> Go,
) -> Result<(Analyser, FileCounts)> {
    let mut files = Merged::open(sources)?;
    let mut analyser = Analyser::new(Options { keep_rows: tables.is_some(), ..options });
    let mut waiting = 0;
    loop {
        let is_there = match files.advance() {
            Err(e) if e.kind == Kind::Gone => None,
            other => Some(other?),
        };
        if is_there == Some(true) {
            if let Some(packet) = files.packet() {
                analyser.take_if_wanted(&packet)?;
            }
        }
        if is_there == Some(true) && !analyser.counts.packets.is_multiple_of(STEP) {
            continue;
        }
        let told = if is_there == Some(false) { Go::ToTheEnd } else { go(analyser.counts.packets) };
        if told == Go::Away {
            return Err(Error::new(Kind::Gone, "interrupted"));
        }
        if told == Go::ToTheEnd {
            analyser.finish();
        }
        if let Some(tables) = &mut tables {
            let rows = analyser.trips.len() + CONNECTION * analyser.closed.len();
            if told == Go::ToTheEnd || rows >= BATCH {
                waiting += rows;
                analyser.write(tables)?;
            }
            if waiting >= SEGMENT {
                waiting = 0;
                tables.roll()?;
            }
        }
        if told == Go::ToTheEnd {
            if let Some(tables) = tables {
                tables.roll()?;
            }
            return Ok((analyser, files.counts()));
        }
    }
}
