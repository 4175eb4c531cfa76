//! `Recent`: the newest minutes of a recording, and the sums of a window.

use crate::error::Error;
use leadline_recent::{Look, Recent as Inner, SessionNow};
use pyo3::prelude::*;
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
    fn look(&self, py: Python<'_>, ts_from: i64, ts_to: i64, step_ns: i64, listed: bool) -> Sums {
        py.detach(|| self.inner.look(ts_from, ts_to, step_ns, listed)).into()
    }
}

/// Number, seconds observed, seconds by class.
type Step = (i64, f64, Vec<(String, f64)>);

#[derive(IntoPyObject)]
struct Sums {
    ticks: u64,
    missed: i64,
    observed_s: f64,
    last_ts: Option<i64>,
    counts: (u64, u64, u64, u64),
    events: Vec<(String, String, f64)>,
    cpu: (f64, f64, f64),
    steps: Vec<Step>,
    sessions: Vec<Session>,
}

impl From<Look> for Sums {
    fn from(look: Look) -> Sums {
        let (of, cpu) = (look.counts, look.cpu);
        Sums {
            ticks: look.ticks,
            missed: look.missed,
            observed_s: look.observed_s,
            last_ts: look.last_ts,
            counts: (of.clients, of.active, of.idle_in_xact, of.lock_waiters),
            events: look.events,
            cpu: (cpu.run_s, cpu.queue_s, cpu.unknown_s),
            steps: look.steps.into_iter().map(|s| (s.number, s.observed_s, s.classes)).collect(),
            sessions: look.sessions.into_iter().map(Session::from).collect(),
        }
    }
}

#[derive(IntoPyObject)]
struct Session {
    session_id: i64,
    pid: i64,
    backend_start: i64,
    backend_type: String,
    leader_pid: i64,
    datid: i64,
    usesysid: i64,
    application_name: String,
    client_addr: String,
    state: i64,
    wait_class: String,
    event: String,
    age_s: Option<f64>,
    xact_age_s: Option<f64>,
    xmin_age: Option<i64>,
    in_db_time: bool,
    busy_s: f64,
    blocked_by: Vec<i64>,
    statement: String,
    cpu: Option<f64>,
    read_bytes: Option<f64>,
    write_bytes: Option<f64>,
}

impl From<SessionNow> for Session {
    fn from(s: SessionNow) -> Session {
        let who = s.who.unwrap_or_default();
        Session {
            session_id: s.session_id,
            pid: who.pid,
            backend_start: s.backend_start,
            backend_type: who.backend_type,
            leader_pid: who.leader_pid,
            datid: who.datid,
            usesysid: who.usesysid,
            application_name: who.application_name,
            client_addr: who.client_addr,
            state: s.state,
            wait_class: s.wait_class,
            event: s.event,
            age_s: s.age_s,
            xact_age_s: s.xact_age_s,
            xmin_age: s.xmin_age,
            in_db_time: s.in_db_time,
            busy_s: s.busy_s,
            blocked_by: s.blocked_by,
            statement: s.statement,
            cpu: s.cpu,
            read_bytes: s.read_bytes,
            write_bytes: s.write_bytes,
        }
    }
}
