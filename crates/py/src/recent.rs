//! `Recent`: the newest minutes of a recording, and the sums of a window.

use crate::error::Error;
use leadline_recent::{Look, Recent as Inner, SessionNow};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;

/// Reads what is recorded into a folder and keeps it in memory.
#[pyclass(module = "leadline._core.recorder")]
#[derive(Default)]
pub(crate) struct Recent {
    inner: Inner,
}

#[pymethods]
impl Recent {
    #[new]
    fn new() -> Self {
        Recent::default()
    }

    /// Reads the segments that have come into a folder since the last call.
    fn take_in(&mut self, py: Python<'_>, folder: PathBuf, wall_offset_ns: i64) -> Result<(), Error> {
        let inner = &mut self.inner;
        Ok(py.detach(|| inner.take_in(&folder, wall_offset_ns))?)
    }

    fn samples(&self) -> u64 {
        self.inner.samples()
    }

    fn extent(&self) -> Option<(i64, i64)> {
        self.inner.extent()
    }

    #[pyo3(signature = (ts_from, spared=None))]
    fn trim(&mut self, py: Python<'_>, ts_from: i64, spared: Option<(i64, i64)>) {
        let inner = &mut self.inner;
        py.detach(|| inner.trim(ts_from, spared));
    }

    /// The sums of [ts_from, ts_to).
    fn look<'py>(
        &self,
        py: Python<'py>,
        ts_from: i64,
        ts_to: i64,
        step_ns: i64,
        listed: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let look = py.detach(|| self.inner.look(ts_from, ts_to, step_ns, listed));
        look_dict(py, look)
    }
}

fn look_dict(py: Python<'_>, look: Look) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("ticks", look.ticks)?;
    out.set_item("missed", look.missed)?;
    out.set_item("observed_s", look.observed_s)?;
    out.set_item("last_ts", look.last_ts)?;
    let (of, cpu) = (look.counts, look.cpu);
    out.set_item("counts", (of.clients, of.active, of.idle_in_xact, of.lock_waiters))?;
    out.set_item("events", look.events)?;
    out.set_item("cpu", (cpu.run_s, cpu.queue_s, cpu.unknown_s))?;
    out.set_item("steps", look.steps.into_iter().map(|s| (s.number, s.observed_s, s.classes)).collect::<Vec<_>>())?;
    let sessions = look.sessions.into_iter().map(|s| session_dict(py, s)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("sessions", PyList::new(py, sessions)?)?;
    Ok(out)
}

fn session_dict(py: Python<'_>, s: SessionNow) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    let who = s.who.unwrap_or_default();
    out.set_item("session_id", s.session_id)?;
    out.set_item("pid", who.pid)?;
    out.set_item("backend_start", s.backend_start)?;
    out.set_item("backend_type", who.backend_type)?;
    out.set_item("leader_pid", who.leader_pid)?;
    out.set_item("datid", who.datid)?;
    out.set_item("usesysid", who.usesysid)?;
    out.set_item("application_name", who.application_name)?;
    out.set_item("client_addr", who.client_addr)?;
    out.set_item("state", s.state)?;
    out.set_item("wait_class", s.wait_class)?;
    out.set_item("event", s.event)?;
    out.set_item("age_s", s.age_s)?;
    out.set_item("xact_age_s", s.xact_age_s)?;
    out.set_item("xmin_age", s.xmin_age)?;
    out.set_item("in_db_time", s.in_db_time)?;
    out.set_item("busy_s", s.busy_s)?;
    out.set_item("blocked_by", s.blocked_by)?;
    out.set_item("statement", s.statement)?;
    out.set_item("cpu", s.cpu)?;
    out.set_item("read_bytes", s.read_bytes)?;
    out.set_item("write_bytes", s.write_bytes)?;
    Ok(out)
}
