//! The two clocks of a capture, read as one.

use leadline_clockwork::ClockReading;
use pyo3::prelude::*;

/// (CLOCK_MONOTONIC ns, CLOCK_REALTIME ns) of the same moment.
#[pyfunction]
pub(crate) fn clock() -> (i64, i64) {
    let now = ClockReading::now();
    (now.monotonic_ns, now.realtime_ns)
}
