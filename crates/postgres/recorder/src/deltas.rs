//! What each session used between two moments: its private counters and what the kernel keeps of its process.

use leadline_capture::Value;
use leadline_clockwork::{monotonic_ns, ProcFile};
use leadline_host::procfile::{field, stat_fields, CLOCK_TICK_NS};
use leadline_host::taskstats::{Accounting, TaskStats};
use leadline_shm::attach::Anchors;
use leadline_shm::counters::{read_usage, Usage};
use leadline_shm::sessions::Listed;
use std::collections::HashMap;

/// Columns of session_delta after ts, dt_ns, session_id and pid.
const COUNTERS: usize = 23;

/// The counters in the order of the table; None where they could not be read.
type Counters = [Option<i64>; COUNTERS];

/// A row of session_delta.
#[derive(Debug)]
pub struct Delta {
    ts: i64,
    dt_ns: i64,
    session_id: i32,
    pid: i32,
    used: Counters,
}

impl Delta {
    /// The row in the order of the columns.
    pub fn values(&self) -> Vec<Value<'static>> {
        let head = [self.ts, self.dt_ns, i64::from(self.session_id), i64::from(self.pid)].map(Value::Int);
        head.into_iter().chain(self.used.iter().map(|v| v.map_or(Value::Null, Value::Int))).collect()
    }
}

/// The files of one process, kept open.
#[derive(Debug)]
struct Tracked {
    schedstat: Option<ProcFile>,
    stat: Option<ProcFile>,
    status: Option<ProcFile>,
    io: Option<ProcFile>,
    last_ts: i64,
    last: Counters,
    task: Option<TaskStats>,
    usage: Option<Usage>,
    changecount: u32,
    /// Reports counted since tracking began: the changecount itself wraps.
    status_changes: i64,
    seen: bool,
}

/// Follows the counters of all sessions.
#[derive(Debug)]
pub struct Deltas {
    anchors: Anchors,
    tracked: HashMap<i32, Tracked>,
    /// Instead of four /proc files a process, where the right is there.
    accounting: Option<Accounting>,
    buffer: Vec<u8>,
}

impl Deltas {
    /// For a server attached to.
    pub fn new(anchors: &Anchors) -> Self {
        Self::with(anchors, Accounting::open().ok())
    }

    fn with(anchors: &Anchors, accounting: Option<Accounting>) -> Self {
        Deltas { anchors: anchors.clone(), tracked: HashMap::new(), accounting, buffer: vec![0; 8192] }
    }

    /// Reads all sessions; a session gives a row from its second reading on.
    pub fn read(&mut self, sessions: &[Listed]) -> Vec<Delta> {
        let mut rows = Vec::with_capacity(sessions.len());
        let pids: Vec<i32> = sessions.iter().map(|listed| listed.host_pid).collect();
        let tasks = self.accounting.as_mut().and_then(|a| a.read(&pids).ok()).unwrap_or_else(|| vec![None; pids.len()]);
        let ts = monotonic_ns();
        for (listed, task) in sessions.iter().zip(tasks) {
            let tracked = self
                .tracked
                .entry(listed.session_id)
                .or_insert_with(|| Tracked::open(listed, self.accounting.is_none()));
            tracked.seen = true;
            // two steps a report; a wrapped or reset count gives the true distance as long as it moved less than 2^31
            tracked.status_changes += i64::from(listed.changecount.wrapping_sub(tracked.changecount)) / 2;
            tracked.changecount = listed.changecount & !1;
            // of a process that has not run since, the memory is as it was
            if task.is_none() || task != tracked.task {
                (tracked.task, tracked.usage) = (task, read_usage(listed.host_pid, &self.anchors).ok());
            }
            let now = tracked.counters(tracked.usage, task, &mut self.buffer);
            if tracked.last_ts != 0 {
                let mut used = [None; COUNTERS];
                for (used, (now, last)) in used.iter_mut().zip(now.iter().zip(&tracked.last)) {
                    *used = now.zip(*last).map(|(now, last)| now - last);
                }
                rows.push(Delta {
                    ts,
                    dt_ns: ts - tracked.last_ts,
                    session_id: listed.session_id,
                    pid: listed.pid,
                    used,
                });
            }
            (tracked.last_ts, tracked.last) = (ts, now);
        }
        self.tracked.retain(|_, t| std::mem::take(&mut t.seen));
        rows
    }
}

impl Tracked {
    /// `all`: also the files that accounting makes needless.
    fn open(listed: &Listed, all: bool) -> Self {
        let open = |name: &str| ProcFile::open(&format!("/proc/{}/{name}", listed.host_pid)).ok();
        Tracked {
            schedstat: if all { open("schedstat") } else { None },
            stat: if all { open("stat") } else { None },
            status: if all { open("status") } else { None },
            io: if all { open("io") } else { None },
            last_ts: 0,
            last: [None; COUNTERS],
            task: None,
            usage: None,
            changecount: listed.changecount & !1,
            status_changes: 0,
            seen: true,
        }
    }

    fn counters(&self, usage: Option<Usage>, task: Option<TaskStats>, buffer: &mut [u8]) -> Counters {
        let mut c = [None; COUNTERS];
        c[0] = Some(self.status_changes);
        if let Some(u) = usage {
            let values = [
                u.shared_blks_hit,
                u.shared_blks_read,
                u.shared_blks_dirtied,
                u.shared_blks_written,
                u.local_blks_read,
                u.local_blks_written,
                u.temp_blks_read,
                u.temp_blks_written,
                u.wal_records,
                u.wal_fpi,
                u.wal_bytes,
            ];
            for (place, value) in c[1..12].iter_mut().zip(values) {
                *place = Some(value);
            }
        }
        if let Some(text) = self.schedstat.as_ref().and_then(|f| f.read(buffer).ok()) {
            let mut fields = text.split_ascii_whitespace().map(|f| f.parse().ok());
            c[12] = fields.next().flatten();
            c[13] = fields.next().flatten();
        }
        if let Some(t) = task {
            let values = [
                t.cpu_run_virtual_total,
                t.cpu_delay_total,
                t.blkio_delay_total,
                t.nvcsw,
                t.nivcsw,
                t.ac_minflt,
                t.ac_majflt,
                t.read_bytes,
                t.write_bytes,
                t.read_char,
                t.write_char,
            ];
            for (place, value) in c[12..].iter_mut().zip(values) {
                *place = Some(value);
            }
        }
        if let Some(text) = self.stat.as_ref().and_then(|f| f.read(buffer).ok()) {
            let fields: Vec<&str> = stat_fields(text).map(Iterator::collect).unwrap_or_default();
            // proc(5) counts from 1 and the name is the second field; ours start at the third
            let number = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<i64>().ok());
            c[14] = number(42).map(|ticks| ticks.saturating_mul(CLOCK_TICK_NS));
            c[17] = number(10);
            c[18] = number(12);
        }
        if let Some(text) = self.status.as_ref().and_then(|f| f.read(buffer).ok()) {
            // the two are the last lines; searching from the start would cost more than the read
            let tail = &text[text.rfind("\nvoluntary").map_or(0, |at| at + 1)..];
            c[15] = field(tail, "voluntary_ctxt_switches");
            c[16] = field(tail, "nonvoluntary_ctxt_switches");
        }
        if let Some(text) = self.io.as_ref().and_then(|f| f.read(buffer).ok()) {
            c[19] = field(text, "read_bytes");
            c[20] = field(text, "write_bytes");
            c[21] = field(text, "rchar");
            c[22] = field(text, "wchar");
        }
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_capture::spec;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn the_counters_are_the_columns_of_the_table() {
        let columns = &spec("session_delta").unwrap().columns;
        assert_eq!(columns.len(), 4 + COUNTERS);
        for (index, name) in [
            (0, "status_changes"),
            (1, "shared_blks_hit"),
            (8, "temp_blks_written"),
            (11, "wal_bytes"),
            (12, "cpu_run_ns"),
            (13, "cpu_queue_ns"),
            (14, "blkio_delay_ns"),
            (15, "voluntary_ctxt_switches"),
            (17, "minflt"),
            (18, "majflt"),
            (19, "read_bytes"),
            (22, "wchar"),
        ] {
            assert_eq!(columns[4 + index].name, name);
        }
    }

    #[test]
    fn a_process_known_to_do_something_shows_it() {
        // A shell as the session: it has no server counters, but the kernel's are those of any process.
        let anchors = Anchors::default();
        for accounting in [None, Accounting::open().ok()] {
            a_shell_is_measured(&anchors, accounting);
        }
    }

    fn a_shell_is_measured(anchors: &Anchors, accounting: Option<Accounting>) {
        let mut shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = shell.id() as i32;
        let mut deltas = Deltas::with(anchors, accounting);
        let listed = |changecount| Listed { session_id: 1, pid, host_pid: pid, changecount, wait_event_info: 0 };
        assert!(deltas.read(&[listed(10)]).is_empty());
        let mut commands = shell.stdin.take().unwrap();
        writeln!(commands, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo 12345; done > /dev/null; echo done")
            .unwrap();
        let mut answer = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        let rows = deltas.read(&[listed(56)]);
        drop(commands);
        shell.wait().unwrap();
        assert_eq!(answer, "done\n");
        let used = rows[0].used;
        assert_eq!(used[0], Some(23), "46 steps are 23 reports");
        assert_eq!(used[1], None);
        assert!(used[12].unwrap() > 0, "it ran");
        assert!(used[22].unwrap() >= 20_000 * 6 / 1024 * 1024, "each line was written");
        assert!(used[15].is_some() && used[18].is_some());
        assert!(deltas.read(&[]).is_empty());
        assert!(deltas.tracked.is_empty(), "a session that ended is forgotten");
    }
}
