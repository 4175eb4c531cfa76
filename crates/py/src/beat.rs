//! `Keeper`, `HostProbe` and `SocketsProbe`: work of `leadline_clockwork` in threads of its own.

use crate::error::{error_dict, Error};
use crate::table_writer::tables_dict;
use leadline_clockwork::{Beat, Keeper as KeeperWork};
use leadline_host::{HostProbe as HostWork, Losses, SocketsProbe as SocketsWork};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// How often the clocks are compared.
const KEEPER_HZ: f64 = 1.0;

/// What is the same for every beat: where, how long rows wait in memory, and the thread once it runs.
pub(crate) struct Runner {
    pub(crate) capture_dir: PathBuf,
    pub(crate) rate_hz: f64,
    pub(crate) flush_interval_s: f64,
    pub(crate) growing_segments: bool,
    pub(crate) beat: Option<Beat>,
}

impl Runner {
    pub(crate) fn start(&mut self, name: &str, work: impl leadline_clockwork::Work) -> Result<(), Error> {
        let flush_ns = (self.flush_interval_s.clamp(0.01, 3600.0) * 1e9) as i64;
        self.beat = Some(Beat::start(name, &self.capture_dir, self.rate_hz, flush_ns, self.growing_segments, work)?);
        Ok(())
    }

    pub(crate) fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        let Some(beat) = &self.beat else {
            return Err(Error::closed("a probe that was not started").into());
        };
        let s = beat.status();
        out.set_item("running", s.running)?;
        out.set_item("error", beat.with_error(|e| e.map(|e| error_dict(py, e)).transpose())?)?;
        out.set_item("ts_from", s.ts_from)?;
        out.set_item("ticks", s.beats)?;
        out.set_item("missed", s.missed)?;
        out.set_item("rows", s.rows)?;
        out.set_item("bytes_written", s.bytes)?;
        out.set_item("cpu_ns", s.cpu_ns)?;
        Ok(out)
    }

    pub(crate) fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(beat) = &mut self.beat {
            py.detach(|| beat.stop());
        }
        let out = self.status(py)?;
        if let Some(beat) = &self.beat {
            out.set_item("tables", tables_dict(py, beat.written().iter().map(|(name, stats)| (*name, *stats)))?)?;
            out.set_item("loss", PyDict::new(py))?;
            out.set_item("ts_to", beat.ts_to())?;
        }
        Ok(out)
    }
}

/// Writes `clock`, and what the process used into `self_cost`, once a second.
#[pyclass(module = "leadline._core.capture")]
pub(crate) struct Keeper(Runner);

#[pymethods]
impl Keeper {
    #[new]
    #[pyo3(signature = (capture_dir, *, flush_interval_s=5.0, growing_segments=true))]
    fn new(capture_dir: PathBuf, flush_interval_s: f64, growing_segments: bool) -> Self {
        Keeper(Runner { capture_dir, rate_hz: KEEPER_HZ, flush_interval_s, growing_segments, beat: None })
    }

    fn start(&mut self) -> Result<(), Error> {
        self.0.start("leadline-clock", KeeperWork::default())
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.status(py)
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.stop(py)
    }
}

/// The host as /proc, /sys and taskstats tell it.
#[pyclass(module = "leadline._core.host")]
pub(crate) struct HostProbe {
    runner: Runner,
    work: Option<HostWork>,
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
        let runner = Runner { capture_dir, rate_hz, flush_interval_s, growing_segments, beat: None };
        HostProbe { runner, work: Some(work), access, losses }
    }

    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        out.set_item("taskstats", self.access.taskstats)?;
        out.set_item("exits", self.access.exits)?;
        out.set_item("delays", self.access.delays)?;
        out.set_item("pressure", self.access.pressure)?;
        out.set_item("io_of_others", self.access.io_of_others)?;
        Ok(out)
    }

    fn start(&mut self) -> Result<(), Error> {
        let Some(work) = self.work.take() else { return Err(Error::closed("the host probe")) };
        self.runner.start("leadline-host", work)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.runner.status(py)
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = self.runner.stop(py)?;
        let loss = PyDict::new(py);
        loss.set_item("ticks_taken", out.get_item("ticks")?)?;
        loss.set_item("ticks_missed", out.get_item("missed")?)?;
        loss.set_item("exit_overruns", self.losses.exit_overruns.load(Relaxed))?;
        loss.set_item("cgroups_left_out", self.losses.cgroups_left_out.load(Relaxed))?;
        out.set_item("loss", loss)?;
        Ok(out)
    }
}

/// The TCP connections of one server, by sock_diag.
#[pyclass(module = "leadline._core.host")]
pub(crate) struct SocketsProbe {
    runner: Runner,
    work: Option<SocketsWork>,
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
        let runner = Runner { capture_dir, rate_hz, flush_interval_s, growing_segments, beat: None };
        Ok(SocketsProbe { runner, owners: work.sees_owners(), server: work.server(), work: Some(work) })
    }

    /// From now on the connections of this server: it has started again.
    fn follow(&self, pid: u32, port: u16) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = (pid, port);
    }

    fn sees_owners(&self) -> bool {
        self.owners
    }

    fn start(&mut self) -> Result<(), Error> {
        let Some(work) = self.work.take() else { return Err(Error::closed("the probe of sockets")) };
        self.runner.start("leadline-socks", work)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.runner.status(py)
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = self.runner.stop(py)?;
        let loss = PyDict::new(py);
        loss.set_item("ticks_taken", out.get_item("ticks")?)?;
        loss.set_item("ticks_missed", out.get_item("missed")?)?;
        out.set_item("loss", loss)?;
        Ok(out)
    }
}
