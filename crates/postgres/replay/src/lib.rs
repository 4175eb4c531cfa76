//! Crash recovery of a PostgreSQL data directory of 13 to 18, by page.
//!
//! The server replays its WAL record by record, in one process. Here several threads read the WAL once, share out its records by the
//! pages that they change, and roll pages forward in memory meanwhile. Each page is written once, in the order of its file. Then a
//! shutdown checkpoint is added to the WAL, and the server has nothing to replay.
//!
//! [`recover`] is all of it in order; [`plan`] ends before anything is written. What a record does to a page is `leadline-redo`'s
//! business. The folders are in the order in which data goes through them:
//!
//! ```text
//! preflight.rs  control file, locks, signals: refuse what cannot be done right
//! read/         the WAL from redo to its end; what is not in pages; refuse
//! partition/    where the records of each page are
//! pages/        pages rolled forward in memory, then written; those that had no room, in as many rounds as it needs
//! files/        directories and files created, removed, truncated; unlogged relations reset; every file synced
//! handover/     pg_xact, pg_multixact, pg_commit_ts, relation maps, prepared transactions, origins; then the checkpoint, pg_control
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod account;
mod files;
mod handover;
mod page_at;
mod pages;
mod partition;
mod preflight;
mod read;
mod recovery_target;
mod relation_at;
mod restore;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use leadline_errors::Result;
use leadline_redo::Context;
use leadline_wal::{Lsn, Range, Wal};

use account::Times;
pub use account::{Phase, ThreadTime};
use files::cluster::Cluster;
use files::control::ControlFile;
use handover::checkpoint::{End, Tail};
use leadline_datadir::RelFile;
pub use page_at::{page_at, PageAt};
pub use pages::counts::Work;
use pages::pool::Pool;
use partition::partitioned::PartitionedRefs;
use partition::spill::Spilled;
pub use read::archive::{Follow, Source};
pub use read::scan::Sum;
use read::scan::{Found, How, Scanned};
use read::state::{Stage, State};
pub use recovery_target::RecoveryTarget;
pub use relation_at::{relation_at, RelationAt, Wish};
pub use restore::{restore, Restorable, Restored};

/// More than this is not used, so that the records of a partition can be counted with 32 bits.
const MOST_MEMORY: usize = 128 << 30;

/// How to recover.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes that pages, and records kept for them, may take.
    pub memory: u64,
    /// Threads that read the WAL and apply records.
    pub threads: usize,
}

/// Told of progress: the phase, how much of it is done, and of how much. False ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(Phase, u64, u64) -> bool;

/// What the WAL holds and what was done.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Major version of the server.
    pub major: u8,
    /// The server was shut down in order: there is nothing to recover, and the rest is empty.
    pub is_clean: bool,
    /// From where on the WAL is replayed.
    pub redo: Lsn,
    /// Where it ends, and why no record follows.
    pub end: Lsn,
    /// That reason, in words.
    pub end_reason: String,
    /// Timeline of the WAL's end.
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
    /// Forks of relations that the WAL changes and keeps.
    pub forks: u64,
    /// Relations that it removes.
    pub dropped_relations: u64,
    /// What was done to pages.
    pub work: Work,
    /// The same by relation and fork.
    pub forks_work: BTreeMap<(RelFile, u8), Work>,
    /// How long each thread took that read the WAL or wrote pages.
    pub threads: Vec<ThreadTime>,
    /// How often a page may have been written: 1 when memory, or a temporary file, was enough.
    pub rounds: u64,
    /// Bytes of records that did not fit the memory and went through a temporary file.
    pub spilled_bytes: u64,
    /// Where the added checkpoint begins; 0 when nothing was written.
    pub checkpoint: Lsn,
    /// Of a base backup: how far it is, and what is left to the server.
    pub restored: Option<Restored>,
    /// Seconds that each phase took.
    pub seconds: Vec<(Phase, f64)>,
}

impl Report {
    /// Adds what was done to forks; gives how many changes that were.
    fn add_work(&mut self, by_fork: HashMap<partition::record_refs::ForkId, Work>) -> u64 {
        let mut changes = 0;
        for (fork, work) in by_fork {
            changes += work.applied + work.superseded + work.removed + work.older;
            self.work.add(&work);
            self.forks_work.entry(fork).or_default().add(&work);
        }
        changes
    }

    /// Adds what was done in the next part of the WAL.
    fn add(&mut self, next: &Report) {
        for (kind, sum) in &next.sums {
            self.sums.entry(*kind).or_default().add(sum);
        }
        self.changes += next.changes;
        self.kept_bytes = self.kept_bytes.max(next.kept_bytes);
        self.commits += next.commits;
        self.aborts += next.aborts;
        self.prepared = next.prepared;
        self.forks += next.forks;
        self.dropped_relations += next.dropped_relations;
        self.work.add(&next.work);
        for (fork, work) in &next.forks_work {
            self.forks_work.entry(*fork).or_default().add(work);
        }
        self.threads.extend(&next.threads);
        self.spilled_bytes += next.spilled_bytes;
        self.rounds = self.rounds.max(next.rounds);
        for (phase, took) in &next.seconds {
            match self.seconds.iter_mut().find(|(of, _)| of == phase) {
                Some((_, sum)) => *sum += took,
                None => self.seconds.push((*phase, *took)),
            }
        }
    }
}

/// All that is known once the WAL was read.
struct Read {
    cluster: Cluster,
    control: ControlFile,
    context: Context,
    log: Arc<Wal>,
    range: Range,
    state: State,
    scanned: Scanned,
    end: End,
    times: Times,
    report: Report,
}

/// Reads the WAL of a crashed server, and tells what recovery would do. Nothing is written.
///
/// # Errors
/// What cannot be recovered here is refused, with the reason.
pub fn plan(root: &Path, options: &Options, progress: Progress<'_>) -> Result<Report> {
    let Some(read) = read(root, options, 0, progress)? else {
        return Ok(Report { is_clean: true, ..Report::default() });
    };
    Ok(read.report)
}

/// Brings a data directory to the end of its WAL and hands it to the server.
///
/// # Errors
/// What cannot be recovered here is refused before anything is written. After any other error, too, the server's own recovery
/// still works.
pub fn recover(root: &Path, options: &Options, progress: Progress<'_>) -> Result<Report> {
    // What is refused by its looks is left with the postmaster.pid that it has.
    if preflight::look(root)?.is_none() {
        return Ok(Report { is_clean: true, ..Report::default() });
    }
    let lock = files::lock::Lock::take(root)?;
    let outcome = match read(root, options, usize::try_from(options.memory).unwrap_or(usize::MAX), progress) {
        Ok(Some(read)) => write(read, options, progress),
        Ok(None) => Ok(Report { is_clean: true, ..Report::default() }),
        Err(e) => Err(e),
    };
    lock.release();
    outcome
}

/// Looks at the directory and reads its WAL; none when the server was shut down in order.
fn read(root: &Path, options: &Options, memory: usize, progress: Progress<'_>) -> Result<Option<Read>> {
    let Some((cluster, control)) = preflight::look(root)? else { return Ok(None) };
    let checkpoint = control.checkpoint();
    let redo = Lsn(checkpoint.redo);
    let timeline = checkpoint.timeline.max(control.min_recovery_timeline());
    let log = Arc::new(Wal::open(root, Some(timeline), Some(redo), None)?.keeping(preflight::KEEP_ALL));
    preflight::check_log(&cluster, &control, &log)?;
    let range = log.range(Some(redo), None)?;
    let mut read = read_log(cluster, control, log, range, options, memory, progress)?;
    read.end = Tail::new(&read.cluster, &read.log).find_end(read.end.at, read.end.last)?;
    read.report.end = Lsn(read.end.at);
    preflight::check_end(&read.cluster, &read.control, &read.state, &read.end)?;
    preflight::check_state(&read.cluster, &read.state, &[])?;
    Ok(Some(read))
}

/// Reads a part of the WAL; `end` is where reading stopped.
fn read_log(
    cluster: Cluster,
    control: ControlFile,
    log: Arc<Wal>,
    range: Range,
    options: &Options,
    memory: usize,
    progress: Progress<'_>,
) -> Result<Read> {
    let begun = Instant::now();
    let context = Context {
        major: cluster.major,
        block_size: cluster.block_size as u32,
        hint_bits_are_logged: cluster.checksums || control.wal_log_hints(),
    };
    let mut state = State::new(&cluster.root, cluster.major, &control)?;
    let times = Times::default();
    let how = how(&cluster, context, options.threads, memory, &times);
    let total = range.to.0 - range.from.0;
    let mut stopped = false;
    let scanned = read::scan::first(&log, range, &how, &mut state, &mut |done| {
        stopped |= !progress(Phase::Read, done, total);
        !stopped
    })?;
    if stopped {
        return Err(pages::apply::interrupted());
    }
    let (stop, reason) = scanned.ending.early.clone().unwrap_or((range.to, "the last segment ends here".to_owned()));
    let end = End { at: stop.0, last: scanned.ending.last.0, incomplete: None };
    let report = Report {
        major: cluster.major,
        redo: range.from,
        end: stop,
        end_reason: reason,
        timeline: log.timeline,
        changes: scanned.refs,
        kept_bytes: scanned.weights.iter().map(|(_, bytes)| *bytes as u64).sum(),
        sums: scanned.sums.clone(),
        commits: state.commits,
        aborts: state.aborts,
        prepared: state.prepared.values().flatten().count() as u64,
        forks: state.stages.iter().map(|stage| stage.fork_changes.forks().count() as u64).sum(),
        dropped_relations: state.stages.iter().map(|stage| stage.fork_changes.dropped() as u64).sum(),
        seconds: vec![(Phase::Read, begun.elapsed().as_secs_f64())],
        ..Report::default()
    };
    Ok(Read { cluster, control, context, log, range, state, scanned, end, times, report })
}

/// Writes all that was read, and hands over.
fn write(mut read: Read, options: &Options, progress: Progress<'_>) -> Result<Report> {
    // The crashed server may not have synced the end of its WAL. If the power failed now, files could be of a later time than the WAL.
    read.cluster.sync_files_of(&read.cluster.root.join("pg_wal"))?;
    write_files(&mut read, options, true, progress)?;
    let Read { cluster, mut control, log, state, end, mut report, .. } = read;
    let mut written = None;
    timed(&mut report, Phase::HandOver, || {
        let checkpoint = files::control::Checkpoint { time: now(), ..state.checkpoint };
        let mut tail = Tail::new(&cluster, &log);
        let checkpoint = handover::checkpoint::append_checkpoint(&mut tail, &end, &checkpoint)?;
        handover::checkpoint::check_appended(&cluster, log.timeline, &checkpoint)?;
        if let Some(parameters) = &state.parameters {
            control.set_parameters(parameters);
        }
        control.set_checkpoint(checkpoint, cluster.major);
        written = Some(checkpoint.redo);
        handover::checkpoint::store_control(&control)
    })?;
    report.checkpoint = Lsn(written.unwrap_or(0));
    Ok(report)
}

/// Seconds since 1970.
fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// Brings all files to the end of what was read, and makes that last. The control file is not touched. `starts_new`: what a server
/// empties before it accepts sessions is emptied here.
fn write_files(read: &mut Read, options: &Options, starts_new: bool, progress: Progress<'_>) -> Result<()> {
    let Read { cluster, context, log, range, state, scanned, times, report, .. } = read;
    let memory = usize::try_from(options.memory).unwrap_or(usize::MAX);
    let how = how(cluster, *context, options.threads, memory, times);
    let begun = Instant::now();
    let total = report.changes;
    let mut done_before = 0;
    let mut from = range.from.0;
    let apply_pool = pages::apply::ApplyPool { cluster, context: *context, threads: how.threads, times };
    // What does not fit its page is told before anything is written.
    let mut pages = scanned.pool.take().map(Pool::finish).transpose()?;
    for stage in &state.stages {
        let to = stage.until.unwrap_or(range.to.0);
        prepare_files(cluster, stage)?;
        let (mut rounds, mut rooms) = (0, Vec::new());
        if let Some(pages) = pages.take() {
            let all = pages.pages.len().max(1) as u64;
            done_before += report.add_work(pages.work);
            apply_pool.write(&pages.pages, &mut |done| progress(Phase::Pages, done_before * done / all, total))?;
            (rounds, rooms) = (1, pages.rooms);
        }
        let records = std::mem::replace(&mut scanned.records, Found::InLog);
        if let Found::Spilled(spill, _) = &records {
            report.spilled_bytes = spill.bytes();
        }
        let sources = sources(records, &scanned.weights, from, to, how.memory);
        report.rounds += sources.iter().map(|of_some| of_some.len() as u64).max().unwrap_or(0).max(rounds);
        let mut sources_left = sources.into_iter().flatten().map(RefSource::begin);
        let mut next = sources_left.next();
        while let Some(source) = next {
            // The next one is read from the disk while this one is applied.
            next = sources_left.next();
            let refs = match source {
                RefSource::PartitionedRefs(refs) => refs,
                RefSource::Spilled(spilled) => spilled.read()?,
                RefSource::Wal(part) => {
                    read::scan::again(log, part, &how, &mut |_| progress(Phase::Pages, done_before, total))?
                }
            };
            let mut tell = |done| progress(Phase::Pages, done_before + done, total);
            let (by_fork, found) = apply_pool.apply(&stage.fork_changes, refs, &mut tell)?;
            done_before += report.add_work(by_fork);
            rooms.extend(found);
        }
        files::free_space::note(cluster, rooms)?;
        for (relation, fork, blocks) in stage.fork_changes.forks() {
            cluster.extend(relation, fork, blocks)?;
        }
        handover::status::relmaps(cluster, &stage.relmaps)?;
        if let Some((source, target)) = stage.copy {
            files::directories::copy_database(cluster, source, target)?;
        }
        from = to;
    }
    if starts_new {
        files::unlogged::reset(cluster)?;
        files::unlogged::discard_statistics(cluster)?;
    }
    report.seconds.push((Phase::Pages, begun.elapsed().as_secs_f64()));
    timed(report, Phase::Sync, || {
        handover::status::sync(cluster, &mut |done, total| progress(Phase::Sync, done, total))
    })?;
    progress_or_stop(progress, Phase::Status)?;
    timed(report, Phase::Status, || handover::status::status(cluster, state))?;
    report.threads = times.all();
    progress_or_stop(progress, Phase::HandOver)
}

fn progress_or_stop(progress: Progress<'_>, phase: Phase) -> Result<()> {
    if progress(phase, 0, 1) {
        Ok(())
    } else {
        Err(pages::apply::interrupted())
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
    stage.fork_changes.truncate_files(cluster)
}

fn how<'a>(cluster: &'a Cluster, context: Context, threads: usize, memory: usize, times: &Times) -> How<'a> {
    let (threads, memory) = (threads.max(1), memory.min(MOST_MEMORY));
    How { context, threads, memory, cluster, times: times.clone(), pages: Arc::default() }
}

/// Where records come from that are in memory at once.
enum RefSource {
    PartitionedRefs(PartitionedRefs),
    Spilled(Spilled),
    Wal(Range),
}

impl RefSource {
    fn begin(self) -> RefSource {
        match self {
            RefSource::Spilled(spilled) => RefSource::Spilled(spilled.begin()),
            other => other,
        }
    }
}

/// What is to be done one after the other. Sources that follow each other inside change the same pages.
fn sources(records: Found, weights: &[(u64, usize)], from: u64, to: u64, memory: usize) -> Vec<Vec<RefSource>> {
    match records {
        Found::PartitionedRefs(refs) if refs.is_empty() => Vec::new(),
        Found::PartitionedRefs(refs) => vec![vec![RefSource::PartitionedRefs(refs)]],
        Found::Spilled(spill, forks) => {
            let (spill, forks) = (Arc::new(spill), Arc::new(forks));
            let of_one = |blocks| RefSource::Spilled(Spilled::new(&spill, &forks, blocks));
            // While one is applied the next is read, and unpacked.
            let rounds = spill.rounds(memory / 3);
            rounds.into_iter().map(|rounds| rounds.into_iter().map(of_one).collect()).collect()
        }
        Found::InLog => {
            let parts = split(weights, from, to, memory);
            vec![parts.into_iter().map(|(from, to)| RefSource::Wal(Range { from: Lsn(from), to: Lsn(to) })).collect()]
        }
    }
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
