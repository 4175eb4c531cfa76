//! Which phase took how long, of each thread that worked in it.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    /// Only of a base backup: where the recovery target is.
    Find,
    Read,
    Pages,
    Sync,
    Status,
    HandOver,
}

impl Phase {
    /// For programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Find => "find",
            Phase::Read => "read",
            Phase::Pages => "pages",
            Phase::Sync => "sync",
            Phase::Status => "status",
            Phase::HandOver => "hand over",
        }
    }
}

/// The life of one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThreadTime {
    /// What it was started for. A pass after the first reads the WAL again: that is the phase of reading too.
    pub phase: Phase,
    /// From its beginning to its end, in nanoseconds.
    pub wall_ns: u64,
    /// What it was on a CPU of that; none where the kernel does not tell.
    pub cpu_ns: Option<u64>,
}

/// Where threads note their times when they end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Arc<Mutex<Vec<ThreadTime>>>);

impl Times {
    /// Of the thread that calls; noted when the clock is dropped, which that thread must do.
    pub(crate) fn begin(&self, phase: Phase) -> Clock {
        Clock { times: self.clone(), phase, began: Instant::now(), cpu_ns: on_cpu_ns() }
    }

    /// All that ended so far, in the order in which they ended.
    pub(crate) fn all(&self) -> Vec<ThreadTime> {
        self.0.lock().clone()
    }
}

pub(crate) struct Clock {
    times: Times,
    phase: Phase,
    began: Instant,
    cpu_ns: Option<u64>,
}

impl Drop for Clock {
    fn drop(&mut self) {
        let cpu_ns = on_cpu_ns().zip(self.cpu_ns).map(|(now, before)| now.saturating_sub(before));
        let wall_ns = self.began.elapsed().as_nanos() as u64;
        self.times.0.lock().push(ThreadTime { phase: self.phase, wall_ns, cpu_ns });
    }
}

/// The first number of `schedstat`: nanoseconds that this thread was on a CPU, as of the kernel's last tick.
fn on_cpu_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_notes_its_time_when_it_ends() {
        let times = Times::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _clock = times.begin(Phase::Pages);
                    // The kernel counts at its ticks.
                    let began = Instant::now();
                    while began.elapsed().as_millis() < 60 {
                        std::hint::black_box(began);
                    }
                });
            }
        });
        let all = times.all();
        assert_eq!(all.len(), 2);
        for time in all {
            assert_eq!(time.phase, Phase::Pages);
            assert!(time.wall_ns > 0 && time.cpu_ns.is_none_or(|cpu| cpu > 0), "{time:?}");
        }
    }
}
