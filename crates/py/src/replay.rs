//! Recovery of a data directory: after a crash, and of a base backup with archived log.

use std::path::PathBuf;

use leadline_datadir::{of_path, BlockId};
use leadline_errors::Kind;
use leadline_replay::{
    plan, recover, Follow, Options, Phase, RecoveryTarget, Report, Restorable, Restored, Source, Wish, Work,
};
use leadline_wal::{rmgr, Lsn};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::dict::joined;
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
    let wanted = match target {
        "end" => Some(RecoveryTarget::End),
        "lsn" => value.parse().ok().map(|lsn| RecoveryTarget::Lsn { lsn, inclusive }),
        "time" => value.parse().ok().map(|time_us| RecoveryTarget::Time { time_us, inclusive }),
        "xid" => value.parse().ok().map(|xid| RecoveryTarget::Xid { xid, inclusive }),
        "name" => Some(RecoveryTarget::Name(value.to_owned())),
        _ => None,
    };
    let wanted = wanted.ok_or_else(|| usage(format!("{value} is not a recovery target of the kind {target}")))?;
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
    let (options, wish) = (Options { memory, threads }, Restorable { source, target: wanted, follow });
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
pub(crate) fn page_at(
    py: Python<'_>,
    path: PathBuf,
    file: PathBuf,
    block: u32,
    lsn: String,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<PageAt> {
    let at = parsed(&lsn)?;
    let (relation, name) = of_path(&path.join(&file));
    if relation.rel == 0 || relation.spc == 0 {
        let message = format!("{} is not the file of a relation, such as base/5/16384", file.display());
        return Err(usage(message).into());
    }
    let page = BlockId { relation, fork: name.fork as u32, block };
    let found = reading(py, progress, |tell| leadline_replay::page_at(&path, page, at, threads, tell))?;
    Ok(PageAt {
        bytes: found.bytes,
        image_lsn: found.image.to_string(),
        last_lsn: found.last.to_string(),
        applied: found.applied,
    })
}

#[derive(IntoPyObject)]
pub(crate) struct PageAt {
    bytes: Vec<u8>,
    image_lsn: String,
    last_lsn: String,
    applied: u64,
}

/// Writes one relation file, or one block of it, as the records that begin before an LSN leave it.
#[pyfunction]
#[pyo3(signature = (file, wal, lsn, output, *, block=None, threads, progress=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn relation_at(
    py: Python<'_>,
    file: PathBuf,
    wal: PathBuf,
    lsn: String,
    output: PathBuf,
    block: Option<u32>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<RelationAt> {
    let wish = Wish { file: &file, wal: &wal, block, to: parsed(&lsn)?, output: &output, threads };
    let made = reading(py, progress, |tell| leadline_replay::relation_at(&wish, tell))?;
    Ok(RelationAt {
        from_lsn: made.from.to_string(),
        last_lsn: text_of(made.last),
        blocks: made.blocks,
        applied: made.applied,
        older: made.older,
    })
}

#[derive(IntoPyObject)]
pub(crate) struct RelationAt {
    from_lsn: String,
    last_lsn: Option<String>,
    blocks: u32,
    applied: u64,
    older: u64,
}

/// None of an LSN that is not known.
fn text_of(lsn: Lsn) -> Option<String> {
    (lsn.0 != 0).then(|| lsn.to_string())
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
    let kind = |(kind, sum): (&u16, &leadline_replay::Sum)| {
        let (rmgr, record_type) = rmgr::type_names(report.major, *kind);
        let (records, record_bytes) = (sum.records, sum.bytes);
        KindSum { rmgr, record_type, records, record_bytes, fpi: sum.images, fpi_bytes: sum.image_bytes }
    };
    let read = WalRead {
        is_clean: report.is_clean,
        major: report.major,
        redo_lsn: text_of(report.redo),
        end_lsn: text_of(report.end),
        end_reason: report.end_reason.clone(),
        timeline: report.timeline,
        wal_bytes: report.end.0.saturating_sub(report.redo.0),
        kinds: report.sums.iter().map(kind).collect(),
        changes: report.changes,
        kept_bytes: report.kept_bytes,
        commits: report.commits,
        aborts: report.aborts,
        prepared: report.prepared,
        files: report.forks,
        dropped_relations: report.dropped_relations,
    };
    let relation = |((relation, fork), work): (&(leadline_datadir::RelFile, u8), &Work)| {
        let fork = Fork { spcnode: relation.spc, dbnode: relation.db, relfilenode: relation.rel, fork: *fork };
        joined(py, [fork.into_pyobject(py)?, PagesWork::of(work).into_pyobject(py)?])
    };
    let written = Written {
        relations: report.forks_work.iter().map(relation).collect::<PyResult<_>>()?,
        threads: report.threads.iter().map(|time| (time.phase.as_str(), time.wall_ns, time.cpu_ns)).collect(),
        rounds: report.rounds,
        spilled_bytes: report.spilled_bytes,
        checkpoint_lsn: text_of(report.checkpoint),
        backup: report.restored.as_ref().map(Backup::of),
        seconds: report.seconds.iter().map(|(phase, took)| (phase.as_str(), *took)).into_py_dict(py)?,
    };
    let work = PagesWork::of(&report.work);
    joined(py, [read.into_pyobject(py)?, work.into_pyobject(py)?, written.into_pyobject(py)?])
}

/// What the WAL has.
#[derive(IntoPyObject)]
struct WalRead {
    is_clean: bool,
    major: u8,
    redo_lsn: Option<String>,
    end_lsn: Option<String>,
    end_reason: String,
    timeline: u32,
    wal_bytes: u64,
    kinds: Vec<KindSum>,
    changes: u64,
    kept_bytes: u64,
    commits: u64,
    aborts: u64,
    prepared: u64,
    files: u64,
    dropped_relations: u64,
}

#[derive(IntoPyObject)]
struct KindSum {
    rmgr: String,
    #[pyo3(item("type"))]
    record_type: String,
    records: u64,
    record_bytes: u64,
    fpi: u64,
    fpi_bytes: u64,
}

/// What was done to pages.
#[derive(IntoPyObject)]
struct PagesWork {
    pages: u64,
    pages_written: u64,
    pages_read: u64,
    applied: u64,
    restored: u64,
    superseded: u64,
    removed: u64,
    older: u64,
}

impl PagesWork {
    fn of(work: &Work) -> PagesWork {
        let Work { pages, written, read, applied, restored, superseded, removed, older } = *work;
        PagesWork { pages, pages_written: written, pages_read: read, applied, restored, superseded, removed, older }
    }
}

#[derive(IntoPyObject)]
struct Fork {
    spcnode: u32,
    dbnode: u32,
    relfilenode: u32,
    fork: u8,
}

/// Phase, and nanoseconds by the clock and on a CPU.
type ThreadTime = (&'static str, u64, Option<u64>);

/// How it was written.
#[derive(IntoPyObject)]
struct Written<'py> {
    relations: Vec<Bound<'py, PyDict>>,
    threads: Vec<ThreadTime>,
    rounds: u64,
    spilled_bytes: u64,
    checkpoint_lsn: Option<String>,
    backup: Option<Backup>,
    seconds: Bound<'py, PyDict>,
}

/// How far a base backup was brought.
#[derive(IntoPyObject)]
struct Backup {
    consistent_lsn: String,
    restartpoint_lsn: Option<String>,
    redo_lsn: String,
    target_lsn: String,
    left_bytes: u64,
    timeline: u32,
}

impl Backup {
    fn of(restored: &Restored) -> Backup {
        let Restored { consistent, restartpoint, redo, target, timeline } = restored;
        Backup {
            consistent_lsn: consistent.to_string(),
            restartpoint_lsn: text_of(*restartpoint),
            redo_lsn: redo.to_string(),
            target_lsn: target.to_string(),
            left_bytes: target.0.saturating_sub(redo.0),
            timeline: *timeline,
        }
    }
}
