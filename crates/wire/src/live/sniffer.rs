//! The ring as a probe: emptied at each tick, its packets followed, their rows written.

use std::sync::Arc;

use super::ring::{Ring, Wanted};
use crate::analyser::{Analyser, Options};
use crate::packet::Packet;
use leadline_clockwork::{ClockReading, OpenTables, Tick, SECOND};
use leadline_errors::{Error, Result};
use parking_lot::Mutex;

/// Round trips that wait in memory at most.
const BATCH: usize = 16_384;

/// What the probe has seen so far.
pub struct Live {
    /// Connections and round trips.
    pub analyser: Analyser,
    /// Packets that the kernel had no room for.
    pub lost: u64,
    /// Packets of blocks that could not be read.
    pub unreadable: u64,
}

/// Captures packets.
pub struct Sniffer {
    ring: Ring,
    live: Arc<Mutex<Live>>,
    write: bool,
    written: i64,
}

impl Sniffer {
    /// Opens the ring.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open(wanted: &Wanted, options: Options) -> Result<Sniffer> {
        let ring = Ring::open(wanted)?;
        let write = options.keep_rows;
        let live = Live { analyser: Analyser::new(options), lost: 0, unreadable: 0 };
        Ok(Sniffer { ring, live: Arc::new(Mutex::new(live)), write, written: 0 })
    }

    /// What was seen, also while the probe runs elsewhere.
    pub fn live(&self) -> Arc<Mutex<Live>> {
        self.live.clone()
    }

    fn look(&mut self, ts: i64, tables: &mut OpenTables, end: bool) -> Result<()> {
        // The kernel stamps packets with CLOCK_REALTIME. They waited some milliseconds at most, so that one reading does for all.
        let clock = ClockReading::now();
        let to_monotonic = clock.monotonic_ns - clock.realtime_ns;
        let mut live = self.live.lock();
        let analyser = &mut live.analyser;
        self.ring.drain(&mut |packet| analyser.take(&Packet { ts: packet.ts + to_monotonic, ..*packet }));
        self.ring.count_lost();
        (live.lost, live.unreadable) = (self.ring.lost, self.ring.unreadable);
        if end {
            live.analyser.finish();
        }
        if self.write && (end || ts >= self.written + SECOND || live.analyser.trips.len() >= BATCH) {
            self.written = ts;
            live.analyser.write(tables)?;
        }
        Ok(())
    }
}

impl Tick for Sniffer {
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> std::result::Result<(), Error> {
        self.look(ts, tables, false)
    }

    fn last(&mut self, ts: i64, tables: &mut OpenTables) -> std::result::Result<(), Error> {
        self.look(ts, tables, false)?;
        self.ring.wait_for_last();
        self.look(ts, tables, true)
    }
}
