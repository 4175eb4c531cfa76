//! `leadline._core`: arguments in, the GIL released, errors out as `LeadlineError`. Nothing is decided here.
//!
//! The Python side of these signatures is `python/leadline/_core.pyi`.

use pyo3::prelude::*;

mod beat;
mod catalog_names;
mod clock;
mod data_dir;
mod error;
mod informix;
mod page;
mod page_values;
mod pending;
mod recorder;
mod rows;
mod statement;
mod table_writer;
mod wal;

/// The compiled part of leadline.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<table_writer::TableWriter>()?;
    module.add_class::<recorder::Recorder>()?;
    module.add_class::<beat::Keeper>()?;
    module.add_class::<beat::HostProbe>()?;
    module.add_class::<page::PageRun>()?;
    module.add_function(wrap_pyfunction!(page::page_read, module)?)?;
    module.add_function(wrap_pyfunction!(page::block_sizes, module)?)?;
    module.add("DEFAULT_BLOCK_SIZE", leadline_datadir::DEFAULT_BLOCK_SIZE)?;
    module.add("MAJORS", (*leadline_datadir::MAJORS.start(), *leadline_datadir::MAJORS.end()))?;
    module.add_class::<catalog_names::CatalogNames>()?;
    module.add_function(wrap_pyfunction!(data_dir::condition, module)?)?;
    module.add_function(wrap_pyfunction!(informix::informix_page, module)?)?;
    module.add_function(wrap_pyfunction!(informix::informix_page_type, module)?)?;
    module.add_class::<page_values::PageValues>()?;
    module.add_class::<rows::RowScan>()?;
    module.add_function(wrap_pyfunction!(rows::relation_names, module)?)?;
    module.add_function(wrap_pyfunction!(rows::file_faults, module)?)?;
    module.add("REASONS", pending::reasons())?;
    module.add_class::<pending::OldPages>()?;
    module.add_function(wrap_pyfunction!(pending::pending_scan, module)?)?;
    module.add_class::<wal::WalLog>()?;
    module.add_function(wrap_pyfunction!(statement::normalise, module)?)?;
    module.add_function(wrap_pyfunction!(clock::clock, module)?)?;
    Ok(())
}
