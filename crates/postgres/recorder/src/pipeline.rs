//! Positions of a server in the WAL at a steady rate: rows of `replication_position` and `walsender`.

use leadline_clockwork::{monotonic_ns, OpenTables, OwnedRow, Tick};
use leadline_errors::{Error, Kind};
use leadline_shm::attach::{attach, Attached};
use leadline_shm::pipeline::{Pipeline, Position, Sender};
use parking_lot::Mutex;
use std::sync::Arc;

/// Rows wait for the proof that the server still uses the memory that they were read from.
const VERIFY_NS: i64 = 100_000_000;
/// Records seen while they were applied, until somebody takes them; the others are left out.
const MOST_APPLIED: usize = 1_000_000;

/// A server whose positions can be read from its memory.
#[derive(Debug)]
pub struct PipelineMemory {
    server: Attached,
    pipeline: Pipeline,
    applied: Mutex<Vec<(u64, u64)>>,
}

/// One reading: the positions, and those that receive the WAL.
pub type Reading = (Position, Vec<Sender>);

impl PipelineMemory {
    /// Attaches to the postmaster `pid`.
    ///
    /// # Errors
    /// As [`attach`], and when the positions are not found.
    pub fn attach(pid: i32, allow_map: bool) -> Result<PipelineMemory, Error> {
        let server = attach(pid, allow_map)?;
        let pipeline = Pipeline::find(&server)?;
        Ok(PipelineMemory { server, pipeline, applied: Mutex::default() })
    }

    /// The records that the probe has seen while they were applied, since the last time: what was replayed before, and where each ends.
    pub fn take_applied(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.applied.lock())
    }

    fn note_applied(&self, position: &Position) {
        let (Some(replay), Some(end)) = (position.replay, position.applying) else { return };
        let mut applied = self.applied.lock();
        if applied.last() != Some(&(replay, end)) && applied.len() < MOST_APPLIED {
            applied.push((replay, end));
        }
    }

    /// Where the server is now.
    ///
    /// # Errors
    /// The server has gone, or its memory cannot be read.
    pub fn read(&self) -> Result<Reading, Error> {
        let read = || Ok((self.pipeline.position(&self.server.memory)?, self.pipeline.senders(&self.server.memory)?));
        read().map_err(|fault: leadline_shm::memory::Fault| {
            let gone = || Error::new(Kind::Layout, "the server's memory cannot be read any more");
            let detail = format!("address {:#x}", fault.addr);
            self.server.process.still_there().err().unwrap_or_else(gone).detail(detail)
        })
    }
}

/// Reads them at each tick.
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

impl Tick for PipelineProbe {
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        let (position, senders) = self.memory.read()?;
        let took = monotonic_ns() - ts;
        self.memory.note_applied(&position);
        self.waiting.push(position_row(ts + took / 2, self.node, took, &position));
        self.senders_waiting.extend(senders.iter().map(|sender| sender_row(ts + took / 2, self.node, sender)));
        if ts - self.verified >= VERIFY_NS {
            self.write(ts, tables)?;
        }
        Ok(())
    }

    fn last(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        self.tick(ts, tables)?;
        self.write(ts, tables)
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

fn sender_row(ts: i64, node: i32, s: &Sender) -> OwnedRow {
    let mut row = OwnedRow::default();
    row.int(ts).int(node).int(s.pid).text(s.application_name.as_str()).text(s.client_addr.as_str());
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
