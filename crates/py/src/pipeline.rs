//! `PipelineMemory`: positions of a server in the WAL, read from its memory.

use crate::error::Error;
use crate::probes::{Runner, Status, TicksLoss};
use leadline_recorder::{PipelineMemory as Inner, PipelineProbe};
use leadline_shm::pipeline::{Position, Sender};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The memory of one server, and the thread that reads its positions at a steady rate.
#[pyclass(frozen, module = "leadline._core.recorder")]
pub(crate) struct PipelineMemory {
    runner: Runner,
    memory: Arc<Inner>,
    node: i32,
}

#[pymethods]
impl PipelineMemory {
    #[new]
    #[allow(clippy::too_many_arguments)] // named in Python
    #[pyo3(signature = (capture_dir, pid, node, rate_hz, *, flush_interval_s=5.0, growing_segments=true, allow_map=true))]
    fn new(
        py: Python<'_>,
        capture_dir: PathBuf,
        pid: i32,
        node: i32,
        rate_hz: f64,
        flush_interval_s: f64,
        growing_segments: bool,
        allow_map: bool,
    ) -> Result<Self, Error> {
        let memory = Arc::new(py.detach(|| Inner::attach(pid, rate_hz, allow_map))?);
        let runner = Runner { capture_dir, rate_hz, flush_interval_s, growing_segments, ticker: OnceLock::new() };
        Ok(PipelineMemory { runner, memory, node })
    }

    /// The positions of this moment, and those of the walsenders.
    fn read(&self) -> Result<(PositionDict, Vec<SenderDict>), Error> {
        let (position, senders) = self.memory.read()?;
        Ok((position.into(), senders.into_iter().map(SenderDict::from).collect()))
    }

    /// Records that were seen while they were applied, since the last time: what was replayed before, and where each ends.
    fn take_applied(&self) -> Vec<(u64, u64)> {
        self.memory.take_applied()
    }

    fn start(&self) -> Result<(), Error> {
        self.runner.start("leadline-wal", PipelineProbe::new(self.memory.clone(), self.node))
    }

    fn status(&self) -> Result<Status, Error> {
        self.runner.status()
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.runner.stop(py, |status| TicksLoss { ticks_taken: status.ticks, ticks_missed: status.missed })
    }
}

#[derive(IntoPyObject)]
struct PositionDict {
    in_recovery: bool,
    insert_lsn: Option<u64>,
    flush_lsn: Option<u64>,
    write_lsn: Option<u64>,
    upstream_lsn: Option<u64>,
    replay_lsn: Option<u64>,
    record_lsn: Option<u64>,
    timeline: Option<u32>,
    is_paused: Option<bool>,
    receiver_status: Option<&'static str>,
    last_replayed_commit: Option<i64>,
    startup_wait: Option<u32>,
}

impl From<Position> for PositionDict {
    fn from(p: Position) -> Self {
        PositionDict {
            in_recovery: p.in_recovery,
            insert_lsn: p.insert,
            flush_lsn: p.flush,
            write_lsn: p.write,
            upstream_lsn: p.upstream,
            replay_lsn: p.replay,
            record_lsn: p.applying,
            timeline: p.timeline,
            is_paused: p.is_paused,
            receiver_status: p.receiver,
            last_replayed_commit: p.last_commit,
            startup_wait: p.startup_wait,
        }
    }
}

#[derive(IntoPyObject)]
struct SenderDict {
    pid: i32,
    application_name: String,
    client_addr: String,
    is_logical: bool,
    state: &'static str,
    sent_lsn: Option<u64>,
    write_lsn: Option<u64>,
    flush_lsn: Option<u64>,
    replay_lsn: Option<u64>,
    is_candidate: bool,
}

impl From<Sender> for SenderDict {
    fn from(s: Sender) -> Self {
        SenderDict {
            pid: s.pid,
            application_name: s.application_name,
            client_addr: s.client_addr,
            is_logical: s.is_logical,
            state: s.state,
            sent_lsn: s.sent,
            write_lsn: s.write,
            flush_lsn: s.flush,
            replay_lsn: s.replay,
            is_candidate: s.is_candidate,
        }
    }
}
