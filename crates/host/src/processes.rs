//! What each process used between two readings: rows of `process`, `process_delta` and `process_exit`.
//!
//! A process that did nothing costs one question to taskstats and gives no row. Without taskstats /proc/PID/stat is read instead, and use
//! below a clock tick shows in a later row.

use crate::exits::{Exit, Exits};
use crate::procfile::field;
use crate::task::{Stat, TaskFiles};
use crate::taskstats::{Accounting, TaskStats};
use leadline_clockwork::{OwnedRow, ProcFile};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;

/// Counters of process_delta, in the order of its columns after rss_bytes.
const COUNTERS: usize = 11;
type Totals = [Option<i64>; COUNTERS];
/// Processes that ended are told apart by parent and name, at most this many kinds a reading.
const MOST_KINDS: usize = 512;
/// After this many rows of a process its control group is looked up again; of a young one more often.
const REGROUP: u32 = 60;

/// A process that did nothing in this many readings in a row
const IDLE_AFTER: u32 = 3;
/// is asked for only in every fifth reading. Its counters miss nothing; its next row covers a longer interval.
const IDLE_EVERY: u64 = 5;
/// Kernel threads are many and mostly asleep.
const IDLE_KERNEL_EVERY: u64 = 10;

/// Files of a process that stay open while it works.
#[derive(Debug)]
struct Kept {
    stat: ProcFile,
    io: Option<ProcFile>,
}

/// One process that is followed.
#[derive(Debug)]
struct Known {
    id: i32,
    stat: Stat,
    cgroup: String,
    uid: i64,
    task: Option<TaskStats>,
    totals: Totals,
    ts: i64,
    rows: u32,
    /// Readings in which it did nothing, since it last did something.
    idle: u32,
    /// Readings since it was last there: its end may be told one reading later.
    absent: u8,
    files: Option<Kept>,
}

impl Known {
    /// It did nothing until this reading. Files of one that is asked for less often are closed.
    fn rest(&mut self, ts: i64) {
        self.ts = ts;
        self.idle += 1;
        if self.idle >= IDLE_AFTER {
            self.files = None;
        }
    }
}

/// Processes with one parent and one name that ended between two readings.
#[derive(Debug, Default)]
struct Ended {
    processes: i64,
    unseen: i64,
    lifetime_ns: i64,
    totals: [i64; 7],
}

/// Follows the processes of the host.
#[derive(Debug)]
pub struct Processes {
    accounting: Option<Accounting>,
    exits: Option<Exits>,
    /// Whether the kernel counts time spent waiting for block I/O.
    delays: bool,
    files: TaskFiles,
    known: HashMap<i32, Known>,
    /// Processes whose files are open, and how many may be.
    kept: usize,
    most_kept: usize,
    last_id: i32,
    reading: u64,
    last_ts: Option<i64>,
    began_boot_ns: i64,
    page: i64,
}

/// What one reading gave.
#[derive(Debug, Default)]
pub struct Found {
    /// Rows of `process`.
    pub described: Vec<OwnedRow>,
    /// Rows of `process_delta`.
    pub deltas: Vec<OwnedRow>,
    /// Rows of `process_exit`.
    pub exits: Vec<OwnedRow>,
}

impl Processes {
    /// `delays`: kernel.task_delayacct is on. `began_boot_ns`: CLOCK_BOOTTIME now; of a process that starts later the first row has all it used.
    pub fn new(accounting: Option<Accounting>, exits: Option<Exits>, delays: bool, began_boot_ns: i64) -> Self {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Processes {
            accounting,
            exits,
            delays,
            files: TaskFiles::default(),
            known: HashMap::new(),
            kept: 0,
            most_kept: most_kept(),
            last_id: 0,
            reading: 0,
            last_ts: None,
            began_boot_ns,
            page,
        }
    }

    /// Times that the kernel's messages about ended processes were lost.
    pub fn overruns(&self) -> u64 {
        self.exits.as_ref().map_or(0, |e| e.overruns)
    }

    /// Reads all processes. The first reading gives no differences.
    pub fn read(&mut self, ts: i64) -> Found {
        let mut found = Found::default();
        self.read_exits(ts, &mut found);
        self.reading += 1;
        let mut pids = pids();
        pids.retain(|pid| self.is_due(*pid));
        let asked = self.accounting.as_mut().and_then(|a| a.read_processes(&pids).ok());
        let tasks = asked.unwrap_or_else(|| vec![None; pids.len()]);
        for (pid, task) in pids.into_iter().zip(tasks) {
            self.read_one(ts, pid, task, &mut found);
        }
        self.known.retain(|_, known| {
            known.absent += 1; // set back to 0 by read_one
            known.absent <= 2
        });
        self.kept = self.known.values().filter(|known| known.files.is_some()).count();
        self.last_ts = Some(ts);
        found
    }

    /// Whether a process is asked for in this reading; one that is not is still there.
    fn is_due(&mut self, pid: i32) -> bool {
        match self.known.get_mut(&pid) {
            Some(known) if known.idle >= IDLE_AFTER => {
                let every = if known.stat.is_kernel { IDLE_KERNEL_EVERY } else { IDLE_EVERY };
                let is_due = (self.reading + known.id as u64).is_multiple_of(every);
                if !is_due {
                    known.absent = 0;
                }
                is_due
            }
            _ => true,
        }
    }

    fn read_one(&mut self, ts: i64, pid: i32, task: Option<TaskStats>, found: &mut Found) {
        if let Some(known) = self.known.get_mut(&pid) {
            if task.is_some() && task == known.task && !matches!(known.stat.state, 'R' | 'D') {
                known.absent = 0;
                known.rest(ts);
                return;
            }
        }
        let kept = self.known.get(&pid).and_then(|known| known.files.as_ref());
        let Some(stat) = self.files.stat(pid, kept.map(|files| &files.stat)) else { return };
        let known = match self.known.remove(&pid) {
            Some(known) if known.stat.start_ns == stat.start_ns => known,
            _ => self.meet(ts, pid, &stat, found),
        };
        let mut known = Known { absent: 0, ..known };
        let has_totals = known.totals[1].is_some(); // one that was just met has nothing to take differences from yet
        if task.is_none() && has_totals && stat == known.stat && !matches!(stat.state, 'R' | 'D') {
            known.rest(ts);
            self.known.insert(pid, known);
            return;
        }
        let totals = self.totals(pid, &stat, task, known.files.as_ref());
        let mut used = [None; COUNTERS];
        for (used, (now, before)) in used.iter_mut().zip(totals.iter().zip(&known.totals)) {
            *used = now.zip(*before).map(|(now, before)| (now - before).max(0));
        }
        let mut regroup = false;
        let did = used.iter().any(|v| v.is_some_and(|v| v != 0));
        if ts > known.ts && (did || stat.state != known.stat.state || matches!(stat.state, 'R' | 'D')) {
            let wchan = if stat.state == 'D' { self.files.read(pid, "wchan", None) } else { None };
            let wchan = wchan.map_or(String::new(), |w| if w == "0" { String::new() } else { w.into_owned() });
            let mut row = OwnedRow::default();
            row.int(ts).int(ts - known.ts).int(known.id).text(stat.state.to_string()).text(wchan);
            row.int(stat.threads).int(stat.rss_pages.saturating_mul(self.page));
            used.iter().for_each(|v| _ = row.maybe(*v));
            found.deltas.push(row);
            known.rows += 1;
            regroup = known.rows.is_power_of_two() || known.rows.is_multiple_of(REGROUP);
            if known.files.is_none() && self.kept < self.most_kept {
                self.kept += 1;
                let io = if stat.is_kernel { None } else { self.files.open(pid, "io") };
                known.files = self.files.open(pid, "stat").map(|stat| Kept { stat, io });
            }
        }
        let renamed = stat.comm != known.stat.comm;
        if renamed || regroup {
            let cgroup = self.files.cgroup(pid).unwrap_or_default();
            if renamed || cgroup != known.cgroup {
                known.cgroup = cgroup;
                found.described.push(describe(ts, pid, &known, &stat));
            }
        }
        (known.stat, known.task, known.totals, known.ts, known.idle) = (stat, task, totals, ts, 0);
        self.known.insert(pid, known);
    }

    /// A process seen for the first time.
    fn meet(&mut self, ts: i64, pid: i32, stat: &Stat, found: &mut Found) -> Known {
        self.last_id += 1;
        // Started while we looked: everything it used lies in the interval. A start is known to one tick.
        let lived_ns = self.last_ts.map_or(0, |last| ts - last);
        let is_new = self.last_ts.is_some() && stat.start_ns >= self.began_boot_ns;
        let totals = if is_new { [Some(0); COUNTERS] } else { [None; COUNTERS] };
        let known = Known {
            id: self.last_id,
            stat: stat.clone(),
            cgroup: self.files.cgroup(pid).unwrap_or_default(),
            uid: std::fs::metadata(format!("/proc/{pid}")).map_or(-1, |m| i64::from(m.uid())),
            task: None,
            totals,
            ts: if is_new { ts - lived_ns } else { ts },
            rows: 0,
            idle: 0,
            absent: 0,
            files: None,
        };
        found.described.push(describe(ts, pid, &known, stat));
        known
    }

    fn totals(&mut self, pid: i32, stat: &Stat, task: Option<TaskStats>, kept: Option<&Kept>) -> Totals {
        let mut t = [None; COUNTERS];
        (t[1], t[2], t[7], t[8]) = (Some(stat.user_ns), Some(stat.system_ns), Some(stat.minflt), Some(stat.majflt));
        match task {
            Some(task) => {
                (t[0], t[3]) = (Some(task.cpu_run_virtual_total), Some(task.cpu_delay_total));
                t[4] = self.delays.then_some(task.blkio_delay_total);
                (t[5], t[6]) = (Some(task.nvcsw), Some(task.nivcsw));
            }
            None if stat.threads == 1 => {
                if let Some(text) = self.files.read(pid, "schedstat", None) {
                    let mut fields = text.split_ascii_whitespace().map(|f| f.parse().ok());
                    (t[0], t[3]) = (fields.next().flatten(), fields.next().flatten());
                }
                t[4] = self.delays.then_some(stat.blkio_ns);
                if let Some(text) = self.files.read(pid, "status", None) {
                    t[5] = field(&text, "voluntary_ctxt_switches");
                    t[6] = field(&text, "nonvoluntary_ctxt_switches");
                }
            }
            // /proc has these of the first thread only: they say nothing about the process
            None => {}
        }
        t[0] = t[0].or(Some(stat.user_ns + stat.system_ns));
        if !stat.is_kernel {
            if let Some(text) = self.files.read(pid, "io", kept.and_then(|files| files.io.as_ref())) {
                (t[9], t[10]) = (field(&text, "read_bytes"), field(&text, "write_bytes"));
            }
        }
        t
    }

    fn read_exits(&mut self, ts: i64, found: &mut Found) {
        let Some(exits) = &mut self.exits else { return };
        let mut ended: Vec<Exit> = Vec::new();
        exits.read(|exit| ended.push(exit));
        let Some(last_ts) = self.last_ts else { return }; // ended before the window began
        let named: HashMap<i32, String> = ended.iter().map(|e| (e.pid, e.comm.clone())).collect();
        let mut kinds: BTreeMap<(i32, i32, String, String), Ended> = BTreeMap::new();
        for exit in ended {
            let before = self.known.remove(&exit.pid);
            let (parent_id, parent) = match self.known.get(&exit.ppid) {
                Some(parent) => (parent.id, parent.stat.comm.clone()),
                None => (0, named.get(&exit.ppid).cloned().unwrap_or_default()),
            };
            let mut kind = (exit.ppid, parent_id, parent, exit.comm.clone());
            if kinds.len() >= MOST_KINDS && !kinds.contains_key(&kind) {
                kind = (0, 0, String::new(), String::new());
            }
            let kind = kinds.entry(kind).or_default();
            kind.processes += 1;
            kind.unseen += i64::from(before.is_none());
            kind.lifetime_ns += exit.lifetime_ns;
            // of one that was followed, what it used since its last row
            let rest = |total: i64, place: usize| match &before {
                Some(before) => before.totals[place].map_or(0, |seen| (total - seen).max(0)),
                None => total,
            };
            let t = exit.totals;
            let totals = [
                rest(t.cpu_run_virtual_total, 0),
                rest(t.cpu_delay_total, 3),
                rest(t.blkio_delay_total, 4),
                rest(t.ac_minflt, 7),
                rest(t.ac_majflt, 8),
                rest(t.read_bytes, 9),
                rest(t.write_bytes, 10),
            ];
            kind.totals.iter_mut().zip(totals).for_each(|(sum, more)| *sum += more);
        }
        for ((ppid, parent_id, parent, comm), e) in kinds {
            let mut row = OwnedRow::default();
            row.int(ts).int(ts - last_ts).int(ppid).int(parent_id).text(parent).text(comm);
            row.int(e.processes).int(e.unseen).int(e.lifetime_ns);
            e.totals.iter().enumerate().for_each(|(at, v)| _ = row.maybe((at != 2 || self.delays).then_some(*v)));
            found.exits.push(row);
        }
    }
}

/// Processes whose two files may be open: a quarter of what this process may open.
fn most_kept() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit, which the call fills.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    usize::try_from(limit.rlim_cur / 8).unwrap_or(usize::MAX)
}

fn describe(ts: i64, pid: i32, known: &Known, stat: &Stat) -> OwnedRow {
    let mut row = OwnedRow::default();
    row.int(ts).int(known.id).int(pid).int(stat.ppid).int(stat.start_ns).text(stat.comm.clone()).int(known.uid);
    row.text(known.cgroup.clone()).truth(stat.is_kernel);
    row
}

/// All processes of the host that may be seen.
fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_capture::{spec, Value};
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    const NOW: i64 = 5_000_000_000;

    fn both_ways() -> [Processes; 2] {
        let boot = leadline_clockwork::ClockReading::now().boottime_ns;
        [
            Processes::new(None, None, false, boot),
            Processes::new(Accounting::open().ok(), Exits::open().ok(), false, boot),
        ]
    }

    /// The value of a column in a row.
    fn of<'a>(table: &str, row: &'a OwnedRow, column: &str) -> Value<'a> {
        let at = spec(table).unwrap().columns.iter().position(|c| c.name == column).unwrap();
        row.row()[at]
    }

    #[test]
    fn rows_have_the_columns_of_their_tables() {
        let found = both_ways()[0].read(NOW);
        assert_eq!(found.described[0].row().len(), spec("process").unwrap().columns.len());
        assert_eq!(spec("process_delta").unwrap().columns.len(), 7 + COUNTERS);
        assert_eq!(spec("process_exit").unwrap().columns.len(), 9 + 7);
        assert!(found.deltas.is_empty() && found.exits.is_empty(), "the first reading gives no differences");
    }

    #[test]
    fn a_process_known_to_do_something_shows_it_and_one_that_sleeps_does_not() {
        for mut processes in both_ways() {
            let mut shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
            let (mut commands, mut answers) =
                (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
            let mut answer = String::new();
            writeln!(commands, "echo ready").unwrap();
            answers.read_line(&mut answer).unwrap();
            while std::fs::read_to_string(format!("/proc/{}/wchan", sleeper.id())).unwrap() == "0" {} // until it sleeps
            let first = processes.read(NOW);
            writeln!(commands, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done").unwrap();
            answers.read_line(&mut answer).unwrap();
            let second = processes.read(NOW + 1_000_000_000);
            let id = |child: u32| {
                let row = first.described.iter().find(|r| of("process", r, "pid") == Value::Int(i64::from(child)));
                of("process", row.unwrap(), "process_id")
            };
            let rows_of = |child: u32| {
                let id = id(child);
                second.deltas.iter().filter(|r| of("process_delta", r, "process_id") == id).collect::<Vec<_>>()
            };
            let (worked, slept) = (rows_of(shell.id()), rows_of(sleeper.id()));
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
            drop(commands);
            shell.wait().unwrap();
            assert_eq!((worked.len(), slept.len()), (1, 0));
            let Value::Int(ran) = of("process_delta", worked[0], "cpu_run_ns") else {
                panic!("CPU time is an integer")
            };
            assert!(ran > 10_000_000, "{ran} ns for 200,000 rounds of a shell");
            assert_eq!(of("process_delta", worked[0], "dt_ns"), Value::Int(1_000_000_000));
        }
    }

    #[test]
    fn a_process_that_wakes_after_a_long_sleep_is_counted_whole() {
        for mut processes in both_ways() {
            let mut shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (mut commands, mut answers) =
                (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
            let mut answer = String::new();
            writeln!(commands, "echo ready").unwrap();
            answers.read_line(&mut answer).unwrap();
            let mut ts = NOW;
            let first = processes.read(ts);
            let is_ours = |r: &&OwnedRow| of("process", r, "pid") == Value::Int(i64::from(shell.id()));
            let id = of("process", first.described.iter().find(is_ours).unwrap(), "process_id");
            let mut rows = Vec::new();
            let mut read = |rows: &mut Vec<OwnedRow>| {
                ts += 1_000_000_000;
                let ours = |r: &OwnedRow| of("process_delta", r, "process_id") == id;
                rows.extend(processes.read(ts).deltas.into_iter().filter(ours));
            };
            (0..IDLE_AFTER + 8).for_each(|_| read(&mut rows));
            rows.clear(); // it may have been on its way to sleep
            writeln!(commands, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done").unwrap();
            answers.read_line(&mut answer).unwrap();
            (0..IDLE_EVERY).for_each(|_| read(&mut rows));
            drop(commands);
            shell.wait().unwrap();
            let ran = |row: &OwnedRow| match of("process_delta", row, "cpu_run_ns") {
                Value::Int(ns) => ns,
                _ => 0,
            };
            assert!(rows.iter().map(ran).sum::<i64>() > 10_000_000, "within {IDLE_EVERY} readings: {rows:?}");
            assert!(rows.iter().all(
                |r| matches!(of("process_delta", r, "dt_ns"), Value::Int(ns) if ns <= IDLE_EVERY as i64 * 1_000_000_000)
            ));
        }
    }

    #[test]
    fn processes_that_no_reading_saw_are_counted_with_their_parent() {
        let [_, mut processes] = both_ways();
        if processes.exits.is_none() {
            eprintln!("SKIPPED: taskstats needs CAP_NET_ADMIN");
            return;
        }
        processes.read(NOW);
        for _ in 0..7 {
            Command::new("true").status().unwrap();
        }
        let found = processes.read(NOW + 1_000_000_000);
        let me = Value::Int(i64::from(std::process::id()));
        let is_ours =
            |r: &&OwnedRow| of("process_exit", r, "ppid") == me && of("process_exit", r, "comm") == Value::Text("true");
        let ours: Vec<_> = found.exits.iter().filter(is_ours).collect();
        assert_eq!(ours.len(), 1, "one row for what is alike");
        assert_eq!(of("process_exit", ours[0], "processes"), Value::Int(7));
        assert_eq!(of("process_exit", ours[0], "unseen"), Value::Int(7));
        assert!(matches!(of("process_exit", ours[0], "cpu_run_ns"), Value::Int(ns) if ns > 0));
        assert!(matches!(of("process_exit", ours[0], "parent_comm"), Value::Text(name) if !name.is_empty()));
    }
}
