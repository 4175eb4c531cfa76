//! One dictionary of several structs: what `derive(IntoPyObject)` does not do.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The keys of all parts, in their order. What a later part says of a key counts.
pub(crate) fn joined<'py, const N: usize>(
    py: Python<'py>,
    parts: [Bound<'py, PyDict>; N],
) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    parts.iter().try_for_each(|part| out.update(part.as_mapping()))?;
    Ok(out)
}
