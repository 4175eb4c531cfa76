//! `leadline._core`: arguments in, the GIL released, errors out as `LeadlineError`. Nothing is decided here.
//!
//! Each submodule is what Python needs of one subject. The Python side of these signatures is `python/leadline/_core/*.pyi`.

use pyo3::prelude::*;

mod backup;
mod calltrace;
mod catalog_names;
mod clock;
mod data_dir;
mod dict;
mod error;
mod follow;
mod informix;
mod interrupts;
mod kernel;
mod load;
mod needed;
mod net;
mod page;
mod page_plan;
mod page_values;
mod pending;
mod pipeline;
mod probes;
mod recent;
mod recorder;
mod redo;
mod rename;
mod replay;
mod rows;
mod statement;
mod storage;
mod table_files;
mod table_writer;
mod verify;
mod wal;
mod wire;

/// The compiled part of leadline.
#[pymodule]
fn _core(core: &Bound<'_, PyModule>) -> PyResult<()> {
    core.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    submodule(core, "backups", |module| {
        module.add_function(wrap_pyfunction!(backup::mount, module)?)?;
        module.add_class::<backup::BackupFiles>()?;
        module.add_class::<backup::ArchivedWal>()
    })?;
    submodule(core, "calltrace", |module| {
        module.add("FORMATS", calltrace::formats())?;
        module.add_function(wrap_pyfunction!(calltrace::fold, module)?)
    })?;
    submodule(core, "capture", |module| {
        module.add_class::<table_writer::TableWriter>()?;
        module.add_class::<probes::OverheadProbe>()?;
        module.add_function(wrap_pyfunction!(clock::clock, module)?)?;
        module.add_function(wrap_pyfunction!(table_writer::define_table, module)?)?;
        module.add_function(wrap_pyfunction!(rename::exchange, module)?)?;
        module.add_function(wrap_pyfunction!(table_files::parse_toml, module)?)
    })?;
    submodule(core, "catalog", |module| {
        module.add_class::<catalog_names::CatalogNames>()?;
        module.add_function(wrap_pyfunction!(rows::file_faults, module)?)?;
        module.add_function(wrap_pyfunction!(rows::relation_names, module)?)
    })?;
    submodule(core, "datadir", |module| {
        module.add("DEFAULT_BLOCK_SIZE", leadline_datadir::DEFAULT_BLOCK_SIZE)?;
        module.add("MAJORS", (*leadline_datadir::MAJORS.start(), *leadline_datadir::MAJORS.end()))?;
        module.add_function(wrap_pyfunction!(page::block_sizes, module)?)?;
        module.add_function(wrap_pyfunction!(data_dir::condition, module)?)
    })?;
    submodule(core, "follow", |module| module.add_function(wrap_pyfunction!(follow::run, module)?))?;
    submodule(core, "host", |module| {
        module.add_class::<probes::HostProbe>()?;
        module.add_class::<probes::SocketsProbe>()
    })?;
    submodule(core, "kernel", |module| {
        module.add_class::<kernel::KernelProbe>()?;
        module.add_function(wrap_pyfunction!(kernel::check, module)?)
    })?;
    submodule(core, "load", |module| {
        module.add_function(wrap_pyfunction!(load::builtin, module)?)?;
        module.add_function(wrap_pyfunction!(load::check, module)?)?;
        module.add_function(wrap_pyfunction!(load::run, module)?)?;
        module.add_function(wrap_pyfunction!(load::tpcc_numbers, module)?)?;
        module.add_function(wrap_pyfunction!(load::tpcc_rows, module)?)
    })?;
    submodule(core, "net", |module| {
        module.add_class::<net::Delay>()?;
        module.add_class::<net::Echo>()?;
        module.add_class::<net::Fetcher>()?;
        module.add_class::<net::Login>()?;
        module.add_function(wrap_pyfunction!(net::clock_cost, module)?)?;
        module.add_function(wrap_pyfunction!(net::compare, module)?)?;
        module.add_function(wrap_pyfunction!(net::dbping, module)?)?;
        module.add_function(wrap_pyfunction!(net::postgres_login, module)?)?;
        module.add_function(wrap_pyfunction!(net::rtt, module)?)
    })?;
    submodule(core, "pages", |module| {
        module.add_class::<page_plan::PagePlan>()?;
        module.add_class::<page::PageRun>()?;
        module.add_class::<page_values::PageValues>()?;
        module.add_class::<verify::RelationRun>()?;
        module.add_function(wrap_pyfunction!(page::page_read, module)?)?;
        module.add_function(wrap_pyfunction!(page::backups_in, module)?)?;
        module.add_function(wrap_pyfunction!(page::backup_list, module)?)?;
        module.add_function(wrap_pyfunction!(informix::informix_page_type, module)?)
    })?;
    submodule(core, "pending", |module| {
        module.add("REASONS", pending::reasons())?;
        module.add_class::<pending::OldPages>()?;
        module.add_function(wrap_pyfunction!(pending::pending_scan, module)?)
    })?;
    submodule(core, "recorder", |module| {
        module.add_class::<recent::Recent>()?;
        module.add_class::<pipeline::PipelineMemory>()?;
        module.add_class::<recorder::Recorder>()?;
        module.add_function(wrap_pyfunction!(statement::normalise, module)?)
    })?;
    submodule(core, "redo", |module| module.add_function(wrap_pyfunction!(redo::check, module)?))?;
    submodule(core, "replay", |module| {
        module.add_function(wrap_pyfunction!(replay::page_at, module)?)?;
        module.add_function(wrap_pyfunction!(replay::relation_at, module)?)?;
        module.add_function(wrap_pyfunction!(replay::restore, module)?)?;
        module.add_function(wrap_pyfunction!(replay::run, module)?)
    })?;
    submodule(core, "rows", |module| {
        module.add_class::<rows::RowScan>()?;
        module.add_class::<rows::Tables>()?;
        module.add_class::<rows::ValueTexts>()?;
        module.add_function(wrap_pyfunction!(rows::built_in_types, module)?)?;
        module.add_function(wrap_pyfunction!(rows::database_names, module)?)?;
        module.add_function(wrap_pyfunction!(needed::files_of_catalogs, module)?)?;
        module.add_function(wrap_pyfunction!(needed::files_of_database, module)?)?;
        module.add_function(wrap_pyfunction!(needed::files_of_table, module)?)
    })?;
    submodule(core, "storage", |module| {
        module.add_function(wrap_pyfunction!(storage::layout, module)?)?;
        module.add_function(wrap_pyfunction!(storage::loads, module)?)?;
        module.add_function(wrap_pyfunction!(storage::replay, module)?)?;
        module.add_function(wrap_pyfunction!(storage::simulate, module)?)
    })?;
    submodule(core, "wal", |module| {
        module.add_class::<wal::History>()?;
        module.add_class::<wal::WalLog>()
    })?;
    submodule(core, "wire", |module| {
        module.add_class::<wire::Sniffer>()?;
        module.add_function(wrap_pyfunction!(wire::read_file, module)?)?;
        module.add_function(wrap_pyfunction!(wire::read_files, module)?)
    })
}

/// Adds a submodule. `import` looks among the loaded modules only: there is no file of that name.
fn submodule(
    core: &Bound<'_, PyModule>,
    name: &str,
    fill: impl FnOnce(&Bound<'_, PyModule>) -> PyResult<()>,
) -> PyResult<()> {
    let full = format!("leadline._core.{name}");
    let module = PyModule::new(core.py(), &full)?;
    fill(&module)?;
    core.add(name, &module)?;
    core.py().import("sys")?.getattr("modules")?.set_item(full, module)
}
