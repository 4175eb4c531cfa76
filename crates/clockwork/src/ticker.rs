//! Work done at a steady rate in a thread of its own, its tables, and what became of it.

use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::segments::SegmentPolicy;
use crate::tables::OpenTables;
use leadline_capture::Stats;
use leadline_errors::{Error, Kind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a probe does at each tick.
pub trait Tick: Send + 'static {
    /// Reads once and writes what it found. `ts`: when the tick began.
    ///
    /// # Errors
    /// Ends the probe; what it wrote before is kept.
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error>;

    /// The last tick, at the end of the window.
    ///
    /// # Errors
    /// As [`Tick::tick`].
    fn last(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        self.tick(ts, tables)
    }

    /// No tick is needed before this moment: another thread does the work meanwhile.
    fn rests_until(&self, _now: i64) -> Option<i64> {
        None
    }

    /// How often the work was done, and how often it was not when it was due, if another thread does it, too.
    fn counted(&self) -> Option<(u64, u64)> {
        None
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    ts_from: AtomicI64,
    ticks: AtomicU64,
    missed: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    cpu_ns: AtomicI64,
    error: Mutex<Option<Error>>,
}

impl Shared {
    fn fail(&self, error: Error) {
        self.error.lock().get_or_insert(error);
    }

    fn count(&self, tables: &OpenTables) {
        let stats = tables.stats();
        self.rows.store(stats.values().map(|s| s.rows).sum(), Relaxed);
        self.bytes.store(stats.values().map(|s| s.bytes).sum(), Relaxed);
        self.cpu_ns.store(thread_cpu_ns(), Relaxed);
    }
}

/// The state of a tick. `cpu_ns`: of its thread.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Status {
    pub running: bool,
    pub ts_from: i64,
    pub ticks: u64,
    pub missed: u64,
    pub rows: u64,
    pub bytes: u64,
    pub cpu_ns: i64,
}

/// A thread that does some work at a steady rate.
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<BTreeMap<&'static str, Stats>>>,
    written: BTreeMap<&'static str, Stats>,
    ts_to: Option<i64>,
}

impl Ticker {
    /// Starts the thread. `name` is at most 15 bytes; `flush_ns`: how long rows may wait in memory.
    pub fn start(
        name: &str,
        capture_dir: &Path,
        rate_hz: f64,
        flush_ns: i64,
        growing: bool,
        work: impl Tick,
    ) -> Result<Ticker, Error> {
        if !(rate_hz.is_finite() && (0.001..=1000.0).contains(&rate_hz)) {
            return Err(Error::new(Kind::Usage, format!("a rate of {rate_hz} Hz is out of range")));
        }
        let shared = Arc::<Shared>::default();
        let (period_ns, tables, of_thread) =
            ((1e9 / rate_hz) as i64, OpenTables::new(capture_dir).growing(growing), shared.clone());
        let start = monotonic_ns();
        shared.ts_from.store(start, Relaxed);
        let policy = SegmentPolicy::new(start, flush_ns, growing);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(work, tables, &of_thread, start, period_ns, policy))
            .map_err(|e| Error::new(Kind::Usage, "cannot start a thread").detail(e.to_string()))?;
        Ok(Ticker { shared, thread: Some(thread), written: BTreeMap::new(), ts_to: None })
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        let s = &self.shared;
        Status {
            running: self.thread.as_ref().is_some_and(|t| !t.is_finished()),
            ts_from: s.ts_from.load(Relaxed),
            ticks: s.ticks.load(Relaxed),
            missed: s.missed.load(Relaxed),
            rows: s.rows.load(Relaxed),
            bytes: s.bytes.load(Relaxed),
            cpu_ns: s.cpu_ns.load(Relaxed),
        }
    }

    /// Runs `f` on the error that ended it, if one did.
    pub fn with_error<T>(&self, f: impl FnOnce(Option<&Error>) -> T) -> T {
        f(self.shared.error.lock().as_ref())
    }

    /// Tells the thread to end soon; [`Ticker::stop`] then need not wait for it.
    pub fn ask_to_stop(&self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Stops, writes everything out and joins. Stopping again changes nothing.
    pub fn stop(&mut self) {
        self.ask_to_stop();
        let Some(thread) = self.thread.take() else { return };
        match thread.join() {
            Ok(written) => self.written = written,
            Err(panic) => self.shared.fail(Error::fault("looks at the host", &*panic)),
        }
        self.ts_to = Some(monotonic_ns());
    }

    /// End of its window; None while it runs.
    pub fn ts_to(&self) -> Option<i64> {
        self.ts_to
    }

    /// Rows, bytes and segments by table, known after the stop.
    pub fn written(&self) -> &BTreeMap<&'static str, Stats> {
        &self.written
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(
    mut work: impl Tick,
    mut tables: OpenTables,
    shared: &Shared,
    start: i64,
    period_ns: i64,
    mut policy: SegmentPolicy,
) -> BTreeMap<&'static str, Stats> {
    let mut record = || -> Result<(), Error> {
        let mut moment: i64 = 0;
        loop {
            let due = start + moment * period_ns;
            while monotonic_ns() < due && !shared.stop.load(Relaxed) {
                std::thread::park_timeout(Duration::from_nanos((due - monotonic_ns()).max(0) as u64));
            }
            let (ts, stopping) = (monotonic_ns(), shared.stop.load(Relaxed));
            if stopping {
                work.last(ts, &mut tables)?; // the last interval reaches to the end of the window
            } else {
                work.tick(ts, &mut tables)?;
            }
            shared.ticks.fetch_add(1, Relaxed);
            if let Some((ticks, missed)) = work.counted() {
                shared.ticks.store(ticks, Relaxed);
                shared.missed.store(missed, Relaxed);
            }
            if stopping {
                return Ok(());
            }
            let now = monotonic_ns();
            if policy.is_due(now) {
                tables.roll()?;
            }
            shared.count(&tables);
            // the next tick is the next one due; those that went by meanwhile are lost and counted
            let next = ((now - start) / period_ns + 1).max(moment + 1);
            shared.missed.fetch_add((next - moment - 1) as u64, Relaxed);
            let rests = work.rests_until(now).map_or(next, |until| (until - start) / period_ns);
            moment = next.max(rests);
        }
    };
    if let Err(e) = record() {
        shared.fail(e);
    }
    if let Err(e) = tables.end() {
        shared.fail(e.into());
    }
    shared.count(&tables);
    tables.stats()
}
