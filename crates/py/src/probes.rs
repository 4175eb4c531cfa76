//! `OverheadProbe`, `HostProbe` and `SocketsProbe`: work of `leadline_clockwork` in threads of its own.

use crate::dict::joined;
use crate::error::{Error, ErrorDict};
use crate::table_writer::tables_dict;
use leadline_clockwork::{OverheadProbe as Overhead, Ticker};
use leadline_errors::{Error as Said, Kind};
use leadline_host::{HostProbe as HostWork, Losses, SocketsProbe as SocketsWork};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// How often the clocks are compared.
const OVERHEAD_HZ: f64 = 1.0;

/// What is the same for every ticker: where, how long rows wait in memory, and the thread once it runs.
pub(crate) struct Runner {
    pub(crate) capture_dir: PathBuf,
    pub(crate) rate_hz: f64,
    pub(crate) flush_interval_s: f64,
    pub(crate) growing_segments: bool,
    pub(crate) ticker: OnceLock<Ticker>,
}

impl Runner {
    pub(crate) fn start(&self, name: &str, work: impl leadline_clockwork::Tick) -> Result<(), Error> {
        let flush_ns = (self.flush_interval_s.clamp(0.01, 3600.0) * 1e9) as i64;
        let ticker = Ticker::start(name, &self.capture_dir, self.rate_hz, flush_ns, self.growing_segments, work)?;
        self.ticker.set(ticker).map_err(|_| Error(Said::new(Kind::Usage, "the probe has already been started")))
    }

    pub(crate) fn status(&self) -> Result<Status, Error> {
        let Some(ticker) = self.ticker.get() else { return Err(Error::closed("a probe that was not started")) };
        let s = ticker.status();
        Ok(Status {
            running: s.running,
            error: ticker.with_error(|e| e.map(ErrorDict::from)),
            ts_from: s.ts_from,
            ticks: s.ticks,
            missed: s.missed,
            rows: s.rows,
            bytes_written: s.bytes,
            cpu_ns: s.cpu_ns,
        })
    }

    /// What was seen is not whole when the thread panicked.
    pub(crate) fn check_for_panic(&self) -> Result<(), Error> {
        let panic = |e: Option<&Said>| e.filter(|e| e.kind == Kind::Fault).cloned();
        match self.ticker.get().and_then(|ticker| ticker.with_error(panic)) {
            Some(e) => Err(Error(e)),
            None => Ok(()),
        }
    }

    /// Ends it. `loss`: what was missed, by its name.
    pub(crate) fn stop<'py, L: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        loss: impl FnOnce(&Status) -> L,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (written, ts_to) = py.detach(|| self.ticker.get().map(Ticker::stop)).unwrap_or_default();
        let status = self.status()?;
        let loss = loss(&status);
        let end = End { tables: tables_dict(py, written)?, loss, ts_to };
        joined(py, [status.into_pyobject(py)?, end.into_pyobject(py)?])
    }
}

/// How a ticker goes.
#[derive(IntoPyObject)]
pub(crate) struct Status {
    running: bool,
    error: Option<ErrorDict>,
    ts_from: i64,
    pub(crate) ticks: u64,
    pub(crate) missed: u64,
    rows: u64,
    bytes_written: u64,
    cpu_ns: i64,
}

/// What it says at its end beside that.
#[derive(IntoPyObject)]
struct End<'py, L> {
    tables: Bound<'py, PyDict>,
    loss: L,
    ts_to: Option<i64>,
}

/// Writes `clock`, and what the process used into `self_cost`, once a second.
#[pyclass(frozen, module = "leadline._core.capture")]
pub(crate) struct OverheadProbe(Runner);

#[pymethods]
impl OverheadProbe {
    #[new]
    #[pyo3(signature = (capture_dir, *, flush_interval_s=5.0, growing_segments=true))]
    fn new(capture_dir: PathBuf, flush_interval_s: f64, growing_segments: bool) -> Self {
        OverheadProbe(Runner {
            capture_dir,
            rate_hz: OVERHEAD_HZ,
            flush_interval_s,
            growing_segments,
            ticker: OnceLock::new(),
        })
    }

    fn start(&self) -> Result<(), Error> {
        self.0.start("leadline-clock", Overhead::default())
    }

    fn status(&self) -> Result<Status, Error> {
        self.0.status()
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.stop(py, |_| PyDict::new(py))
    }
}

/// The host as /proc, /sys and taskstats tell it.
#[pyclass(frozen, module = "leadline._core.host")]
pub(crate) struct HostProbe {
    runner: Runner,
    work: Mutex<Option<HostWork>>,
    access: leadline_host::Access,
    losses: Arc<Losses>,
}

#[pymethods]
impl HostProbe {
    #[new]
    #[pyo3(signature = (capture_dir, rate_hz, *, flush_interval_s=5.0, growing_segments=true, taskstats=true))]
    fn new(
        py: Python<'_>,
        capture_dir: PathBuf,
        rate_hz: f64,
        flush_interval_s: f64,
        growing_segments: bool,
        taskstats: bool,
    ) -> Self {
        let work = py.detach(|| HostWork::open(taskstats));
        let (access, losses) = (work.access(), work.losses());
        let runner = Runner { capture_dir, rate_hz, flush_interval_s, growing_segments, ticker: OnceLock::new() };
        HostProbe { runner, work: Mutex::new(Some(work)), access, losses }
    }

    fn describe(&self) -> Access {
        let leadline_host::Access { taskstats, exits, delays, pressure, io_of_others } = self.access;
        Access { taskstats, exits, delays, pressure, io_of_others }
    }

    fn start(&self) -> Result<(), Error> {
        let Some(work) = self.work.lock().take() else { return Err(Error::closed("the host probe")) };
        self.runner.start("leadline-host", work)
    }

    fn status(&self) -> Result<Status, Error> {
        self.runner.status()
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let losses = self.losses.clone();
        self.runner.stop(py, |status| HostLoss {
            ticks_taken: status.ticks,
            ticks_missed: status.missed,
            exit_overruns: losses.exit_overruns.load(Relaxed),
            cgroups_left_out: losses.cgroups_left_out.load(Relaxed),
        })
    }
}

/// What the host lets it see.
#[derive(IntoPyObject)]
struct Access {
    taskstats: bool,
    exits: bool,
    delays: bool,
    pressure: bool,
    io_of_others: bool,
}

#[derive(IntoPyObject)]
struct HostLoss {
    ticks_taken: u64,
    ticks_missed: u64,
    exit_overruns: u64,
    cgroups_left_out: u64,
}

#[derive(IntoPyObject)]
pub(crate) struct TicksLoss {
    pub(crate) ticks_taken: u64,
    pub(crate) ticks_missed: u64,
}

/// The TCP connections of one server, by sock_diag.
#[pyclass(frozen, module = "leadline._core.host")]
pub(crate) struct SocketsProbe {
    runner: Runner,
    work: Mutex<Option<SocketsWork>>,
    server: Arc<Mutex<(u32, u16)>>,
    owners: bool,
}

#[pymethods]
impl SocketsProbe {
    #[new]
    #[pyo3(signature = (capture_dir, pid, port, rate_hz, *, flush_interval_s=5.0, growing_segments=true))]
    fn new(
        py: Python<'_>,
        capture_dir: PathBuf,
        pid: u32,
        port: u16,
        rate_hz: f64,
        flush_interval_s: f64,
        growing_segments: bool,
    ) -> Result<Self, Error> {
        let work = py.detach(|| SocketsWork::open(pid, port))?;
        let runner = Runner { capture_dir, rate_hz, flush_interval_s, growing_segments, ticker: OnceLock::new() };
        Ok(SocketsProbe { runner, owners: work.sees_owners(), server: work.server(), work: Mutex::new(Some(work)) })
    }

    /// From now on the connections of this server: it has started again.
    fn follow(&self, pid: u32, port: u16) {
        *self.server.lock() = (pid, port);
    }

    fn sees_owners(&self) -> bool {
        self.owners
    }

    fn start(&self) -> Result<(), Error> {
        let Some(work) = self.work.lock().take() else { return Err(Error::closed("the probe of sockets")) };
        self.runner.start("leadline-socks", work)
    }

    fn status(&self) -> Result<Status, Error> {
        self.runner.status()
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.runner.stop(py, |status| TicksLoss { ticks_taken: status.ticks, ticks_missed: status.missed })
    }
}
