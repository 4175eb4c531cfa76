//! `exchange`: a file in the place of another one, in one step.

use pyo3::prelude::*;
use std::path::PathBuf;

/// Lets two files change their names; without a second file, the first one gets its name.
#[pyfunction]
pub(crate) fn exchange(path: PathBuf, place: PathBuf) -> PyResult<()> {
    Ok(leadline_capture::exchange(&path, &place)?)
}
