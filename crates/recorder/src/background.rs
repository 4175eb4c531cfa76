//! The background thread: writes what the sampler hands over, reads process counters, watches that the server is there.

use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::deltas::Deltas;
use crate::evidence::Evidence;
use crate::host_stat::HostStat;
use crate::recorder::{Config, Shared};
use crate::self_cost::{process_cpu_ns, rss_bytes};
use crate::tables::Tables;
use leadline_capture::Value;
use leadline_errors::Error;
use leadline_shm::attach::Anchors;
use leadline_shm::process::ServerProcess;
use leadline_shm::sessions::Run;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
/// Segments of a long recording get longer, up to a thirtieth of it,
const GROWTH: i64 = 30;
/// ... and never longer than this: what a killed recorder may lose.
const LONGEST_SEGMENT_NS: i64 = 30 * SECOND;

/// How long the present segment may get: short at the start, so that a killed recorder leaves something, and longer later,
/// because each segment of each table costs some CPU to write and some to read.
fn segment_ns(elapsed_ns: i64, flush_interval_ns: i64, growing: bool) -> i64 {
    let steady = (elapsed_ns / 2).clamp(SECOND.min(flush_interval_ns), flush_interval_ns);
    if growing {
        steady.max((elapsed_ns / GROWTH).min(LONGEST_SEGMENT_NS))
    } else {
        steady
    }
}

/// What the background thread works on.
pub struct Background {
    pub config: Config,
    pub process: ServerProcess,
    pub anchors: Anchors,
    pub tables: Tables,
    pub shared: Arc<Shared>,
    /// Evidence taken since the server was last seen to use the segment. A segment that nobody writes any more still reads
    /// like a server, so what cannot be vouched for is not written.
    pub unverified: Vec<Evidence>,
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
        let lost: usize = self.unverified.iter().map(|e| e.ticks.ts.len()).sum();
        self.shared.unverified.fetch_add(lost as u64, Relaxed);
        for late in handed_over {
            self.shared.unverified.fetch_add(late.ticks.ts.len() as u64, Relaxed);
        }
        self.tables
    }

    fn record(&mut self, handed_over: &Receiver<Evidence>) -> Result<(), Error> {
        self.tables.write_wait_events()?;
        let start = monotonic_ns();
        let mut deltas = Deltas::new(&self.anchors);
        let mut host = HostStat::open();
        let (mut next_second, mut next_list, mut rolled) = (start, start, start);
        let delta_ns = (self.config.delta_interval_s * 1e9) as i64;
        let flush_ns = (self.config.flush_interval_s * 1e9) as i64;
        loop {
            let now = monotonic_ns();
            if now >= next_second {
                next_second = (next_second + SECOND).max(now);
                self.once_a_second(&mut host, start)?;
            }
            if now >= next_list {
                next_list = (next_list + delta_ns).max(now);
                self.shared.list_wanted.store(true, Relaxed);
            }
            if now - rolled >= segment_ns(now - start, flush_ns, self.config.growing_segments) {
                rolled = now;
                self.tables.roll()?;
                self.count_written();
            }
            let wait = next_second.min(next_list).saturating_sub(now).clamp(1_000_000, SECOND);
            match handed_over.recv_timeout(Duration::from_nanos(wait as u64)) {
                Ok(mut evidence) => {
                    if let Some(list) = evidence.list.take() {
                        let rows = deltas.read(&list);
                        self.tables.write_rows("session_delta", rows.iter().map(|d| d.values()))?;
                    }
                    self.unverified.push(evidence);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.write_verified()?;
        self.write_costs()?;
        self.tables.roll()?;
        self.count_written();
        Ok(())
    }

    /// Writes what was taken until now, if the server is still the one attached to.
    fn write_verified(&mut self) -> Result<(), Error> {
        self.process.still_there()?;
        for evidence in std::mem::take(&mut self.unverified) {
            let list = self.tables.write(evidence)?;
            let _ = self.emptied.send(list); // a sampler that ended needs none
        }
        Ok(())
    }

    fn once_a_second(&mut self, host: &mut HostStat, start: i64) -> Result<(), Error> {
        self.write_verified()?;
        let ts = monotonic_ns();
        let metrics = host.read();
        self.tables.write_rows(
            "host_stat",
            metrics.iter().map(|(name, v)| vec![Value::Int(ts), Value::Text(name), Value::Int(*v)]),
        )?;
        if ts - start >= SECOND / 2 {
            self.write_costs()?;
        }
        Ok(())
    }

    fn write_costs(&mut self) -> Result<(), Error> {
        let ts = monotonic_ns();
        let (user, system) = process_cpu_ns();
        let base = self.shared.cpu_at_start();
        self.shared.writer_cpu_ns.store(thread_cpu_ns(), Relaxed);
        let bytes = self.shared.bytes.load(Relaxed) as i64;
        let rows = self.shared.rows.load(Relaxed) as i64;
        let row = |component, user: i64, system: i64, rss: i64| {
            vec![
                Value::Int(ts),
                Value::Text(component),
                Value::Int(user),
                Value::Int(system),
                Value::Int(rss),
                Value::Int(bytes),
                Value::Int(rows),
            ]
        };
        // a thread's clock does not tell user from system: all of it stands under user
        let (sampler, writer) = (self.shared.sampler_cpu_ns.load(Relaxed), self.shared.writer_cpu_ns.load(Relaxed));
        let costs = [
            row("process", user - base.0, system - base.1, rss_bytes()),
            row("sampler", sampler, 0, 0),
            row("writer", writer, 0, 0),
        ];
        Ok(self.tables.write_rows("self_cost", costs)?)
    }

    fn count_written(&self) {
        let stats = self.tables.stats();
        self.shared.rows.store(stats.values().map(|s| s.rows).sum(), Relaxed);
        self.shared.bytes.store(stats.values().map(|s| s.bytes).sum(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_start_short_and_grow_with_the_recording() {
        let of = |elapsed_s: i64, growing| segment_ns(elapsed_s * SECOND, 5 * SECOND, growing) / SECOND;
        assert_eq!([0, 3, 6, 10, 100].map(|s| of(s, true)), [1, 1, 3, 5, 5]);
        assert_eq!([300, 3600].map(|s| of(s, true)), [10, 30]);
        assert_eq!([300, 3600].map(|s| of(s, false)), [5, 5]);
        assert_eq!(segment_ns(0, SECOND / 5, false), SECOND / 5);
    }
}
