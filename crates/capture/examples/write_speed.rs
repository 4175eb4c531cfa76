//! CPU and bytes per row of writing `session_run`, the table with the most rows, and how many samples a row stands for.
//!
//! `cargo run --release -p leadline-capture --example write_speed [-- DIR]` writes 64 sessions at 1 kHz for a minute,
//! a segment every 2 s, into a new folder under DIR (default: the temporary folder) and removes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, UInt32Array};
use leadline_capture::{spec, Error, Stats, TableWriter, WriterOptions};
use leadline_testdata::Random;

const SESSIONS: usize = 64;
const TICKS_PER_BATCH: usize = 250;
const BATCHES_PER_SEGMENT: usize = 8;
const SEGMENTS: usize = 30;
const PERIOD_NS: i64 = 1_000_000;

/// True in `percent` of calls.
fn chance(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Session {
    state: i32,
    wait_event_info: u32,
    statement: i64,
    xact_start: i64,
    query_start: i64,
    state_change: i64,
    backend_xid: u32,
    backend_xmin: u32,
}

struct Load {
    random: Random,
    sessions: [Session; SESSIONS],
    statements: [i64; 12],
    now_ns: i64,
    tick: i64,
    /// How often, in percent of ticks, a busy session has moved on to another statement since the tick before.
    busy: u64,
    /// Every other session does nothing for hours.
    half_idle: bool,
}

impl Load {
    fn new(busy: u64, half_idle: bool) -> Load {
        let mut random = Random(42);
        let statements = std::array::from_fn(|_| random.next() as i64);
        Load {
            random,
            sessions: [Session::default(); SESSIONS],
            statements,
            now_ns: 30_000_000_000_000,
            tick: 0,
            busy,
            half_idle,
        }
    }

    fn step(&mut self) {
        self.now_ns += PERIOD_NS + (self.random.next() % 60_000) as i64;
        let now_us = 1_770_000_000_000_000 + self.now_ns / 1000;
        for (id, session) in self.sessions.iter_mut().enumerate() {
            if self.half_idle && id % 2 == 1 {
                let since = 1_770_000_000_000_000 + id as i64 * 300_000_000;
                *session = Session {
                    state: 3,
                    wait_event_info: 0x0600_0000,
                    query_start: since,
                    state_change: since + 150,
                    ..*session
                };
                continue;
            }
            let r = &mut self.random;
            if chance(r, self.busy) {
                let started = now_us - (r.next() % 1000) as i64;
                session.statement = self.statements[(r.next() % 12) as usize];
                session.query_start = started;
                session.state_change = started + (r.next() % 900) as i64;
                session.state = [2, 2, 2, 2, 2, 3, 4][(r.next() % 7) as usize];
                if chance(r, 30) {
                    session.xact_start = started;
                    session.backend_xid = (now_us / 150) as u32 + (r.next() % 64) as u32;
                }
                session.backend_xmin = if session.state == 2 { (now_us / 150) as u32 } else { 0 };
            }
            if chance(r, 40) {
                const WAITS: [u32; 8] = [0, 0, 0, 0x0600_0000, 0x0100_003c, 0x0100_0008, 0x0a00_0015, 0x0400_0004];
                session.wait_event_info = WAITS[(r.next() % 8) as usize];
            }
        }
    }

    /// What the recorder hands over after so many passes: a row per session and run of passes that showed the same.
    fn batch(&mut self) -> RecordBatch {
        let mut longs: [Vec<i64>; 7] = Default::default();
        let mut ints: [Vec<i32>; 3] = Default::default();
        let mut codes: [Vec<u32>; 3] = Default::default();
        let mut runs = self.sessions.map(|session| (self.tick, 0, session));
        let mut end = |id: usize, (tick, ticks, s): (i64, i32, Session)| {
            if ticks > 0 {
                let values = [tick, s.statement, 0, s.statement, s.xact_start, s.query_start, s.state_change];
                longs.iter_mut().zip(values).for_each(|(column, v)| column.push(v));
                ints.iter_mut().zip([ticks, id as i32, s.state]).for_each(|(column, v)| column.push(v));
                let values = [s.wait_event_info, s.backend_xid, s.backend_xmin];
                codes.iter_mut().zip(values).for_each(|(column, v)| column.push(v));
            }
        };
        for _ in 0..TICKS_PER_BATCH {
            self.step();
            for (id, (run, now)) in runs.iter_mut().zip(&self.sessions).enumerate() {
                if run.2 != *now {
                    end(id, *run);
                    *run = (self.tick, 0, *now);
                }
                run.1 += 1;
            }
            self.tick += 1;
        }
        runs.into_iter().enumerate().for_each(|(id, run)| end(id, run));
        let [tick, query_id, plan_id, statement_id, xact_start, query_start, state_change] = longs.map(long);
        let [ticks, session_id, state] = ints.map(|v| Arc::new(Int32Array::from(v)) as ArrayRef);
        let [wait, xid, xmin] = codes.map(|v| Arc::new(UInt32Array::from(v)) as ArrayRef);
        let columns = vec![
            tick,
            ticks,
            session_id,
            state,
            wait,
            query_id,
            plan_id,
            statement_id,
            xact_start,
            query_start,
            state_change,
            xid,
            xmin,
        ];
        let schema = spec("session_run").expect("the table exists").schema();
        RecordBatch::try_new(schema, columns).expect("the columns of the table")
    }
}

fn long(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// CPU time of this process, user and system, ns.
fn cpu_ns() -> i64 {
    // SAFETY: rusage is plain data that getrusage fills; a zeroed one is valid.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ns = |t: libc::timeval| t.tv_sec * 1_000_000_000 + t.tv_usec * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// What a load cost: CPU of each segment in ns per row, in rising order, and what is on disk.
fn run(folder: &Path, mut load: Load) -> Result<(Vec<f64>, Stats), Error> {
    let mut writer = TableWriter::create(folder, "session_run", WriterOptions::default())?;
    let mut costs = Vec::new();
    for _ in 0..SEGMENTS {
        // Batches are made before the clock starts: only their writing is measured.
        let batches: Vec<RecordBatch> = (0..BATCHES_PER_SEGMENT).map(|_| load.batch()).collect();
        let before = cpu_ns();
        for batch in &batches {
            writer.write(batch)?;
        }
        writer.roll()?;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        costs.push((cpu_ns() - before) as f64 / rows as f64);
    }
    costs.sort_by(f64::total_cmp);
    Ok((costs, writer.close()?))
}

fn main() -> Result<(), Error> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let samples = SESSIONS * TICKS_PER_BATCH * BATCHES_PER_SEGMENT;
    println!("session_run, {SESSIONS} sessions, {SEGMENTS} segments of {samples} samples: CPU and bytes per row");
    println!("                                                    ns median   ns least   bytes   samples a row");
    let loads = [
        ("new statement in 5 % of ticks", 5, false),
        ("new statement in 50 % of ticks", 50, false),
        ("new statement in 95 % of ticks", 95, false),
        ("the same, every other session idle for hours", 95, true),
    ];
    for (name, busy, half_idle) in loads {
        let folder = base.join(format!("leadline-write-speed-{}", std::process::id()));
        let outcome = run(&folder, Load::new(busy, half_idle));
        let _ = std::fs::remove_dir_all(&folder);
        let (costs, stats) = outcome?;
        let bytes = stats.bytes as f64 / stats.rows as f64;
        let samples = (samples * SEGMENTS) as f64 / stats.rows as f64;
        println!("{name:<50} {:>10.1} {:>10.1} {bytes:>7.1} {samples:>15.1}", costs[costs.len() / 2], costs[0]);
    }
    Ok(())
}
