//! What is kept of a recording: passes, and of each session what it did, who it was and what it used.

use crate::segment::{columns, Column};
use leadline_errors::{Error, Kind};
use parquet::errors::ParquetError;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Beyond that, texts of statements that were not sampled lately are forgotten.
const MOST_STATEMENTS: usize = 50_000;

/// In this order: what a listed segment refers to was written before it, and is listed later.
const TABLES: [&str; 7] = ["tick", "session_run", "session_delta", "lock_wait", "session", "statement", "wait_event"];

/// A row of `tick`. wall_offset_ns: of the wall clock when it came. samples: how many sessions it saw.
pub struct Pass {
    pub tick: i64,
    pub ts: i64,
    pub period_ns: i64,
    pub missed: i64,
    pub next_xid: i64,
    pub wall_offset_ns: i64,
    pub samples: u64,
}

/// A row of `session_run`.
pub struct Run {
    pub tick: i64,
    pub ticks: i64,
    pub state: i64,
    pub code: u32,
    pub statement_id: i64,
    pub xact_start: i64,
    pub query_start: i64,
    pub state_change: i64,
    pub backend_xmin: i64,
}

/// A row of `session_delta`.
pub struct Interval {
    pub ts: i64,
    pub dt_ns: i64,
    pub run_ns: Option<i64>,
    pub queue_ns: Option<i64>,
    pub read_bytes: Option<i64>,
    pub write_bytes: Option<i64>,
}

/// A row of `session`.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Description {
    pub ts: i64,
    pub pid: i64,
    pub backend_start: i64,
    pub backend_type: String,
    pub leader_pid: i64,
    pub datid: i64,
    pub usesysid: i64,
    pub application_name: String,
    pub client_addr: String,
}

/// What is known of a session, each list in the order of time.
#[derive(Default)]
pub struct Session {
    pub runs: Vec<Run>,
    pub intervals: Vec<Interval>,
    pub descriptions: Vec<Description>,
}

/// One look at a lock waiter, from `lock_wait`.
pub struct Blocked {
    pub ts: i64,
    pub session_id: i64,
    pub blocker_pid: i64,
}

/// The newest minutes of a recording.
#[derive(Default)]
pub struct Recent {
    /// Number of the newest segment that was read, by table.
    read: HashMap<&'static str, u32>,
    /// Runs whose last pass has not come yet.
    early: Vec<(i64, Run)>,
    pub(crate) passes: Vec<Pass>,
    pub(crate) sessions: HashMap<i64, Session>,
    pub(crate) blocked: Vec<Blocked>,
    /// Class and event of a wait code.
    pub(crate) events: HashMap<u32, (String, String)>,
    pub(crate) statements: HashMap<i64, String>,
}

impl Recent {
    /// Reads the segments that have come into a folder since the last call. wall_offset_ns: wall clock less CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// `Kind::Storage`: a segment cannot be read.
    pub fn take_in(&mut self, folder: &Path, wall_offset_ns: i64) -> Result<(), Error> {
        let new = TABLES.map(|table| (table, self.new_segments(folder, table)));
        let failed = |path: &Path, e: &ParquetError| {
            Error::new(Kind::Storage, "cannot read the recorded segments").detail(e.to_string()).at(path)
        };
        for (table, segments) in new {
            for (number, path) in segments {
                self.add(table, &path, wall_offset_ns).map_err(|e| failed(&path, &e))?;
                self.read.insert(table, number);
            }
        }
        self.place_runs();
        Ok(())
    }

    /// The segments of a table that were not read yet, in their order.
    fn new_segments(&self, folder: &Path, table: &'static str) -> Vec<(u32, PathBuf)> {
        let Ok(entries) = std::fs::read_dir(folder.join(table)) else { return Vec::new() };
        let read = self.read.get(table).copied().unwrap_or(0);
        let number = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".parquet")?.parse().ok();
        let paths = entries.flatten().map(|entry| entry.path());
        let mut found: Vec<(u32, PathBuf)> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
        found.retain(|(number, _)| *number > read);
        found.sort();
        found
    }

    fn add(&mut self, table: &str, path: &Path, wall_offset_ns: i64) -> Result<(), ParquetError> {
        match table {
            "tick" => {
                let [tick, ts, period, missed, xid] =
                    columns(path, table, ["tick", "ts", "period_ns", "missed", "next_xid"])?.map(Column::ints);
                for (i, &tick) in tick.iter().enumerate() {
                    let (ts, period_ns, missed, next_xid) = (ts[i], period[i], missed[i], xid[i]);
                    self.passes.push(Pass { tick, ts, period_ns, missed, next_xid, wall_offset_ns, samples: 0 });
                }
            }
            "session_run" => {
                let names = ["session_id", "tick", "ticks", "state", "wait_event_info", "statement_id", "xact_start"];
                let [id, tick, ticks, state, code, statement, xact] = columns(path, table, names)?.map(Column::ints);
                let names = ["query_start", "state_change", "backend_xmin"];
                let [query, change, xmin] = columns(path, table, names)?.map(Column::ints);
                for (i, &id) in id.iter().enumerate() {
                    let run = Run {
                        tick: tick[i],
                        ticks: ticks[i],
                        state: state[i],
                        code: code[i] as u32,
                        statement_id: statement[i],
                        xact_start: xact[i],
                        query_start: query[i],
                        state_change: change[i],
                        backend_xmin: xmin[i],
                    };
                    self.early.push((id, run));
                }
            }
            "session_delta" => {
                let names = ["session_id", "ts", "dt_ns", "cpu_run_ns", "cpu_queue_ns", "read_bytes", "write_bytes"];
                let [id, ts, dt, run, queue, read, written] = columns(path, table, names)?.map(Column::nullable);
                for i in 0..id.len() {
                    let (Some(id), Some(ts), Some(dt_ns)) = (id[i], ts[i], dt[i]) else { continue };
                    let (run_ns, queue_ns, read_bytes, write_bytes) = (run[i], queue[i], read[i], written[i]);
                    let interval = Interval { ts, dt_ns, run_ns, queue_ns, read_bytes, write_bytes };
                    let intervals = &mut self.sessions.entry(id).or_default().intervals;
                    in_order(intervals, interval, |i| i.ts);
                }
            }
            "lock_wait" => {
                let names = ["ts", "session_id", "blocker_pid"];
                let [ts, id, blocker] = columns(path, table, names)?.map(Column::ints);
                self.blocked.extend((0..ts.len()).map(|i| Blocked {
                    ts: ts[i],
                    session_id: id[i],
                    blocker_pid: blocker[i],
                }));
            }
            "session" => {
                let names = ["session_id", "ts", "pid", "backend_start", "leader_pid", "datid", "usesysid"];
                let [id, ts, pid, start, leader, datid, user] = columns(path, table, names)?.map(Column::ints);
                let names = ["backend_type", "application_name", "client_addr"];
                let [kind, name, addr] = columns(path, table, names)?.map(Column::texts);
                let texts = kind.into_iter().zip(name).zip(addr);
                for (i, ((backend_type, application_name), client_addr)) in texts.enumerate() {
                    let description = Description {
                        ts: ts[i],
                        pid: pid[i],
                        backend_start: start[i],
                        backend_type,
                        leader_pid: leader[i],
                        datid: datid[i],
                        usesysid: user[i],
                        application_name,
                        client_addr,
                    };
                    let descriptions = &mut self.sessions.entry(id[i]).or_default().descriptions;
                    in_order(descriptions, description, |d| d.ts);
                }
            }
            "statement" => {
                let [id, text] = columns(path, table, ["statement_id", "query"])?;
                for (id, text) in id.ints().into_iter().zip(text.texts()) {
                    self.statements.entry(id).or_insert(text);
                }
            }
            _ => {
                let [code, class, event] = columns(path, table, ["wait_event_info", "wait_event_type", "wait_event"])?;
                let names = class.texts().into_iter().zip(event.texts());
                self.events.extend(code.ints().into_iter().map(|c| c as u32).zip(names));
            }
        }
        Ok(())
    }

    /// Runs go to their sessions as soon as their passes are there.
    fn place_runs(&mut self) {
        self.passes.sort_by_key(|p| p.tick);
        let newest = self.passes.last().map_or(i64::MIN, |p| p.tick);
        let (placed, early) = std::mem::take(&mut self.early).into_iter().partition(|(_, r)| r.last() <= newest);
        self.early = early;
        for (id, run) in placed {
            let seen_in = passes_of(&self.passes, run.tick, run.last());
            self.passes[seen_in].iter_mut().for_each(|pass| pass.samples += 1);
            in_order(&mut self.sessions.entry(id).or_default().runs, run, |r| r.tick);
        }
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.passes.iter().map(|p| p.samples).sum()
    }

    /// Begin of the first pass with samples and end of the last one, ns on CLOCK_MONOTONIC.
    pub fn extent(&self) -> Option<(i64, i64)> {
        let mut seen = self.passes.iter().filter(|p| p.samples > 0);
        let first = seen.next()?;
        let last = seen.next_back().unwrap_or(first);
        Some((first.ts, last.ts + last.period_ns))
    }

    /// Forgets what is older than `ts_from` and not in the spared window, and sessions that are not sampled any more.
    pub fn trim(&mut self, ts_from: i64, spared: Option<(i64, i64)>) {
        let stays = |ts: i64| ts >= ts_from || spared.is_some_and(|(from, to)| ts >= from && ts < to);
        self.passes.retain(|p| stays(p.ts));
        self.blocked.retain(|b| stays(b.ts));
        let passes = &self.passes;
        self.sessions.retain(|_, session| {
            session.runs.retain(|r| !passes_of(passes, r.tick, r.last()).is_empty());
            session.intervals.retain(|i| stays(i.ts));
            !session.runs.is_empty() || session.descriptions.iter().any(|d| d.ts >= ts_from)
        });
        if self.statements.len() > MOST_STATEMENTS {
            let used: HashSet<i64> =
                self.sessions.values().flat_map(|s| s.runs.iter().map(|r| r.statement_id)).collect();
            self.statements.retain(|id, _| used.contains(id));
        }
    }
}

impl Run {
    /// Its last pass.
    pub fn last(&self) -> i64 {
        self.tick.saturating_add(self.ticks - 1)
    }
}

/// Where the passes from one number to another are.
fn passes_of(passes: &[Pass], first: i64, last: i64) -> std::ops::Range<usize> {
    let from = passes.partition_point(|p| p.tick < first);
    from..from.max(passes.partition_point(|p| p.tick <= last))
}

/// Adds a value to a list that is ordered by time, nearly always at its end.
fn in_order<T>(list: &mut Vec<T>, value: T, time: impl Fn(&T) -> i64) {
    let at = if list.last().is_none_or(|last| time(last) <= time(&value)) {
        list.len()
    } else {
        list.partition_point(|other| time(other) <= time(&value))
    };
    list.insert(at, value);
}
