//! The two clocks of a capture, read as one.

use pyo3::prelude::*;

/// (CLOCK_MONOTONIC ns, CLOCK_REALTIME ns) of the same moment.
///
/// The wall clock is read between two readings of the other; of a few tries the tightest counts, so that being
/// interrupted in between does not show up as an offset.
#[pyfunction]
pub(crate) fn clock() -> PyResult<(i64, i64)> {
    let mut best: Option<(i64, i64, i64)> = None;
    for _ in 0..5 {
        let before = read(libc::CLOCK_MONOTONIC)?;
        let wall = read(libc::CLOCK_REALTIME)?;
        let width = read(libc::CLOCK_MONOTONIC)? - before;
        if best.is_none_or(|(narrowest, ..)| width < narrowest) {
            best = Some((width, before + width / 2, wall));
        }
    }
    let (_, monotonic, wall) = best.unwrap_or_default();
    Ok((monotonic, wall))
}

fn read(id: libc::clockid_t) -> std::io::Result<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec for the call to fill.
    if unsafe { libc::clock_gettime(id, &mut time) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}
