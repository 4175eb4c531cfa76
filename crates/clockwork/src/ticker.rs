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
use std::thread::{JoinHandle, Thread};
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
    /// Nothing is written any more.
    ended: AtomicBool,
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

/// A thread that does some work at a steady rate. Threads share it: each may ask how it goes while another one stops it.
pub struct Ticker {
    shared: Arc<Shared>,
    /// Of the thread that does the work.
    handle: Thread,
    end: Mutex<End>,
}

/// Rows, bytes and segments by table.
type Written = BTreeMap<&'static str, Stats>;

#[derive(Default)]
struct End {
    /// Until it is joined.
    thread: Option<JoinHandle<Written>>,
    written: Written,
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
        let handle = thread.thread().clone();
        Ok(Ticker { shared, handle, end: Mutex::new(End { thread: Some(thread), ..End::default() }) })
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        let s = &self.shared;
        Status {
            running: !s.ended.load(Relaxed),
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

    /// Stops, writes everything out and joins: rows, bytes and segments by table, and the end of its window. Stopping again gives the same.
    pub fn stop(&self) -> (Written, Option<i64>) {
        self.shared.stop.store(true, Relaxed);
        self.handle.unpark();
        let mut end = self.end.lock();
        if let Some(thread) = end.thread.take() {
            match thread.join() {
                Ok(written) => end.written = written,
                Err(panic) => self.shared.fail(Error::fault("looks at the host", &*panic)),
            }
            end.ts_to = Some(monotonic_ns());
        }
        (end.written.clone(), end.ts_to)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Says so at the end of the thread, also after a panic.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
    }
}

fn run(
    mut work: impl Tick,
    mut tables: OpenTables,
    shared: &Shared,
    start: i64,
    period_ns: i64,
    mut policy: SegmentPolicy,
) -> Written {
    let _ended = Ended(shared);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver, Sender};

    /// Says that the last tick has come, and stays in it until it may end.
    struct Waits(Sender<()>, Receiver<()>);

    impl Tick for Waits {
        fn tick(&mut self, _ts: i64, _tables: &mut OpenTables) -> Result<(), Error> {
            Ok(())
        }

        fn last(&mut self, _ts: i64, _tables: &mut OpenTables) -> Result<(), Error> {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
            Ok(())
        }
    }

    struct Panics;

    impl Tick for Panics {
        fn tick(&mut self, _ts: i64, _tables: &mut OpenTables) -> Result<(), Error> {
            panic!("a tick")
        }
    }

    fn started(work: impl Tick) -> Ticker {
        Ticker::start("test", Path::new("."), 100.0, 1_000_000_000, true, work).unwrap()
    }

    #[test]
    fn it_says_how_it_goes_while_another_thread_stops_it() {
        let ((says, heard), (may_end, waits)) = (channel(), channel());
        let ticker = started(Waits(says, waits));
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| ticker.stop());
            heard.recv().unwrap();
            assert!(ticker.status().running);
            assert!(ticker.with_error(|e| e.is_none()));
            may_end.send(()).unwrap();
            let (_, ts_to) = stopping.join().unwrap();
            assert!(ts_to.is_some());
            assert_eq!(ticker.stop().1, ts_to);
        });
        assert!(!ticker.status().running);
    }

    #[test]
    fn a_panic_ends_it_and_is_told() {
        let ticker = started(Panics);
        ticker.stop();
        assert!(!ticker.status().running);
        assert!(ticker.with_error(|e| e.is_some_and(|e| e.kind == Kind::Fault)));
    }
}
