//! `run`: a command followed by `leadline_follow`.

use crate::error::Error;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::time::Duration;

/// Runs a command to its end and gives what was seen of its processes, as JSON.
#[pyfunction]
#[pyo3(signature = (command, *, linger_s=1.0))]
pub(crate) fn run(py: Python<'_>, command: Vec<OsString>, linger_s: f64) -> Result<String, Error> {
    let linger = Duration::from_secs_f64(linger_s.clamp(0.0, 86_400.0));
    Ok(py.detach(|| leadline_follow::run(command, linger))?)
}
