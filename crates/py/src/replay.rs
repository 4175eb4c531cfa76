//! Crash recovery of a data directory.

use std::path::PathBuf;

use leadline_datadir::{of_path, BlockId};
use leadline_errors::Kind;
use leadline_replay::{plan, recover, Options, Phase, Report};
use leadline_wal::{rmgr, Lsn};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::error::Error;

/// Brings a crashed data directory to the end of its log; with `dry_run` only tells what is to be done.
///
/// `progress` gets the phase, how much of it is done, and of how much; what it raises ends the work.
#[pyfunction]
#[pyo3(signature = (path, *, memory, threads, dry_run=false, progress=None))]
pub(crate) fn run<'py>(
    py: Python<'py>,
    path: PathBuf,
    memory: u64,
    threads: usize,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut failed: Option<PyErr> = None;
    let mut tell = |phase: Phase, done: u64, total: u64| {
        let call = |py: Python<'_>| -> PyResult<()> {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |c| c.call1(py, (phase.as_str(), done, total)).map(|_| ()))
        };
        if let Err(e) = Python::attach(call) {
            failed.get_or_insert(e);
        }
        failed.is_none()
    };
    let options = Options { memory, threads };
    let work = if dry_run { plan } else { recover };
    let report = py.detach(|| work(&path, &options, &mut tell));
    match (failed, report) {
        // What was interrupted may have ended well all the same.
        (Some(failed), Err(_)) => Err(failed),
        (_, report) => report_dict(py, &report.map_err(Error::from)?),
    }
}

/// One page as the records that begin before an LSN leave it.
///
/// `file` is the file of the relation, as `pg_relation_filepath` prints it.
#[pyfunction]
#[pyo3(signature = (path, file, block, lsn, *, threads, progress=None))]
pub(crate) fn page_at<'py>(
    py: Python<'py>,
    path: PathBuf,
    file: PathBuf,
    block: u32,
    lsn: String,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let usage = |message: String| Error(leadline_errors::Error::new(Kind::Usage, message));
    let at: Lsn = lsn.parse().map_err(|()| usage(format!("{lsn} is not an LSN, such as 16/B374D848")))?;
    let (relation, name) = of_path(&path.join(&file));
    if relation.rel == 0 || relation.spc == 0 {
        let message = format!("{} is not the file of a relation, such as base/5/16384", file.display());
        return Err(usage(message).into());
    }
    let page = BlockId { relation, fork: name.fork as u32, block };
    let mut failed: Option<PyErr> = None;
    let mut tell = |done: u64| {
        let call = |py: Python<'_>| -> PyResult<()> {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |c| c.call1(py, (done,)).map(|_| ()))
        };
        if let Err(e) = Python::attach(call) {
            failed.get_or_insert(e);
        }
        failed.is_none()
    };
    let found = py.detach(|| leadline_replay::page_at(&path, page, at, threads, &mut tell));
    if let Some(failed) = failed {
        return Err(failed);
    }
    let found = found.map_err(Error::from)?;
    let out = PyDict::new(py);
    out.set_item("bytes", PyBytes::new(py, &found.bytes))?;
    out.set_item("image_lsn", found.image.to_string())?;
    out.set_item("last_lsn", found.last.to_string())?;
    out.set_item("applied", found.applied)?;
    Ok(out)
}

fn report_dict<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let lsn = |lsn: Lsn| (lsn.0 != 0).then(|| lsn.to_string());
    out.set_item("is_clean", report.is_clean)?;
    out.set_item("major", report.major)?;
    out.set_item("redo_lsn", lsn(report.redo))?;
    out.set_item("end_lsn", lsn(report.end))?;
    out.set_item("end_reason", &report.end_reason)?;
    out.set_item("timeline", report.timeline)?;
    out.set_item("wal_bytes", report.end.0 - report.redo.0)?;
    let kinds = PyList::empty(py);
    for (kind, sum) in &report.sums {
        let (rmgr, name) = rmgr::type_names(report.major, *kind);
        let row = PyDict::new(py);
        row.set_item("rmgr", rmgr)?;
        row.set_item("type", name)?;
        row.set_item("records", sum.records)?;
        row.set_item("record_bytes", sum.bytes)?;
        row.set_item("fpi", sum.images)?;
        row.set_item("fpi_bytes", sum.image_bytes)?;
        kinds.append(row)?;
    }
    out.set_item("kinds", kinds)?;
    out.set_item("changes", report.changes)?;
    out.set_item("kept_bytes", report.kept_bytes)?;
    out.set_item("commits", report.commits)?;
    out.set_item("aborts", report.aborts)?;
    out.set_item("prepared", report.prepared)?;
    out.set_item("files", report.forks)?;
    out.set_item("dropped_relations", report.dropped_relations)?;
    out.set_item("pages", report.work.pages)?;
    out.set_item("pages_written", report.work.written)?;
    out.set_item("pages_read", report.work.read)?;
    out.set_item("applied", report.work.applied)?;
    out.set_item("superseded", report.work.superseded)?;
    out.set_item("removed", report.work.removed)?;
    out.set_item("older", report.work.older)?;
    out.set_item("rounds", report.rounds)?;
    out.set_item("checkpoint_lsn", lsn(report.checkpoint))?;
    let seconds = PyDict::new(py);
    for (phase, took) in &report.seconds {
        seconds.set_item(phase.as_str(), took)?;
    }
    out.set_item("seconds", seconds)?;
    Ok(out)
}
