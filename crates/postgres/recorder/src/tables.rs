//! Evidence to table rows: which column gets what. The order is that of the table specs, which Arrow checks.

use crate::deltas::Delta;
use crate::evidence::{mode, BufferRow, Evidence, Holder, LockRow, LwlockRow, ScanRow, Ticks, WaiterRow};
use arrow_array::{ArrayRef, Int32Array, Int64Array, UInt32Array};
use leadline_capture::{Error, Stats, Value};
use leadline_clockwork::{Cost, OpenTables};
use leadline_page::postgres::Fork;
use leadline_shm::layout::Layout;
use leadline_shm::locks::MODES;
use leadline_shm::procfs;
use leadline_shm::sessions::{Run, SessionSeen, StatementSeen};
use leadline_shm::wait_events::WaitEvents;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The open tables of a capture.
pub struct Tables {
    open: OpenTables,
    layout: Layout,
    events: WaitEvents,
    period_ns: i64,
    /// Wait codes whose names were written.
    named: NamedCodes,
}

fn i64s(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn i32s(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

fn u32s(values: Vec<u32>) -> ArrayRef {
    Arc::new(UInt32Array::from(values))
}

fn int(value: impl Into<i64>) -> Value<'static> {
    Value::Int(value.into())
}

impl Tables {
    /// Tables are opened when the first row comes.
    pub fn new(capture_dir: &Path, growing: bool, layout: Layout, events: WaitEvents, period_ns: i64) -> Self {
        let named = NamedCodes::default();
        Tables { open: OpenTables::new(capture_dir).growing(growing), layout, events, period_ns, named }
    }

    /// What the threads used.
    pub fn write_costs(&mut self, costs: &[Cost]) -> Result<(), Error> {
        self.open.write_rows("self_cost", costs.iter().map(Cost::row))
    }

    /// What sessions used.
    pub fn write_deltas(&mut self, deltas: &[Delta]) -> Result<(), Error> {
        self.open.write_rows("session_delta", deltas.iter().map(Delta::values))
    }

    /// The names of the wait codes of this server that were not written yet.
    pub fn write_wait_events(&mut self) -> Result<(), Error> {
        let events = self.events.clone();
        self.named.is_new(0);
        let new: Vec<_> = events.all().filter(|(code, ..)| self.named.is_new(*code)).collect();
        self.open.write_rows(
            "wait_event",
            new.iter().map(|(code, class, event)| vec![int(*code), Value::Text(class), Value::Text(event)]),
        )
    }

    /// Everything of one hand-over but the session list. Gives the list of runs back, empty, for its memory.
    pub fn write(&mut self, mut e: Evidence) -> Result<Vec<Run>, Error> {
        self.write_new_wait_events(&e.runs)?;
        let described: Vec<_> = e.sessions.iter().map(|(ts, s)| (*ts, s, self.backend_type(s))).collect();
        self.open.write_rows("session", described.iter().map(|(ts, s, kind)| session_row(*ts, s, kind)))?;
        self.open.write_rows("statement", e.statements.iter().map(statement_row))?;
        self.open.write_rows("lock_wait", e.locks.iter().map(lock_row))?;
        self.open.write_rows("buffer_wait", e.buffers.iter().map(buffer_row))?;
        self.open.write_rows("buffer_waiter", e.waiters.iter().map(waiter_row))?;
        self.open.write_rows("lwlock_wait", e.lwlocks.iter().map(lwlock_row))?;
        self.open.write_rows("buffer_scan", e.scans.iter().map(scan_row))?;
        self.write_ticks(e.ticks)?;
        self.write_runs(&e.runs)?;
        e.runs.clear();
        Ok(e.runs)
    }

    /// Codes the name table does not have: of extensions, and of a newer minor release.
    fn write_new_wait_events(&mut self, runs: &[Run]) -> Result<(), Error> {
        let new: Vec<u32> = runs.iter().map(|r| r.wait_event_info).filter(|&code| self.named.is_new(code)).collect();
        let named: Vec<_> = new.into_iter().map(|code| (code, self.events.name(code))).collect();
        self.open.write_rows(
            "wait_event",
            named.iter().map(|(code, n)| vec![int(*code), Value::Text(&n.0), Value::Text(&n.1)]),
        )
    }

    fn write_ticks(&mut self, t: Ticks) -> Result<(), Error> {
        if t.ts.is_empty() {
            return Ok(());
        }
        let period = vec![self.period_ns; t.ts.len()];
        let columns = vec![
            i64s(t.tick),
            i64s(t.ts),
            i64s(period),
            i64s(t.late_ns),
            i64s(t.pass_ns),
            i32s(t.missed),
            i32s(t.sessions),
            i32s(t.retried),
            i32s(t.torn),
            i64s(t.next_xid),
        ];
        self.open.write_columns("tick", columns)
    }

    fn write_runs(&mut self, runs: &[Run]) -> Result<(), Error> {
        if runs.is_empty() {
            return Ok(());
        }
        let long = |of: fn(&Run) -> i64| i64s(runs.iter().map(of).collect());
        let int = |of: fn(&Run) -> i32| i32s(runs.iter().map(of).collect());
        let code = |of: fn(&Run) -> u32| u32s(runs.iter().map(of).collect());
        let columns = vec![
            long(|r| r.tick),
            int(|r| r.ticks),
            int(|r| r.session_id),
            int(|r| r.activity.state),
            code(|r| r.wait_event_info),
            long(|r| r.activity.query_id),
            long(|r| r.activity.plan_id),
            long(|r| r.statement_id),
            long(|r| r.activity.xact_start),
            long(|r| r.activity.query_start),
            long(|r| r.activity.state_change),
            code(|r| r.backend_xid),
            code(|r| r.backend_xmin),
        ];
        self.open.write_columns("session_run", columns)
    }

    /// As pg_stat_activity names it: background workers by the type in their process title.
    fn backend_type(&self, seen: &SessionSeen) -> String {
        match self.layout.backend_type(seen.identity.backend_type_code) {
            Some("") => worker_type(&procfs::title(seen.host_pid)),
            Some(name) => name.to_owned(),
            None => format!("unknown:{}", seen.identity.backend_type_code),
        }
    }

    /// Puts the rows of every table on disk.
    pub fn roll(&mut self) -> Result<(), Error> {
        self.open.roll()
    }

    /// The same, at the end.
    pub fn end(&mut self) -> Result<(), Error> {
        self.open.end()
    }

    /// Rows, bytes and segments on disk, by table.
    pub fn stats(&self) -> BTreeMap<&'static str, Stats> {
        self.open.stats()
    }
}

/// A set of wait codes as bits: four for the class, ten for the event.
struct NamedCodes {
    bits: Vec<u64>,
}

impl Default for NamedCodes {
    fn default() -> Self {
        NamedCodes { bits: vec![0; 16 * 1024 / 64] }
    }
}

impl NamedCodes {
    /// Adds a code; false when it was there.
    fn is_new(&mut self, code: u32) -> bool {
        let at = ((code >> 24 & 0xf) << 10 | (code & 0x3ff)) as usize;
        let (word, bit) = (at / 64, 1u64 << (at % 64));
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        new
    }
}

/// "postgres: cluster: parallel worker for PID 12" to "parallel worker".
fn worker_type(title: &str) -> String {
    let name = title.strip_prefix("postgres: ").unwrap_or(title);
    let name = name.split_once(": ").map_or(name, |(_cluster, rest)| rest);
    let name = name.split(" for ").next().unwrap_or(name).trim();
    if name.is_empty() {
        "background worker".into()
    } else {
        name.to_owned()
    }
}

fn session_row<'a>(ts: i64, s: &'a SessionSeen, backend_type: &'a str) -> Vec<Value<'a>> {
    let i = &s.identity;
    vec![
        int(ts),
        int(s.session_id),
        int(i.pid),
        int(i.backend_start),
        Value::Text(backend_type),
        int(s.leader_pid),
        int(i.datid),
        int(i.usesysid),
        Value::Text(&i.application_name),
        Value::Text(&i.client_addr),
        int(i.client_port),
        Value::Bool(i.ssl),
    ]
}

fn statement_row(s: &StatementSeen) -> Vec<Value<'_>> {
    let id_source = if s.from_server { "server" } else { "text" };
    vec![int(s.statement_id), Value::Text(id_source), int(s.datid), Value::Text(&s.query), Value::Bool(s.truncated)]
}

fn lock_row(row: &LockRow) -> Vec<Value<'_>> {
    let (e, object) = (&row.edge, row.edge.tag.object());
    let mode = |m: u8| Value::Text(MODES.get(usize::from(m)).copied().unwrap_or("unknown"));
    vec![
        int(row.ts),
        int(row.period_ns),
        int(row.session_id),
        int(e.waiter_pid),
        int(row.blocker_session_id),
        int(e.blocker_pid),
        Value::Text(if e.holder { "holder" } else { "queue" }),
        Value::Text(e.tag.type_name()),
        int(object.datid),
        int(object.relid),
        int(object.page),
        int(object.tuple),
        int(object.transactionid),
        int(object.classid),
        int(object.objid),
        int(object.objsubid),
        mode(e.mode),
        mode(e.blocker_mode),
        int(e.wait_start),
    ]
}

fn holder_values(h: &Holder) -> [Value<'static>; 4] {
    [int(h.session_id), int(h.pid), Value::Text(h.mode), int(h.wait_event_info)]
}

fn buffer_row(b: &BufferRow) -> Vec<Value<'_>> {
    let mut row = vec![
        int(b.ts),
        int(b.buf_id),
        int(b.tag.relation.spc),
        int(b.tag.relation.db),
        int(b.tag.relation.rel),
        Value::Text(Fork::name_of(b.tag.fork).unwrap_or("unknown")),
        int(b.tag.block),
        Value::Text(b.page_kind),
        Value::Text(b.kind.as_str()),
        int(b.waiters),
        int(b.waiters_exclusive),
        int(b.waiters - b.waiters_exclusive),
    ];
    row.extend(holder_values(&b.holder));
    row
}

fn waiter_row(w: &WaiterRow) -> Vec<Value<'_>> {
    vec![int(w.ts), int(w.buf_id), int(w.session_id), Value::Text(mode(w.exclusive))]
}

fn lwlock_row(l: &LwlockRow) -> Vec<Value<'_>> {
    let mut row = vec![
        int(l.ts),
        int(l.wait_event_info),
        int(l.index),
        int(l.partition),
        int(l.waiters),
        int(l.waiters_exclusive),
    ];
    row.extend(holder_values(&l.holder));
    row
}

fn scan_row(s: &ScanRow) -> Vec<Value<'_>> {
    vec![
        int(s.ts),
        Value::Text(s.scope),
        int(s.buffers as i64),
        int(s.duration_ns),
        int(s.waiting),
        int(s.attributed),
        int(s.torn),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_named_by_their_title() {
        assert_eq!(worker_type("postgres: parallel worker for PID 4711"), "parallel worker");
        assert_eq!(worker_type("postgres: main: logical replication launcher "), "logical replication launcher");
        assert_eq!(worker_type(""), "background worker");
    }
}
