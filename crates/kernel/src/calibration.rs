//! How far the trace and the scheduler's own counters differ for each waking on this machine: the two look at the clock at different
//! places of a waking. Measured with a process that does nothing but sleep and wake.

use std::cell::Cell;

use leadline_clockwork::monotonic_ns;
use leadline_errors::Result;

use crate::cpus::online_cpus;
use crate::perf::PerfTrace;
use crate::proc_threads::Addresses;
use crate::programs::Options;
use crate::record::{Record, Totals};
use crate::source::Source;

const ROUNDS: usize = 5;
const NAPS: u64 = 50;
const NAP_NS: i64 = 50_000;
/// How long to wait for the last switch of a process that has ended.
const LAST_SWITCH_NS: i64 = 1_000_000_000;
const SMALL: Options = Options {
    ring_bytes: 1 << 21,
    stack_from_ns: 0,
    sample_asleep_ns: 0,
    sample_cpu_hz: 0,
    first_failures: 0,
    events: true,
    scheduler: (0, 0),
    retransmits: false,
    budget: 1.0,
};

/// The difference of a waking, ns: the median of some rounds, since other work of the machine disturbs single ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerWaking {
    /// Of the time on a CPU.
    pub run_ns: u64,
    /// Of the time in the run queue.
    pub runq_ns: u64,
}

/// Lets processes nap under the trace. What they did is not told to anybody else.
///
/// # Errors
/// When the kernel refuses.
pub fn calibrate(source: &mut Source) -> Result<PerWaking> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let Some(napper) = Napper::start() else { break };
        let pid = napper.pid as u32;
        let ended = Cell::new(false);
        let mut note = |record: Record<'_>| {
            if let Record::End(head, end) = record {
                ended.set(ended.get() || head.tid == pid && end.exited);
                if head.tid == pid && end.counted {
                    rounds.push(per_waking(&end.totals));
                }
            }
        };
        match source {
            Source::Bpf(_) => {
                let (lost, wait_until) = (source.lost().threads, monotonic_ns() + LAST_SWITCH_NS);
                source.trace(&[pid])?;
                napper.nap();
                napper.end();
                // The sums come with its last switch, some moments after its parent knows of its end; or there is no room for them.
                loop {
                    source.drain(1, &mut note);
                    if ended.get() || source.lost().threads > lost || monotonic_ns() > wait_until {
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            Source::Perf(_) => {
                // What the kernel has counted can be read only while it lives, so a window of its own ends before that.
                let mut trace = PerfTrace::open(SMALL, &online_cpus(), Addresses::default())?;
                trace.trace(&[pid])?;
                napper.nap();
                trace.end(monotonic_ns() as u64);
                trace.drain(&mut note);
                napper.end();
            }
        }
    }
    Ok(PerWaking { run_ns: median(rounds.iter().map(|r| r.run_ns)), runq_ns: median(rounds.iter().map(|r| r.runq_ns)) })
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn per_waking(t: &Totals) -> PerWaking {
    let wakings = t.sleeps.max(1);
    let run = (t.user_ns + t.system_ns).abs_diff(t.stat_run_ns);
    let runq = (t.runq_wake_ns + t.runq_preempt_ns).abs_diff(t.stat_runq_ns);
    PerWaking { run_ns: run / wakings, runq_ns: runq / wakings }
}

/// A process that waits for a word, naps, answers, and ends when nobody listens.
struct Napper {
    pid: libc::pid_t,
    ours: libc::c_int,
}

impl Napper {
    fn start() -> Option<Napper> {
        let mut ends = [0; 2];
        // SAFETY: the array has room for both ends.
        if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) } != 0
        {
            return None;
        }
        let [ours, its] = ends;
        // SAFETY: the child makes system calls only, with its own variables, and never returns: nothing that another thread of this
        // process may hold (a lock, the allocator) is touched.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as said.
            unsafe {
                let mut word = 0u8;
                libc::close(ours);
                libc::read(its, (&raw mut word).cast(), 1);
                for _ in 0..NAPS {
                    let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP_NS };
                    libc::nanosleep(&raw const nap, std::ptr::null_mut());
                }
                libc::write(its, (&raw const word).cast(), 1);
                libc::read(its, (&raw mut word).cast(), 1);
                libc::_exit(0);
            }
        }
        // SAFETY: descriptors of this function.
        unsafe {
            libc::close(its);
            if pid < 0 {
                libc::close(ours);
                return None;
            }
        }
        Some(Napper { pid, ours })
    }

    /// Lets it nap, and waits until it has.
    fn nap(&self) {
        let mut word = 0u8;
        // SAFETY: a descriptor of this value, and a byte of this function.
        unsafe {
            libc::write(self.ours, (&raw const word).cast(), 1);
            libc::read(self.ours, (&raw mut word).cast(), 1);
        }
    }

    /// Waits for its end.
    fn end(self) {
        let mut status = 0;
        // SAFETY: the end of the pair and the child belong to this value.
        unsafe {
            libc::close(self.ours); // the read of the child ends
            libc::waitpid(self.pid, &raw mut status, 0);
        }
    }
}
