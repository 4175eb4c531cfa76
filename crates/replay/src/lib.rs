//! Crash recovery of a PostgreSQL data directory of 13 to 18, by page.
//!
//! The server replays its log record by record, in one process. Here the log is read once by several threads, its records are dealt
//! out by the pages they change, each page is taken from its last image over the records after it and is written once, in the order
//! of its file. Then a shutdown checkpoint is added to the log, and the server has nothing to replay.
//!
//! [`recover`] is all of it in order; [`plan`] ends before anything is written. What a record does to a page is `leadline-redo`'s
//! business.
//!
//! ```text
//! look    control file, locks, signals          refuse what cannot be done right
//! read    log from redo to its end              pieces.rs by page, state.rs all else; refuse
//! pages   folders, files removed and cut        folders.rs, lifetime.rs
//!         pages, in as many rounds as memory needs  apply.rs
//! sync    every file the log refers to
//! status  pg_xact, pg_multixact, pg_commit_ts, relation maps, prepared transactions, origins
//! hand over  checkpoint in the log, control file    handover.rs
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod apply;
mod control;
mod files;
mod folders;
mod handover;
mod lifetime;
mod lock;
mod look;
mod multixact;
mod origins;
mod page_at;
mod pieces;
mod scan;
mod slru;
mod state;
mod store;
mod xact;
mod xids;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use leadline_errors::Result;
use leadline_redo::Context;
use leadline_wal::{Log, Lsn, Range};

pub use apply::Work;
use control::ControlFile;
use files::Cluster;
use handover::{End, Tail};
pub use page_at::{page_at, PageAt};
pub use scan::Sum;
use scan::{How, Scanned};
use state::{Stage, State};

/// How to recover.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes that records kept for their pages may take.
    pub memory: u64,
    /// Threads that read the log and apply records.
    pub threads: usize,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    Read,
    Pages,
    Sync,
    Status,
    HandOver,
}

impl Phase {
    /// For programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Read => "read",
            Phase::Pages => "pages",
            Phase::Sync => "sync",
            Phase::Status => "status",
            Phase::HandOver => "hand over",
        }
    }
}

/// Told of progress: the phase, how much of it is done, and of how much. False ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(Phase, u64, u64) -> bool;

/// What the log holds and what was done.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Major version of the server.
    pub major: u8,
    /// The server was shut down in order: there is nothing to recover, and the rest is empty.
    pub is_clean: bool,
    /// From where on the log is replayed.
    pub redo: Lsn,
    /// Where it ends, and why no record follows.
    pub end: Lsn,
    /// That reason, in words.
    pub end_reason: String,
    /// Timeline of the log's end.
    pub timeline: u32,
    /// Records by kind.
    pub sums: BTreeMap<u16, Sum>,
    /// Changes of pages in all records.
    pub changes: u64,
    /// Bytes that records take when they are kept by page.
    pub kept_bytes: u64,
    /// Transactions committed, aborted, and prepared without an end.
    pub commits: u64,
    /// See `commits`.
    pub aborts: u64,
    /// See `commits`.
    pub prepared: u64,
    /// Forks of relations that the log changes and keeps.
    pub forks: u64,
    /// Relations that it removes.
    pub dropped_relations: u64,
    /// What was done to pages.
    pub work: Work,
    /// How often pages were written: 1 when memory was enough.
    pub rounds: u64,
    /// Where the added checkpoint begins; 0 when nothing was written.
    pub checkpoint: Lsn,
    /// Seconds that each phase took.
    pub seconds: Vec<(Phase, f64)>,
}

/// All that is known once the log was read.
struct Read {
    cluster: Cluster,
    control: ControlFile,
    context: Context,
    log: Arc<Log>,
    range: Range,
    state: State,
    scanned: Scanned,
    end: End,
    report: Report,
}

/// Reads the log of a crashed server, and tells what recovery would do. Nothing is written.
///
/// # Errors
/// What cannot be recovered here is refused, with the reason.
pub fn plan(root: &Path, options: &Options, progress: Progress<'_>) -> Result<Report> {
    let Some(read) = read(root, options, 0, progress)? else {
        return Ok(Report { is_clean: true, ..Report::default() });
    };
    Ok(read.report)
}

/// Brings a data directory to the end of its log and hands it to the server.
///
/// # Errors
/// What cannot be recovered here is refused before anything is written. After any other error, too, the server's own recovery
/// still works.
pub fn recover(root: &Path, options: &Options, progress: Progress<'_>) -> Result<Report> {
    // What is refused by its looks is left with the postmaster.pid that it has.
    if look::look(root)?.is_none() {
        return Ok(Report { is_clean: true, ..Report::default() });
    }
    let lock = lock::Lock::take(root)?;
    let outcome = match read(root, options, usize::try_from(options.memory).unwrap_or(usize::MAX), progress) {
        Ok(Some(read)) => write(read, options, progress),
        Ok(None) => Ok(Report { is_clean: true, ..Report::default() }),
        Err(e) => Err(e),
    };
    lock.release();
    outcome
}

/// Looks at the directory and reads its log; none when the server was shut down in order.
fn read(root: &Path, options: &Options, memory: usize, progress: Progress<'_>) -> Result<Option<Read>> {
    let begun = Instant::now();
    let Some((cluster, control)) = look::look(root)? else { return Ok(None) };
    let checkpoint = control.checkpoint();
    let redo = Lsn(checkpoint.redo);
    let timeline = checkpoint.timeline.max(control.min_recovery_timeline());
    let log = Arc::new(Log::open(root, Some(timeline), Some(redo), None)?.keeping(look::KEEP_ALL));
    look::check_log(&cluster, &control, &log)?;
    let range = log.range(Some(redo), None)?;
    let context = Context {
        major: cluster.major,
        block_size: cluster.block_size as u32,
        hint_bits_are_logged: cluster.checksums || control.wal_log_hints(),
    };
    let mut state = State::new(root, cluster.major, &control)?;
    let how = How { context, threads: options.threads.max(1), memory };
    let total = range.to.0 - range.from.0;
    let mut stopped = false;
    let scanned = scan::first(&log, range, &how, &mut state, &mut |done| {
        stopped |= !progress(Phase::Read, done, total);
        !stopped
    })?;
    if stopped {
        return Err(apply::interrupted());
    }
    let (stop, reason) = scanned.ending.early.clone().unwrap_or((range.to, "the last segment ends here".to_owned()));
    let end = Tail::new(&cluster, &log).find_end(stop.0, scanned.ending.last.0)?;
    look::check_state(&cluster, &control, &state, &end)?;
    let report = Report {
        major: cluster.major,
        redo,
        end: Lsn(end.at),
        end_reason: reason,
        timeline: log.timeline,
        changes: scanned.refs,
        kept_bytes: scanned.weights.iter().map(|(_, bytes)| *bytes as u64).sum(),
        sums: scanned.sums.clone(),
        commits: state.commits,
        aborts: state.aborts,
        prepared: state.prepared.values().flatten().count() as u64,
        forks: state.stages.iter().map(|stage| stage.lifetimes.forks().count() as u64).sum(),
        dropped_relations: state.stages.iter().map(|stage| stage.lifetimes.dropped() as u64).sum(),
        seconds: vec![(Phase::Read, begun.elapsed().as_secs_f64())],
        ..Report::default()
    };
    Ok(Some(Read { cluster, control, context, log, range, state, scanned, end, report }))
}

/// Writes all that was read.
fn write(read: Read, options: &Options, progress: Progress<'_>) -> Result<Report> {
    let Read { cluster, mut control, context, log, range, state, mut scanned, end, mut report } = read;
    let how = How { context, threads: options.threads.max(1), memory: options.memory as usize };
    let begun = Instant::now();
    let total = report.changes;
    let mut done_before = 0;
    let mut from = range.from.0;
    for stage in &state.stages {
        let to = stage.until.unwrap_or(range.to.0);
        prepare_files(&cluster, stage)?;
        let mut rounds = vec![(from, to)];
        let mut first = scanned.dealt.take();
        if first.is_none() {
            rounds = split(&scanned.weights, from, to, how.memory);
        }
        for (from, to) in rounds {
            let dealt = match first.take() {
                Some(dealt) => dealt,
                None => {
                    let part = Range { from: Lsn(from), to: Lsn(to) };
                    scan::again(&log, part, &how, &mut |_| progress(Phase::Pages, done_before, total))?
                }
            };
            let mut tell = |done| progress(Phase::Pages, done_before + done, total);
            let work = apply::apply(&cluster, &context, &stage.lifetimes, dealt, how.threads, &mut tell)?;
            done_before += work.applied + work.superseded + work.removed + work.older;
            report.work.add(&work);
            report.rounds += 1;
        }
        for (relation, fork, blocks) in stage.lifetimes.forks() {
            cluster.extend(relation, fork, blocks)?;
        }
        store::relmaps(&cluster, &stage.relmaps)?;
        if let Some((source, target)) = stage.copy {
            folders::copy_database(&cluster, source, target)?;
        }
        from = to;
    }
    report.seconds.push((Phase::Pages, begun.elapsed().as_secs_f64()));
    timed(&mut report, Phase::Sync, || {
        let forks: Vec<_> = state.stages.iter().flat_map(|stage| stage.lifetimes.forks()).collect();
        store::sync(&cluster, &forks, how.threads, &mut |done| progress(Phase::Sync, done, forks.len() as u64))
    })?;
    progress_or_stop(progress, Phase::Status)?;
    timed(&mut report, Phase::Status, || store::status(&cluster, &state))?;
    progress_or_stop(progress, Phase::HandOver)?;
    let mut written = None;
    timed(&mut report, Phase::HandOver, || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let checkpoint = control::Checkpoint { time: now, ..state.checkpoint };
        let mut tail = Tail::new(&cluster, &log);
        let checkpoint = handover::append_checkpoint(&mut tail, &end, &checkpoint)?;
        handover::check_appended(&cluster, log.timeline, &checkpoint)?;
        if let Some(parameters) = &state.parameters {
            control.set_parameters(parameters);
        }
        control.set_checkpoint(checkpoint, cluster.major);
        written = Some(checkpoint.redo);
        handover::store_control(&control)
    })?;
    report.checkpoint = Lsn(written.unwrap_or(0));
    Ok(report)
}

fn progress_or_stop(progress: Progress<'_>, phase: Phase) -> Result<()> {
    if progress(phase, 0, 1) {
        Ok(())
    } else {
        Err(apply::interrupted())
    }
}

fn timed(report: &mut Report, phase: Phase, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    work()?;
    report.seconds.push((phase, begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Folders made and removed, files removed and cut.
fn prepare_files(cluster: &Cluster, stage: &Stage) -> Result<()> {
    stage.folders.iter().try_for_each(|change| change.apply(cluster))?;
    stage.lifetimes.cut_files(cluster)
}

/// Parts of a range whose records fit the memory; each is at least one chunk.
fn split(weights: &[(u64, usize)], from: u64, to: u64, memory: usize) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let (mut begin, mut sum) = (from, 0usize);
    for (at, weight) in weights.iter().filter(|(at, _)| (from..to).contains(at)) {
        if sum > 0 && sum.saturating_add(*weight) > memory {
            parts.push((begin, *at));
            (begin, sum) = (*at, 0);
        }
        sum = sum.saturating_add(*weight);
    }
    parts.push((begin, to));
    parts
}
