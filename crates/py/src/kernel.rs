//! `KernelProbe`: the trace of threads by `leadline_kernel`.

use crate::dict::joined;
use crate::error::Error;
use crate::probes::Runner;
use leadline_kernel::{Counts, KernelProbe as KernelWork, Options, PerWaking, Tier};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// How often the buffer is emptied.
const DRAINS_HZ: f64 = 20.0;

/// Asks the kernel for what a tier needs and gives it back: raises what the kernel says against it.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, tier: &str) -> Result<(), Error> {
    let tier = tier_of(tier)?;
    Ok(py.detach(|| tier.check())?)
}

fn tier_of(name: &str) -> Result<Tier, Error> {
    match name {
        "bpf" => Ok(Tier::Bpf),
        "perf" => Ok(Tier::Perf),
        _ => Err(leadline_errors::Error::new(leadline_errors::Kind::Usage, format!("no tier named {name}")).into()),
    }
}

/// Threads of processes, traced by the kernel.
#[pyclass(frozen, module = "leadline._core.kernel")]
pub(crate) struct KernelProbe {
    runner: Runner,
    work: Mutex<Option<KernelWork>>,
    counts: Arc<Counts>,
    per_waking: PerWaking,
}

#[pymethods]
impl KernelProbe {
    #[new]
    #[pyo3(signature = (capture_dir, pids, *, tier="bpf", ring_bytes=None, stack_from_ns=None, events=true, retransmits=false, budget=None, flush_interval_s=5.0, growing_segments=true))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        capture_dir: PathBuf,
        pids: Vec<u32>,
        tier: &str,
        ring_bytes: Option<u32>,
        stack_from_ns: Option<u64>,
        events: bool,
        retransmits: bool,
        budget: Option<f64>,
        flush_interval_s: f64,
        growing_segments: bool,
    ) -> Result<Self, Error> {
        let default = Options::default();
        let options = Options {
            ring_bytes: ring_bytes.unwrap_or(default.ring_bytes),
            stack_from_ns: stack_from_ns.unwrap_or(default.stack_from_ns),
            events,
            retransmits,
            budget: budget.unwrap_or(default.budget),
            ..default
        };
        let tier = tier_of(tier)?;
        let work = py.detach(|| KernelWork::open(&pids, tier, options))?;
        let (counts, per_waking) = (work.counts(), work.per_waking());
        let runner =
            Runner { capture_dir, rate_hz: DRAINS_HZ, flush_interval_s, growing_segments, ticker: OnceLock::new() };
        Ok(KernelProbe { runner, work: Mutex::new(Some(work)), counts, per_waking })
    }

    fn start(&self) -> Result<(), Error> {
        let Some(mut work) = self.work.lock().take() else { return Err(Error::closed("the kernel probe")) };
        work.begin()?;
        self.runner.start("leadline-kernel", work)
    }

    fn per_waking(&self) -> (u64, u64) {
        (self.per_waking.run_ns, self.per_waking.runq_ns)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = Drained { records: self.counts.records.load(Relaxed), lost: self.counts.lost.load(Relaxed) };
        joined(py, [self.runner.status()?.into_pyobject(py)?, counts.into_pyobject(py)?])
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.counts.clone();
        self.runner.stop(py, |_| Loss {
            records: counts.records.load(Relaxed),
            records_lost: counts.lost.load(Relaxed),
            requests_lost: counts.lost_block_ios.load(Relaxed),
            retransmits_lost: counts.lost_retransmits.load(Relaxed),
            times_less_recorded: counts.steps.load(Relaxed),
            threads_lost: counts.lost_threads.load(Relaxed),
            stacks_lost: counts.lost_stacks.load(Relaxed),
        })
    }
}

/// So far.
#[derive(IntoPyObject)]
struct Drained {
    records: u64,
    lost: u64,
}

#[derive(IntoPyObject)]
struct Loss {
    records: u64,
    records_lost: u64,
    requests_lost: u64,
    retransmits_lost: u64,
    times_less_recorded: u64,
    threads_lost: u64,
    stacks_lost: u64,
}
