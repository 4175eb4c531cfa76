//! `leadline._core`: arguments in, the GIL released, errors out as `LeadlineError`. Nothing is decided here.
//!
//! The Python side of these signatures is `python/leadline/_core.pyi`.

use pyo3::prelude::*;

mod clock;
mod error;
mod recorder;
mod statement;
mod table_writer;

/// The compiled part of leadline.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<table_writer::TableWriter>()?;
    module.add_class::<recorder::Recorder>()?;
    module.add_function(wrap_pyfunction!(statement::normalise, module)?)?;
    module.add_function(wrap_pyfunction!(clock::clock, module)?)?;
    Ok(())
}
