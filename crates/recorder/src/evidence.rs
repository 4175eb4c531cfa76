//! What the sampler hands to the background thread: columns for the hot tables, rows for the rare ones.

use leadline_shm::buffers::{BufferTag, WaitKind};
use leadline_shm::locks::Edge;
use leadline_shm::sessions::{Listed, Sample, SessionSeen, StatementSeen};

/// Columns of `tick`.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Ticks {
    pub ts: Vec<i64>,
    pub late_ns: Vec<i64>,
    pub pass_ns: Vec<i64>,
    pub missed: Vec<i32>,
    pub sessions: Vec<i32>,
    pub retried: Vec<i32>,
    pub torn: Vec<i32>,
    pub next_xid: Vec<i64>,
}

/// Columns of `session_tick`.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Samples {
    pub ts: Vec<i64>,
    pub session_id: Vec<i32>,
    pub state: Vec<i32>,
    pub wait_event_info: Vec<u32>,
    pub query_id: Vec<i64>,
    pub plan_id: Vec<i64>,
    pub statement_id: Vec<i64>,
    pub xact_start: Vec<i64>,
    pub query_start: Vec<i64>,
    pub state_change: Vec<i64>,
    pub backend_xid: Vec<u32>,
    pub backend_xmin: Vec<u32>,
}

impl Samples {
    /// Room for so many rows.
    pub fn with_capacity(rows: usize) -> Self {
        let (i64s, i32s, u32s) =
            (|| Vec::with_capacity(rows), || Vec::with_capacity(rows), || Vec::with_capacity(rows));
        Samples {
            ts: i64s(),
            session_id: i32s(),
            state: i32s(),
            wait_event_info: u32s(),
            query_id: i64s(),
            plan_id: i64s(),
            statement_id: i64s(),
            xact_start: i64s(),
            query_start: i64s(),
            state_change: i64s(),
            backend_xid: u32s(),
            backend_xmin: u32s(),
        }
    }

    /// Adds the samples of a pass.
    pub fn extend(&mut self, ts: i64, samples: &[Sample]) {
        // column by column: each loop is one reservation and a straight copy
        self.ts.extend(samples.iter().map(|_| ts));
        self.session_id.extend(samples.iter().map(|s| s.session_id));
        self.state.extend(samples.iter().map(|s| s.activity.state));
        self.wait_event_info.extend(samples.iter().map(|s| s.wait_event_info));
        self.query_id.extend(samples.iter().map(|s| s.activity.query_id));
        self.plan_id.extend(samples.iter().map(|s| s.activity.plan_id));
        self.statement_id.extend(samples.iter().map(|s| s.statement_id));
        self.xact_start.extend(samples.iter().map(|s| s.activity.xact_start));
        self.query_start.extend(samples.iter().map(|s| s.activity.query_start));
        self.state_change.extend(samples.iter().map(|s| s.activity.state_change));
        self.backend_xid.extend(samples.iter().map(|s| s.backend_xid));
        self.backend_xmin.extend(samples.iter().map(|s| s.backend_xmin));
    }
}

/// A row of `lock_wait`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct LockRow {
    pub ts: i64,
    pub period_ns: i64,
    pub session_id: i32,
    pub blocker_session_id: i32,
    pub edge: Edge,
}

/// Who holds a contended lock, as far as seen.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Holder {
    pub session_id: i32,
    pub pid: i32,
    pub mode: &'static str,
    pub wait_event_info: u32,
}

impl Holder {
    /// Nobody could be seen.
    pub const NONE: Holder = Holder { session_id: -1, pid: 0, mode: "", wait_event_info: 0 };
}

/// A row of `buffer_wait`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct BufferRow {
    pub ts: i64,
    pub buf_id: u32,
    pub tag: BufferTag,
    pub page_kind: &'static str,
    pub kind: WaitKind,
    pub waiters: i32,
    pub waiters_exclusive: i32,
    pub holder: Holder,
}

/// A row of `lwlock_wait`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct LwlockRow {
    pub ts: i64,
    pub wait_event_info: u32,
    pub index: u32,
    pub partition: i32,
    pub waiters: i32,
    pub waiters_exclusive: i32,
    pub holder: Holder,
}

/// A row of `buffer_scan`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ScanRow {
    pub ts: i64,
    pub scope: &'static str,
    pub buffers: u64,
    pub duration_ns: i64,
    pub waiting: u32,
    pub attributed: u32,
    pub torn: u32,
}

/// One hand-over.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Evidence {
    pub ticks: Ticks,
    pub samples: Samples,
    pub sessions: Vec<(i64, SessionSeen)>,
    pub statements: Vec<StatementSeen>,
    pub locks: Vec<LockRow>,
    pub buffers: Vec<BufferRow>,
    pub lwlocks: Vec<LwlockRow>,
    pub scans: Vec<ScanRow>,
    /// Wait codes the name table did not have.
    pub new_wait_codes: Vec<u32>,
    /// The sessions now, when they were asked for.
    pub list: Option<Vec<Listed>>,
}
