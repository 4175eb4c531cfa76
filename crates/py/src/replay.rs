//! Recovery of a data directory: after a crash, and of a base backup with archived log.

use std::path::PathBuf;

use leadline_datadir::{of_path, BlockId};
use leadline_errors::Kind;
use leadline_replay::{
    plan, recover, Follow, Options, Phase, RecoveryTarget, Report, Restorable, Restored, Source, Wish, Work,
};
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
    let options = Options { memory, threads };
    let work = if dry_run { plan } else { recover };
    reported(py, progress, |tell| work(&path, &options, tell))
}

/// Brings a base backup to the last checkpoint before a recovery target; with `dry_run` only tells what is to be done.
///
/// `archive`: a folder; or, with `command`, an empty one for what that brings. `target`: lsn, time, xid, name or end, with its value.
#[pyfunction]
#[pyo3(signature = (path, *, archive, command, target, value, inclusive, timeline, memory, threads, dry_run=false, progress=None))]
#[allow(clippy::too_many_arguments)] // by name only
pub(crate) fn restore<'py>(
    py: Python<'py>,
    path: PathBuf,
    archive: PathBuf,
    command: Option<String>,
    target: &str,
    value: &str,
    inclusive: bool,
    timeline: &str,
    memory: u64,
    threads: usize,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let usage = |message: String| Error(leadline_errors::Error::new(Kind::Usage, message));
    let goal = match target {
        "end" => Some(RecoveryTarget::End),
        "lsn" => value.parse().ok().map(|lsn| RecoveryTarget::Lsn { lsn, inclusive }),
        "time" => value.parse().ok().map(|time_us| RecoveryTarget::Time { time_us, inclusive }),
        "xid" => value.parse().ok().map(|xid| RecoveryTarget::Xid { xid, inclusive }),
        "name" => Some(RecoveryTarget::Name(value.to_owned())),
        _ => None,
    };
    let goal = goal.ok_or_else(|| usage(format!("{value} is not a recovery target of the kind {target}")))?;
    let follow = match timeline {
        "latest" => Some(Follow::Latest),
        "current" => Some(Follow::Current),
        number => number.parse().ok().filter(|n| *n > 0).map(Follow::Timeline),
    };
    let follow = follow.ok_or_else(|| usage(format!("{timeline} is not a timeline: latest, current or a number")))?;
    let source = match command {
        Some(command) => Source::Command { command, folder: archive },
        None => Source::Folder(archive),
    };
    let (options, wish) = (Options { memory, threads }, Restorable { source, goal, follow });
    reported(py, progress, |tell| leadline_replay::restore(&path, &wish, &options, dry_run, tell))
}

/// Does the work without holding the interpreter, and gives its report.
fn reported<'py>(
    py: Python<'py>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(Phase, u64, u64) -> bool) -> leadline_errors::Result<Report> + Send,
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
    let report = py.detach(|| work(&mut tell));
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
    let at = parsed(&lsn)?;
    let (relation, name) = of_path(&path.join(&file));
    if relation.rel == 0 || relation.spc == 0 {
        let message = format!("{} is not the file of a relation, such as base/5/16384", file.display());
        return Err(usage(message).into());
    }
    let page = BlockId { relation, fork: name.fork as u32, block };
    let found = reading(py, progress, |tell| leadline_replay::page_at(&path, page, at, threads, tell))?;
    let out = PyDict::new(py);
    out.set_item("bytes", PyBytes::new(py, &found.bytes))?;
    out.set_item("image_lsn", found.image.to_string())?;
    out.set_item("last_lsn", found.last.to_string())?;
    out.set_item("applied", found.applied)?;
    Ok(out)
}

/// Writes one relation file, or one block of it, as the records that begin before an LSN leave it.
#[pyfunction]
#[pyo3(signature = (file, wal, lsn, output, *, block=None, threads, progress=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn relation_at<'py>(
    py: Python<'py>,
    file: PathBuf,
    wal: PathBuf,
    lsn: String,
    output: PathBuf,
    block: Option<u32>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let wish = Wish { file: &file, wal: &wal, block, to: parsed(&lsn)?, output: &output, threads };
    let made = reading(py, progress, |tell| leadline_replay::relation_at(&wish, tell))?;
    let out = PyDict::new(py);
    out.set_item("from_lsn", made.from.to_string())?;
    out.set_item("last_lsn", (made.last.0 != 0).then(|| made.last.to_string()))?;
    out.set_item("blocks", made.blocks)?;
    out.set_item("applied", made.applied)?;
    out.set_item("older", made.older)?;
    Ok(out)
}

fn usage(message: String) -> Error {
    Error(leadline_errors::Error::new(Kind::Usage, message))
}

fn parsed(lsn: &str) -> PyResult<Lsn> {
    Ok(lsn.parse().map_err(|()| usage(format!("{lsn} is not an LSN, such as 16/B374D848")))?)
}

/// Work that tells how many bytes of the log it has read; what `progress` raises ends it.
fn reading<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> leadline_errors::Result<T> + Send,
) -> PyResult<T> {
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
    let found = py.detach(|| work(&mut tell));
    match failed {
        Some(failed) => Err(failed),
        None => Ok(found.map_err(Error::from)?),
    }
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
    out.set_item("wal_bytes", report.end.0.saturating_sub(report.redo.0))?;
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
    set_work(&out, &report.work)?;
    let relations = PyList::empty(py);
    for ((relation, fork), work) in &report.forks_work {
        let row = PyDict::new(py);
        row.set_item("spcnode", relation.spc)?;
        row.set_item("dbnode", relation.db)?;
        row.set_item("relfilenode", relation.rel)?;
        row.set_item("fork", fork)?;
        set_work(&row, work)?;
        relations.append(row)?;
    }
    out.set_item("relations", relations)?;
    let threads = PyList::empty(py);
    for time in &report.threads {
        threads.append((time.phase.as_str(), time.wall_ns, time.cpu_ns))?;
    }
    out.set_item("threads", threads)?;
    out.set_item("rounds", report.rounds)?;
    out.set_item("spilled_bytes", report.spilled_bytes)?;
    out.set_item("checkpoint_lsn", lsn(report.checkpoint))?;
    out.set_item("backup", report.restored.as_ref().map(|restored| restored_dict(py, restored)).transpose()?)?;
    let seconds = PyDict::new(py);
    for (phase, took) in &report.seconds {
        seconds.set_item(phase.as_str(), took)?;
    }
    out.set_item("seconds", seconds)?;
    Ok(out)
}

fn set_work(out: &Bound<'_, PyDict>, work: &Work) -> PyResult<()> {
    out.set_item("pages", work.pages)?;
    out.set_item("pages_written", work.written)?;
    out.set_item("pages_read", work.read)?;
    out.set_item("applied", work.applied)?;
    out.set_item("restored", work.restored)?;
    out.set_item("superseded", work.superseded)?;
    out.set_item("removed", work.removed)?;
    out.set_item("older", work.older)
}

fn restored_dict<'py>(py: Python<'py>, restored: &Restored) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let Restored { consistent, restartpoint, redo, target, timeline } = restored;
    out.set_item("consistent_lsn", consistent.to_string())?;
    out.set_item("restartpoint_lsn", (restartpoint.0 != 0).then(|| restartpoint.to_string()))?;
    out.set_item("redo_lsn", redo.to_string())?;
    out.set_item("target_lsn", target.to_string())?;
    out.set_item("left_bytes", target.0.saturating_sub(redo.0))?;
    out.set_item("timeline", timeline)?;
    Ok(out)
}
