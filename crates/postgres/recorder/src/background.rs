//! The background thread: writes what the sampler hands over, reads process counters.

use crate::deltas::Deltas;
use crate::evidence::Evidence;
use crate::shared::{Config, Shared};
use crate::tables::Tables;
use leadline_clockwork::{monotonic_ns, thread_cpu_ns, Cost, SegmentPolicy, SECOND};
use leadline_errors::Error;
use leadline_shm::attach::Anchors;
use leadline_shm::sessions::Run;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::Duration;

/// What the background thread works on.
pub struct Background {
    pub config: Config,
    pub anchors: Anchors,
    pub tables: Tables,
    pub shared: Arc<Shared>,
    /// CPU time of the threads that wrote before this one.
    pub cpu_before: i64,
    /// Lists go back to the sampler, which fills them again.
    pub emptied: Sender<Vec<Run>>,
}

impl Background {
    /// Runs until the sampler hangs up; then everything is on disk or the error is stored.
    pub fn run(mut self, handed_over: &Receiver<Evidence>) -> Tables {
        if let Err(error) = self.record(handed_over) {
            self.shared.fail(error);
            // keep what was vouched for; when the disk is what failed, the error that counts is already stored
            if let Err(error) = self.tables.roll() {
                self.shared.fail(error.into());
            }
            self.count_written();
        }
        for late in handed_over {
            self.shared.unverified.fetch_add(late.ticks.ts.len() as u64, Relaxed);
        }
        self.tables
    }

    fn record(&mut self, handed_over: &Receiver<Evidence>) -> Result<(), Error> {
        self.tables.write_wait_events()?;
        let start = monotonic_ns();
        let mut deltas = Deltas::new(&self.anchors);
        let mut next_second = start;
        let flush_ns = (self.config.flush_interval_s * 1e9) as i64;
        let mut segments = SegmentPolicy::new(start, flush_ns, self.config.growing_segments);
        loop {
            let now = monotonic_ns();
            if now >= next_second {
                next_second = (next_second + SECOND).max(now);
                if now - start >= SECOND / 2 {
                    self.write_costs()?;
                }
            }
            if self.shared.wanted.swap(false, Relaxed) || segments.is_due(now) {
                self.tables.roll()?;
                self.count_written();
            }
            // the sampler hands over more often, unless its passes are further apart
            match handed_over.recv_timeout(Duration::from_secs(1)) {
                Ok(mut evidence) => {
                    if let Some(list) = evidence.list.take() {
                        let rows = deltas.read(&list);
                        self.tables.write_deltas(&rows)?;
                    }
                    let list = self.tables.write(evidence)?;
                    let _ = self.emptied.send(list); // a sampler that ended needs none
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.write_costs()?;
        self.tables.roll()?;
        self.count_written();
        Ok(())
    }

    /// What the two threads used; what the process used is written once for all probes (`leadline_clockwork::OverheadProbe`).
    fn write_costs(&mut self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.writer_cpu_ns.store(self.cpu_before + thread_cpu_ns(), Relaxed);
        let threads = [("sampler", &shared.sampler_cpu_ns), ("writer", &shared.writer_cpu_ns)];
        let costs = threads.map(|(component, cpu_ns)| Cost {
            ts: monotonic_ns(),
            component,
            user_ns: cpu_ns.load(Relaxed),
            system_ns: 0,
            rss_bytes: 0,
            bytes: shared.bytes.load(Relaxed) as i64,
            rows: shared.rows.load(Relaxed) as i64,
        });
        Ok(self.tables.write_costs(&costs)?)
    }

    fn count_written(&self) {
        let stats = self.tables.stats();
        self.shared.rows.store(stats.values().map(|s| s.rows).sum(), Relaxed);
        self.shared.bytes.store(stats.values().map(|s| s.bytes).sum(), Relaxed);
    }
}
