//! A whole file of packets, followed from its beginning to its end.

use std::fs::File;
use std::path::Path;

use crate::analyser::{Analyser, Options};
use crate::file::{FileCounts, PacketReader};
use leadline_clockwork::OpenTables;
use leadline_errors::{Error, Kind, Result};

/// Packets between two looks at whether to go on.
const STEP: u64 = 65_536;
/// Round trips that wait to be written.
const BATCH: usize = 65_536;

/// Reads a file. Rows go to `tables` if there are any. `go_on` is asked now and then, with the bytes read so far.
///
/// # Errors
/// The file cannot be read or is no file of packets, its link type is unknown, a table cannot be written, or `go_on` says no.
pub fn read_file(
    path: &Path,
    options: Options,
    mut tables: Option<&mut OpenTables>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(Analyser, FileCounts)> {
    let file = File::open(path).map_err(|e| Error::reading(path, "the packets", &e))?;
    let mut packets = PacketReader::new(file).map_err(|e| e.at(path))?;
    let mut analyser = Analyser::new(Options { keep_rows: tables.is_some(), ..options });
    loop {
        for _ in 0..STEP {
            let Some(packet) = packets.next_packet().map_err(|e| e.at(path))? else {
                analyser.finish();
                if let Some(tables) = tables {
                    analyser.write(tables)?;
                    tables.roll()?;
                }
                return Ok((analyser, packets.counts()));
            };
            analyser.take(&packet);
        }
        if let Some(tables) = &mut tables {
            if analyser.trips.len() >= BATCH {
                analyser.write(tables)?;
            }
        }
        if !go_on(packets.counts().bytes) {
            return Err(Error::new(Kind::Gone, "interrupted"));
        }
    }
}
