//! `Recorder`: the shared-memory probe and its threads.

use crate::error::{error_dict, Error};
use crate::table_writer::tables_dict;
use leadline_recorder::{Config, Description, Recorder as Inner};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

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

    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let d = &self.description;
        let checks = PyList::empty(py);
        for check in &d.checks {
            let item = PyDict::new(py);
            item.set_item("check", check.name)?;
            item.set_item(
                "result",
                match check.passed {
                    Some(true) => "passed",
                    Some(false) => "failed",
                    None => "skipped",
                },
            )?;
            item.set_item("detail", &check.detail)?;
            checks.append(item)?;
        }
        let access = PyDict::new(py);
        access.set_item("shared_memory", if d.mapped { "map_files" } else { "process_vm_readv" })?;
        access.set_item("private_memory", d.private_memory)?;
        access.set_item("why", &d.not_mapped_why)?;
        let probes = PyDict::new(py);
        for (name, status, why) in self.probes() {
            let probe = PyDict::new(py);
            probe.set_item("status", status)?;
            probe.set_item("why", why)?;
            probe.set_item("hint", "")?;
            probes.set_item(name, probe)?;
        }
        let out = PyDict::new(py);
        out.set_item("server_version_num", d.server_version_num)?;
        out.set_item("server_version", &d.server_version)?;
        out.set_item("max_connections", d.max_connections)?;
        out.set_item("shared_buffers_bytes", d.shared_buffers_bytes)?;
        out.set_item(
            "data_dir",
            std::fs::read_link(format!("/proc/{}/cwd", self.pid)).ok().map(|p| p.to_string_lossy().into_owned()),
        )?;
        out.set_item("layout_checks", checks)?;
        out.set_item("access", access)?;
        out.set_item("probes", probes)?;
        Ok(out)
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

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.inner.status();
        let out = PyDict::new(py);
        out.set_item("running", s.running)?;
        out.set_item("error", self.inner.with_error(|e| e.map(|e| error_dict(py, e)).transpose())?)?;
        out.set_item("ts_from", s.ts_from)?;
        out.set_item("ts_now", s.ts_now)?;
        out.set_item("ticks", s.ticks)?;
        out.set_item("missed", s.missed)?;
        out.set_item("torn", s.torn)?;
        out.set_item("sessions", s.sessions)?;
        out.set_item("rows", s.rows)?;
        out.set_item("bytes_written", s.bytes_written)?;
        out.set_item("cpu_ns", s.cpu_ns)?;
        out.set_item("realtime_priority", s.realtime)?;
        Ok(out)
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = &mut self.inner;
        py.detach(|| inner.stop());
        let out = self.status(py)?;
        let tables = tables_dict(py, self.inner.written().iter().map(|(name, stats)| (*name, *stats)))?;
        let s = self.inner.status();
        let loss = PyDict::new(py);
        loss.set_item("ticks_taken", s.ticks)?;
        loss.set_item("ticks_missed", s.missed)?;
        loss.set_item("ticks_unverified", s.unverified)?;
        loss.set_item("torn", s.torn)?;
        out.set_item("tables", tables)?;
        out.set_item("loss", loss)?;
        out.set_item("ts_to", self.inner.ts_to())?;
        Ok(out)
    }
}

impl Recorder {
    /// (probe, status, why) of what the attach made possible.
    fn probes(&self) -> [(&'static str, &'static str, &'static str); 4] {
        let d = &self.description;
        let sessions = match d.next_xid {
            true => ("ok", ""),
            false => ("partial", "cannot find the next transaction id: xmin_age is unknown"),
        };
        let buffers = match d.held_locks {
            true => ("ok", ""),
            false => ("partial", "cannot find the list of held LWLocks in this build: holders are not named"),
        };
        let deltas = match d.private_memory {
            true => ("ok", ""),
            false => {
                ("partial", "cannot find the buffer and WAL counters in this build: only kernel counters are recorded")
            }
        };
        [
            ("sessions", sessions.0, sessions.1),
            ("locks", "ok", ""),
            ("buffers", buffers.0, buffers.1),
            ("deltas", deltas.0, deltas.1),
        ]
    }
}
