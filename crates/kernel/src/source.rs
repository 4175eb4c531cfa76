//! Where the records of a trace come from: the tier.

use leadline_errors::Result;

use crate::cpus::online_cpus;
use crate::governor::Detail;
use crate::perf::PerfTrace;
use crate::proc_threads::Addresses;
use crate::programs::{Options, Programs, SMALLEST_RING};
use crate::record::{read, Record};

/// A way to trace threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Programs of BPF, which add up in the kernel.
    Bpf,
    /// Events of perf, which are added up here.
    Perf,
}

impl Tier {
    /// The least that the tier can record.
    pub fn least(self) -> Detail {
        match self {
            Tier::Bpf => Detail::Sums,
            Tier::Perf => Detail::Events,
        }
    }

    /// Asks the kernel for what the tier needs, and gives it back.
    ///
    /// # Errors
    /// Kinds rights and unsupported: what the kernel says against it.
    pub fn check(self) -> Result<()> {
        match self {
            Tier::Bpf => Programs::load(Options { ring_bytes: SMALLEST_RING, ..Options::default() }).map(drop),
            Tier::Perf => {
                let options = Options { ring_bytes: SMALLEST_RING, ..Options::default() };
                let mut trace = PerfTrace::open(options, &online_cpus(), Addresses::default())?;
                trace.trace(&[std::process::id()])
            }
        }
    }
}

/// What there was no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Calls, stays off the CPU, open files, names of threads; on the tier perf any.
    pub events: u64,
    /// Stacks.
    pub stacks: u64,
    /// Requests of block devices.
    pub block_ios: u64,
    /// Sums of threads that ended.
    pub threads: u64,
    /// Segments of TCP that were sent again.
    pub retransmits: u64,
}

impl Lost {
    /// What was lost since `before`.
    pub fn since(self, before: Lost) -> Lost {
        Lost {
            events: self.events - before.events,
            stacks: self.stacks - before.stacks,
            block_ios: self.block_ios - before.block_ios,
            threads: self.threads - before.threads,
            retransmits: self.retransmits - before.retransmits,
        }
    }
}

/// A trace on one of the tiers. It is gone from the kernel when this is dropped.
pub(crate) enum Source {
    Bpf(Programs),
    Perf(PerfTrace),
}

impl Source {
    /// Attaches; nothing is traced until [`Source::trace`].
    ///
    /// # Errors
    /// Kinds rights and unsupported: the kernel refuses.
    pub fn open(tier: Tier, options: Options, cpus: &[u32]) -> Result<Source> {
        match tier {
            Tier::Bpf => {
                let mut programs = Programs::load(options)?;
                programs.attach(cpus)?;
                Ok(Source::Bpf(programs))
            }
            Tier::Perf => Ok(Source::Perf(PerfTrace::open(options, cpus, Addresses::read())?)),
        }
    }

    /// Traces these processes, their threads, and whatever they start from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn trace(&mut self, pids: &[u32]) -> Result<()> {
        match self {
            Source::Bpf(programs) => programs.trace(pids),
            Source::Perf(trace) => trace.trace(pids),
        }
    }

    /// Calls `each` with each record that is there, and with what comes meanwhile, up to so many times what the ring holds.
    pub fn drain(&mut self, rings: usize, mut each: impl FnMut(Record<'_>)) {
        match self {
            Source::Bpf(programs) => programs.drain(rings, |bytes| read(bytes, &mut each)),
            Source::Perf(trace) => trace.drain(each),
        }
    }

    /// Ends the window at `ts`, ns on CLOCK_MONOTONIC: each thread hands over its sums at the next [`Source::drain`]. How many had no room
    /// for them: once they have been read, this is to be called again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end(&mut self, ts: u64) -> Result<u64> {
        match self {
            Source::Bpf(programs) => programs.end(ts),
            Source::Perf(trace) => {
                trace.end(ts);
                Ok(0)
            }
        }
    }

    /// Records less from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn record(&mut self, detail: Detail) -> Result<()> {
        match self {
            Source::Bpf(programs) => programs.record(detail),
            Source::Perf(trace) => trace.record(detail),
        }
    }

    /// Interrupts of the host so far: CPU, kind, how many, ns.
    pub fn interrupts(&self) -> Vec<(u32, &'static str, u64, u64)> {
        match self {
            Source::Bpf(programs) => programs.interrupts(),
            Source::Perf(_) => Vec::new(),
        }
    }

    /// The last number that a thread got so far.
    pub fn newest(&self) -> u32 {
        match self {
            Source::Bpf(programs) => programs.newest(),
            Source::Perf(_) => 0,
        }
    }

    /// These threads have ended: no record of them comes any more.
    pub fn forget(&mut self, ended: &[u32]) {
        if let Source::Bpf(programs) = self {
            programs.forget(ended);
        }
    }

    /// What was lost so far.
    pub fn lost(&self) -> Lost {
        match self {
            Source::Bpf(programs) => {
                let [events, stacks, block_ios, threads, retransmits] = programs.lost();
                Lost { events, stacks, block_ios, threads, retransmits }
            }
            Source::Perf(trace) => Lost { events: trace.lost[0], stacks: trace.lost[1], ..Lost::default() },
        }
    }
}
