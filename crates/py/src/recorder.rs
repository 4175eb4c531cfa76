//! `Recorder`: the shared-memory probe and its threads.

use crate::dict::joined;
use crate::error::{Error, ErrorDict};
use crate::table_writer::tables_dict;
use leadline_recorder::{Config, Description, Recorder as Inner};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The shared-memory probe of one server and the threads that write what it sees.
#[pyclass(module = "leadline._core.recorder")]
pub(crate) struct Recorder {
    inner: Inner,
    description: Description,
    pid: i32,
}

#[pymethods]
impl Recorder {
    #[new]
    #[allow(clippy::too_many_arguments)] // named in Python
    #[pyo3(signature = (capture_dir, pid, rate_hz, *, delta_interval_s=1.0, flush_interval_s=5.0, growing_segments=true, allow_map=true))]
    fn new(
        py: Python<'_>,
        capture_dir: String,
        pid: i32,
        rate_hz: f64,
        delta_interval_s: f64,
        flush_interval_s: f64,
        growing_segments: bool,
        allow_map: bool,
    ) -> Result<Self, Error> {
        let config = Config {
            capture_dir: capture_dir.into(),
            pid,
            rate_hz,
            delta_interval_s,
            flush_interval_s,
            growing_segments,
            allow_map,
        };
        let (inner, description) = py.detach(|| Inner::attach(config))?;
        Ok(Recorder { inner, description, pid })
    }

    fn describe(&self) -> ServerDescription {
        let d = &self.description;
        let check = |check: &leadline_shm::attach::Check| LayoutCheck {
            check: check.name,
            result: match check.passed {
                Some(true) => "passed",
                Some(false) => "failed",
                None => "skipped",
            },
            detail: check.detail.clone(),
        };
        let cwd = std::fs::read_link(format!("/proc/{}/cwd", self.pid)).ok();
        ServerDescription {
            server_version_num: d.server_version_num,
            server_version: d.server_version.clone(),
            max_connections: d.max_connections,
            shared_buffers_bytes: d.shared_buffers_bytes,
            data_dir: cwd.map(|path| path.to_string_lossy().into_owned()),
            layout_checks: d.checks.iter().map(check).collect(),
            access: MemoryAccess {
                shared_memory: if d.mapped { "map_files" } else { "process_vm_readv" },
                private_memory: d.private_memory,
                why: d.not_mapped_why.clone(),
            },
            probes: Probes::of(d),
        }
    }

    /// Attaches to the server that has started again as this process; `start` then goes on.
    fn attach_again(&mut self, py: Python<'_>, pid: i32) -> Result<(), Error> {
        let inner = &mut self.inner;
        self.description = py.detach(|| inner.attach_again(pid))?;
        self.pid = pid;
        Ok(())
    }

    /// When the last pass began that counts, ns on CLOCK_MONOTONIC; known when the recording has ended for want of the server.
    fn last_seen(&mut self) -> Option<i64> {
        self.inner.last_seen()
    }

    fn start(&mut self) -> Result<(), Error> {
        Ok(self.inner.start()?)
    }

    fn status(&self) -> Status {
        let s = self.inner.status();
        Status {
            running: s.running,
            error: self.inner.with_error(|e| e.map(ErrorDict::from)),
            ts_from: s.ts_from,
            ts_now: s.ts_now,
            ticks: s.ticks,
            missed: s.missed,
            torn: s.torn,
            sessions: s.sessions,
            rows: s.rows,
            bytes_written: s.bytes_written,
            cpu_ns: s.cpu_ns,
            realtime_priority: s.realtime,
        }
    }

    fn write_soon(&self) {
        self.inner.write_soon();
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = &mut self.inner;
        py.detach(|| inner.stop());
        let s = self.inner.status();
        let loss = Loss { ticks_taken: s.ticks, ticks_missed: s.missed, ticks_unverified: s.unverified, torn: s.torn };
        let tables = tables_dict(py, self.inner.written().iter().map(|(name, stats)| (*name, *stats)))?;
        let end = End { tables, loss, ts_to: self.inner.ts_to() };
        joined(py, [self.status().into_pyobject(py)?, end.into_pyobject(py)?])
    }
}

/// The server, and how it is sampled.
#[derive(IntoPyObject)]
struct ServerDescription {
    server_version_num: u32,
    server_version: String,
    max_connections: Option<u32>,
    shared_buffers_bytes: u64,
    data_dir: Option<String>,
    layout_checks: Vec<LayoutCheck>,
    access: MemoryAccess,
    probes: Probes,
}

#[derive(IntoPyObject)]
struct LayoutCheck {
    check: &'static str,
    result: &'static str,
    detail: String,
}

#[derive(IntoPyObject)]
struct MemoryAccess {
    shared_memory: &'static str,
    private_memory: bool,
    why: String,
}

/// What the attach made possible.
#[derive(IntoPyObject)]
struct Probes {
    sessions: ProbeFound,
    locks: ProbeFound,
    buffers: ProbeFound,
    deltas: ProbeFound,
}

#[derive(IntoPyObject)]
struct ProbeFound {
    status: &'static str,
    why: &'static str,
    hint: &'static str,
}

impl ProbeFound {
    /// `missing`: what is not recorded if it is not whole.
    fn of(is_whole: bool, missing: &'static str) -> ProbeFound {
        let (status, why) = if is_whole { ("ok", "") } else { ("partial", missing) };
        ProbeFound { status, why, hint: "" }
    }
}

impl Probes {
    fn of(d: &Description) -> Probes {
        Probes {
            sessions: ProbeFound::of(d.next_xid, "cannot find the next transaction id: xmin_age is unknown"),
            locks: ProbeFound::of(true, ""),
            buffers: ProbeFound::of(
                d.held_locks,
                "cannot find the list of held LWLocks in this build: holders are not named",
            ),
            deltas: ProbeFound::of(
                d.private_memory,
                "cannot find the buffer and WAL counters in this build: only kernel counters are recorded",
            ),
        }
    }
}

#[derive(IntoPyObject)]
struct Status {
    running: bool,
    error: Option<ErrorDict>,
    ts_from: i64,
    ts_now: i64,
    ticks: u64,
    missed: u64,
    torn: u64,
    sessions: u64,
    rows: u64,
    bytes_written: u64,
    cpu_ns: i64,
    realtime_priority: bool,
}

/// What it says at its end beside that.
#[derive(IntoPyObject)]
struct End<'py> {
    tables: Bound<'py, PyDict>,
    loss: Loss,
    ts_to: Option<i64>,
}

#[derive(IntoPyObject)]
struct Loss {
    ticks_taken: u64,
    ticks_missed: u64,
    ticks_unverified: u64,
    torn: u64,
}
