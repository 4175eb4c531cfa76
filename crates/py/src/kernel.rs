//! `KernelProbe`: the trace of threads by `leadline_kernel`.

use crate::beat::Runner;
use crate::error::Error;
use leadline_kernel::programs::Programs;
use leadline_kernel::{Counts, KernelProbe as KernelWork, Options, PerWaking};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// How often the buffer is emptied.
const DRAINS_HZ: f64 = 20.0;
/// Bytes of a ring that nothing is put into.
const SMALLEST_RING: u32 = 4096;

/// Loads the programs and drops them again: raises what the kernel says against them.
#[pyfunction]
pub(crate) fn check(py: Python<'_>) -> Result<(), Error> {
    Ok(py.detach(|| Programs::load(Options { ring_bytes: SMALLEST_RING, ..Options::default() })).map(drop)?)
}

/// Threads of processes, traced by BPF.
#[pyclass(module = "leadline._core.kernel")]
pub(crate) struct KernelProbe {
    runner: Runner,
    work: Option<KernelWork>,
    counts: Arc<Counts>,
    per_waking: PerWaking,
}

#[pymethods]
impl KernelProbe {
    #[new]
    #[pyo3(signature = (capture_dir, pids, *, ring_bytes=None, stack_from_ns=None, flush_interval_s=5.0, growing_segments=true))]
    fn new(
        py: Python<'_>,
        capture_dir: PathBuf,
        pids: Vec<u32>,
        ring_bytes: Option<u32>,
        stack_from_ns: Option<u64>,
        flush_interval_s: f64,
        growing_segments: bool,
    ) -> Result<Self, Error> {
        let default = Options::default();
        let options = Options {
            ring_bytes: ring_bytes.unwrap_or(default.ring_bytes),
            stack_from_ns: stack_from_ns.unwrap_or(default.stack_from_ns),
            ..default
        };
        let work = py.detach(|| KernelWork::open(&pids, options))?;
        let (counts, per_waking) = (work.counts(), work.per_waking());
        let runner = Runner { capture_dir, rate_hz: DRAINS_HZ, flush_interval_s, growing_segments, beat: None };
        Ok(KernelProbe { runner, work: Some(work), counts, per_waking })
    }

    fn start(&mut self) -> Result<(), Error> {
        let Some(mut work) = self.work.take() else { return Err(Error::closed("the kernel probe")) };
        work.begin()?;
        self.runner.start("leadline-kernel", work)
    }

    fn per_waking(&self) -> (u64, u64) {
        (self.per_waking.run_ns, self.per_waking.runq_ns)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = self.runner.status(py)?;
        out.set_item("records", self.counts.records.load(Relaxed))?;
        out.set_item("lost", self.counts.lost.load(Relaxed))?;
        Ok(out)
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = self.runner.stop(py)?;
        let loss = PyDict::new(py);
        loss.set_item("records", self.counts.records.load(Relaxed))?;
        loss.set_item("records_lost", self.counts.lost.load(Relaxed))?;
        loss.set_item("requests_lost", self.counts.lost_block_ios.load(Relaxed))?;
        loss.set_item("stacks_lost", self.counts.lost_stacks.load(Relaxed))?;
        out.set_item("loss", loss)?;
        Ok(out)
    }
}
