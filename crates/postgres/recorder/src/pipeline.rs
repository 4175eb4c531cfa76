//! Positions of a server in the WAL at a steady rate: rows of `replication_position` and `walsender`.

use leadline_clockwork::{monotonic_ns, OpenTables, OwnedRow, Tick};
use leadline_errors::{Error, Kind};
use leadline_shm::attach::{attach, Attached};
use leadline_shm::pipeline::{Pipeline, Position, Sender};
use parking_lot::Mutex;
use std::sync::Arc;

use crate::riders::{self, Rider};

/// Rows wait for the proof that the server still uses the memory that they were read from.
const VERIFY_NS: i64 = 100_000_000;
/// The thread of the probe rests for so long while a sampler reads.
const REST_NS: i64 = 500_000_000;
/// Periods in which no sampler has looked, after which the probe's own thread reads.
const PATIENCE: i64 = 3;
/// In one of so many readings it is found out anew who the walsenders are: their names may change.
const ANEW: u64 = 20;
/// Records seen while they were applied, until somebody takes them; the others are left out.
const MOST_APPLIED: usize = 1_000_000;

/// A server whose positions can be read from its memory.
#[derive(Debug)]
pub struct PipelineMemory {
    server: Attached,
    pipeline: Pipeline,
    period_ns: i64,
    seen: Mutex<Seen>,
}

/// What was read at a steady rate, until it is written.
#[derive(Debug, Default)]
struct Seen {
    /// A probe writes it.
    is_wanted: bool,
    /// When the next reading is due; 0 before the first.
    due: i64,
    last: i64,
    /// When a sampler has looked, and how long after the time before.
    visited: i64,
    gap: i64,
    readings: Vec<(i64, i64, Reading)>,
    applied: Vec<(u64, u64)>,
    count: u64,
    missed: u64,
    /// The walsenders of the last reading.
    senders: Vec<Sender>,
    error: Option<Error>,
}

/// One reading: the positions, and those that receive the WAL.
pub type Reading = (Position, Vec<Sender>);

impl PipelineMemory {
    /// Attaches to the postmaster `pid`. `rate_hz`: of the readings of a [`PipelineProbe`].
    ///
    /// # Errors
    /// As [`attach`], and when the positions are not found.
    pub fn attach(pid: i32, rate_hz: f64, allow_map: bool) -> Result<PipelineMemory, Error> {
        let server = attach(pid, allow_map)?;
        let pipeline = Pipeline::find(&server)?;
        Ok(PipelineMemory { server, pipeline, period_ns: (1e9 / rate_hz) as i64, seen: Mutex::default() })
    }

    /// The records that the probe has seen while they were applied, since the last time: what was replayed before, and where each ends.
    pub fn take_applied(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.seen.lock().applied)
    }

    /// Reads if a reading is due.
    fn look(&self, seen: &mut Seen, ts: i64) {
        if !seen.is_due(ts, self.period_ns) {
            return;
        }
        let is_anew = seen.count % ANEW == 1;
        match self.read_with(if is_anew { &[] } else { &seen.senders }) {
            Ok(reading) => {
                seen.senders.clone_from(&reading.1);
                let took = monotonic_ns() - ts;
                seen.note_applied(&reading.0);
                seen.readings.push((ts, took, reading));
            }
            Err(e) => {
                seen.error.get_or_insert(e);
            }
        }
    }

    /// Where the server is now.
    ///
    /// # Errors
    /// The server has gone, or its memory cannot be read.
    pub fn read(&self) -> Result<Reading, Error> {
        self.read_with(&[])
    }

    fn read_with(&self, senders: &[Sender]) -> Result<Reading, Error> {
        let read =
            || Ok((self.pipeline.position(&self.server.memory)?, self.pipeline.senders(&self.server.memory, senders)?));
        read().map_err(|fault: leadline_shm::memory::Fault| {
            let gone = || Error::new(Kind::Layout, "the server's memory cannot be read any more");
            let detail = format!("address {:#x}", fault.addr);
            self.server.process.still_there().err().unwrap_or_else(gone).detail(detail)
        })
    }
}

impl Rider for PipelineMemory {
    fn look_beside(&self) {
        // A sampler waits for nobody: whoever holds it may be without a CPU.
        let Some(mut seen) = self.seen.try_lock() else { return };
        if seen.is_wanted {
            let ts = monotonic_ns();
            seen.visit(ts);
            self.look(&mut seen, ts);
        }
    }
}

impl Seen {
    /// Whether a reading is due, of which there is one in each period; then it counts as made, and those that did not come as missed.
    fn is_due(&mut self, ts: i64, period_ns: i64) -> bool {
        if ts < self.due {
            return false;
        }
        if self.last != 0 {
            self.missed += ((ts - self.last) / period_ns - 1).max(0) as u64;
        }
        // A sampler comes once in each period, at any moment of it: what is up to a period early is taken.
        self.due = if self.due == 0 { ts } else { (self.due + period_ns).max(ts - period_ns) };
        self.last = ts;
        self.count += 1;
        true
    }

    fn visit(&mut self, ts: i64) {
        (self.gap, self.visited) = (ts - self.visited, ts);
    }

    /// Whether a sampler looks as often as readings are due.
    fn is_read_beside(&self, now: i64, period_ns: i64) -> bool {
        self.visited != 0 && self.gap.max(now - self.visited) < PATIENCE * period_ns
    }

    fn note_applied(&mut self, position: &Position) {
        let (Some(replay), Some(end)) = (position.replay, position.applying) else { return };
        if self.applied.last() != Some(&(replay, end)) && self.applied.len() < MOST_APPLIED {
            self.applied.push((replay, end));
        }
    }
}

/// Reads them at a steady rate, or writes what a sampler of this process has read.
#[derive(Debug)]
pub struct PipelineProbe {
    memory: Arc<PipelineMemory>,
    node: i32,
    waiting: Vec<OwnedRow>,
    senders_waiting: Vec<OwnedRow>,
    verified: i64,
}

impl PipelineProbe {
    /// `node`: number of the server in the capture.
    pub fn new(memory: Arc<PipelineMemory>, node: i32) -> Self {
        if !memory.server.memory.pays_per_read() {
            riders::add(&memory); // else it would hold up the sampler
        }
        memory.seen.lock().is_wanted = true;
        PipelineProbe { memory, node, waiting: Vec::new(), senders_waiting: Vec::new(), verified: 0 }
    }

    fn write(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        self.memory.server.process.still_there()?;
        self.verified = ts;
        tables.write_rows("replication_position", self.waiting.iter().map(OwnedRow::row))?;
        tables.write_rows("walsender", self.senders_waiting.iter().map(OwnedRow::row))?;
        self.waiting.clear();
        self.senders_waiting.clear();
        Ok(())
    }
}

impl Drop for PipelineProbe {
    fn drop(&mut self) {
        self.memory.seen.lock().is_wanted = false;
    }
}

impl Tick for PipelineProbe {
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        let readings = {
            let mut seen = self.memory.seen.lock();
            if !seen.is_read_beside(ts, self.memory.period_ns) {
                self.memory.look(&mut seen, ts);
            }
            if let Some(error) = seen.error.take() {
                return Err(error);
            }
            std::mem::take(&mut seen.readings)
        };
        for (ts, took, (position, senders)) in readings {
            self.waiting.push(position_row(ts + took / 2, self.node, took, &position));
            self.senders_waiting
                .extend(senders.iter().map(|sender| sender_row(ts + took / 2, self.node, took, sender)));
        }
        if ts - self.verified >= VERIFY_NS {
            self.write(ts, tables)?;
        }
        Ok(())
    }

    fn last(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        self.tick(ts, tables)?;
        self.write(ts, tables)
    }

    fn rests_until(&self, now: i64) -> Option<i64> {
        self.memory.seen.lock().is_read_beside(now, self.memory.period_ns).then_some(now + REST_NS)
    }

    fn counted(&self) -> Option<(u64, u64)> {
        let seen = self.memory.seen.lock();
        Some((seen.count, seen.missed))
    }
}

fn number(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

fn position_row(ts: i64, node: i32, took: i64, p: &Position) -> OwnedRow {
    let mut row = OwnedRow::default();
    row.int(ts).int(node).int(took).truth(p.in_recovery);
    for lsn in [p.insert, p.flush, p.write, p.upstream, p.replay] {
        row.maybe(number(lsn));
    }
    match p.is_paused {
        Some(paused) => row.truth(paused),
        None => row.maybe(None),
    };
    match p.receiver {
        Some(state) => row.text(state),
        None => row.maybe(None),
    };
    row.maybe(p.last_commit).text("shm").maybe(number(p.applying)).maybe(p.timeline.map(i64::from));
    row.maybe(p.startup_wait.map(i64::from));
    row
}

fn sender_row(ts: i64, node: i32, took: i64, s: &Sender) -> OwnedRow {
    let mut row = OwnedRow::default();
    row.int(ts).int(node).int(took).int(s.pid).text(s.application_name.as_str()).text(s.client_addr.as_str());
    row.truth(s.is_logical).text(s.state);
    for lsn in [s.sent, s.write, s.flush, s.replay] {
        row.maybe(number(lsn));
    }
    for lag in s.lags {
        row.maybe(lag);
    }
    match s.is_candidate {
        true => row.maybe(None), // potential, sync or quorum: the settings of the server decide
        false => row.text("async"),
    };
    row.text("shm");
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_clockwork::Moments;

    const PERIOD: i64 = 10_000_000;
    const START: i64 = 77_000_000_003;

    /// A probe that begins, and then is looked at by a sampler at these moments: readings and misses.
    fn seen(moments: impl Iterator<Item = i64>) -> (u64, u64) {
        let mut seen = Seen::default();
        assert!(seen.is_due(START, PERIOD));
        for ts in moments {
            seen.is_due(ts, PERIOD);
        }
        (seen.count - 1, seen.missed)
    }

    #[test]
    fn a_sampler_of_the_same_rate_reads_at_each_of_its_passes() {
        for phase in [0, 1, 3_000_000, 9_999_999] {
            let moments = Moments::new(START + phase, PERIOD);
            assert_eq!(seen((0..1000).map(|number| moments.due(number))), (1000, 0), "{phase}");
        }
    }

    #[test]
    fn a_faster_sampler_reads_once_in_a_period() {
        let (count, missed) = seen((1..=10_000).map(|ms| START + ms * 1_000_000));
        assert!((1000..=1002).contains(&count), "{count}");
        assert_eq!(missed, 0);
    }

    #[test]
    fn what_nobody_read_is_missed() {
        assert_eq!(seen([1, 2, 3, 8, 9].into_iter().map(|number| START + number * PERIOD)), (5, 4));
    }

    /// Whether the thread of the probe leaves it to a sampler that looks so often, after this time without it.
    fn is_read_beside(every: i64, since: i64) -> bool {
        let mut seen = Seen::default();
        (0..3).for_each(|number| seen.visit(START + number * every));
        seen.is_read_beside(START + 2 * every + since, PERIOD)
    }

    #[test]
    fn the_probe_reads_itself_where_no_sampler_looks_as_often() {
        assert!(is_read_beside(PERIOD, PATIENCE * PERIOD - 1));
        assert!(!is_read_beside(PERIOD, PATIENCE * PERIOD), "it has stopped");
        assert!(is_read_beside(2 * PERIOD - 1, 0), "at the end of one period, and at the end of the next");
        assert!(!is_read_beside(10 * PERIOD, 0), "a slow one");
        assert!(!Seen::default().is_read_beside(START, PERIOD), "none");
        let mut first = Seen::default();
        first.visit(START);
        assert!(!first.is_read_beside(START, PERIOD), "the first time");
    }
}
