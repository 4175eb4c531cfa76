//! A base backup brought forward over its archived WAL, up to the last checkpoint before the recovery target.
//!
//! ```text
//! redo of the backup      backup end       redo    checkpoint      target
//! ────┬──────────────────────┬───────────────┬─────────┬─────────────┬──────
//!     └ replayed here ───────────────────────┘         │             │
//!                                            └ replayed by the server┘
//! ```
//!
//! The directory is then what a server leaves that made a restartpoint at this checkpoint and was stopped. The target, whether the
//! data is consistent, and the new timeline stay decisions of the server: it replays the rest, by its own settings. A checkpoint is
//! taken only if the backup was consistent before its redo point, for then no file can be missing that the WAL changes.
//!
//! The control file is written at the beginning, too, as the server does: from then on nobody may stop before that redo point, because
//! files may be of its time already.
//!
//! Source: `InitWalRecovery` in `access/transam/xlogrecovery.c`; `StartupXLOG`, `CreateRestartPoint`, `xlog_redo` in
//! `access/transam/xlog.c`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use leadline_errors::{Error, Kind, Result};
use leadline_wal::{Lineage, Lsn, Range, Wal};

use crate::files::cluster::Cluster;
use crate::files::control::{Backup, ControlFile, CHECKPOINT_SIZE};
use crate::files::control::{ARCHIVE_RECOVERY, SHUTDOWN_IN_RECOVERY, SHUT_DOWN};
use crate::files::lock::Lock;
use crate::handover::checkpoint;
use crate::preflight::{self, refused, Looked};
use crate::read::archive::{Archive, Follow, Source};
use crate::read::label::{self, Label, Space};
use crate::recovery_target::{self, Passed, RecoveryTarget, Way, MINIMAL};
use crate::{Options, Phase, Progress, Read, Report};

/// What an archive recovery goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restorable {
    /// Where the archived WAL is.
    pub source: Source,
    /// The recovery target. The server's own must be the same.
    pub target: RecoveryTarget,
    /// Which timeline is followed.
    pub follow: Follow,
}

/// How far a backup was brought, and what is left to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// From here on the data is consistent.
    pub consistent: Lsn,
    /// Where the checkpoint begins that the server goes on from; 0 when there is none between `consistent` and `target`.
    pub restartpoint: Lsn,
    /// From where on the server replays.
    pub redo: Lsn,
    /// Where the server stops: at its target, or at the end of the WAL.
    pub target: Lsn,
    /// The timeline that is followed.
    pub timeline: u32,
}

/// Brings a base backup, or a server that was stopped in archive recovery, to the last checkpoint before the target. With `dry_run`
/// only tells what would be done.
///
/// # Errors
/// What cannot be done here is refused before anything is written. After any other error, too, the server's own recovery still works.
pub fn restore(
    root: &Path,
    wish: &Restorable,
    options: &Options,
    dry_run: bool,
    progress: Progress<'_>,
) -> Result<Report> {
    let start = Start::of(root)?;
    if dry_run {
        return start.find(wish, options, progress)?.read(&start, options, progress);
    }
    let lock = Lock::take(root)?;
    let outcome = start.find(wish, options, progress).and_then(|found| found.write(&start, options, progress));
    lock.release();
    outcome
}

/// Where replay begins.
struct Start {
    cluster: Cluster,
    control: ControlFile,
    redo: Lsn,
    /// Where the record of the checkpoint begins.
    checkpoint: Lsn,
    timeline: u32,
    /// The backup, when its end is still to come.
    backup: Option<Backup>,
    /// Tablespaces that are to be linked.
    spaces: Vec<Space>,
    /// What says where the checkpoint is.
    said_by: &'static str,
}

impl Start {
    fn of(root: &Path) -> Result<Start> {
        let looked = preflight::look_at(root)?;
        if !looked.has_signal() {
            return Err(Error::new(Kind::Usage, "this data directory is not set up for archive recovery")
                .detail("it has neither recovery.signal nor standby.signal")
                .hint("create recovery.signal, and set restore_command and the recovery target for the server")
                .at(root));
        }
        let Looked { cluster, control, .. } = looked;
        if control.wal_level() == MINIMAL {
            return Err(minimal().at(&control.path));
        }
        match Label::of(root)? {
            Some(label) => Start::of_backup(cluster, control, &label),
            None => Start::of_control(cluster, control),
        }
    }

    fn of_backup(cluster: Cluster, control: ControlFile, label: &Label) -> Result<Start> {
        let is_in_recovery = matches!(control.state(), ARCHIVE_RECOVERY | SHUTDOWN_IN_RECOVERY);
        if label.is_from_standby && !is_in_recovery {
            return Err(Error::new(Kind::Invalid, "backup_label does not match pg_control")
                .detail("the backup is from a standby, but pg_control is not that of a standby")
                .at(&control.path));
        }
        let end = if label.is_from_standby { control.min_recovery_point() } else { 0 };
        let backup = Backup { start: label.redo.0, end, is_end_required: label.is_streamed };
        let spaces = label::spaces(&cluster)?;
        Ok(Start {
            cluster,
            control,
            redo: label.redo,
            checkpoint: label.checkpoint,
            timeline: label.timeline,
            backup: Some(backup),
            spaces,
            said_by: "backup_label",
        })
    }

    /// A server that was stopped in archive recovery, or a copy of one that was shut down.
    fn of_control(cluster: Cluster, control: ControlFile) -> Result<Start> {
        let backup = control.backup();
        if control.min_recovery_point() == 0 && backup.is_none() && control.state() != SHUT_DOWN {
            return Err(refused("there is no backup_label, and pg_control is that of a server that crashed")
                .detail("it does not say from where on the data is consistent")
                .at(&control.path));
        }
        let checkpoint = control.checkpoint();
        Ok(Start {
            redo: Lsn(checkpoint.redo),
            checkpoint: Lsn(control.checkpoint_at()),
            timeline: checkpoint.timeline,
            cluster,
            control,
            backup,
            spaces: Vec::new(),
            said_by: "pg_control",
        })
    }

    /// Finds the target, and the checkpoints before it.
    fn find(&self, wish: &Restorable, options: &Options, progress: Progress<'_>) -> Result<Found> {
        let begun = Instant::now();
        let root = &self.cluster.root;
        let segment = u64::from(self.control.wal_segment_size());
        if !segment.is_power_of_two() || !(1 << 20..=1 << 30).contains(&segment) {
            return Err(Error::new(Kind::Invalid, "pg_control has an impossible size of WAL segments")
                .detail(format!("{segment} bytes"))
                .at(&self.control.path));
        }
        let archive = Archive::new(&wish.source, root, segment, (self.redo, self.timeline))?;
        let own = self.control.checkpoint().timeline.max(self.control.min_recovery_timeline());
        let lineage = archive.lineage(wish.follow, own)?;
        self.check_lineage(&lineage)?;
        let mut bound =
            if let RecoveryTarget::Lsn { lsn, .. } = wish.target { Some(lsn.max(self.checkpoint)) } else { None };
        loop {
            let followed = archive.follow(&lineage, self.redo, bound)?;
            preflight::check_log(&self.cluster, &self.control, &followed.log)?;
            let log = Arc::new(followed.log.keeping(preflight::KEEP_ALL));
            let to = followed.limit.unwrap_or(log.bounds().to).min(log.bounds().to);
            let range = log.range(Some(self.redo), Some(to))?;
            let total = range.to.0 - range.from.0;
            let mut tell = |done| progress(Phase::Find, done, total);
            let way = recovery_target::way(&log, range, &wish.target, options.threads.max(1), &mut tell)?;
            if way.stop.is_none() {
                // A record that is longer than a segment may begin before the target and end behind what was looked at.
                if bound.take().is_some() {
                    continue;
                }
                if let Some(gap) = followed.gap {
                    return Err(gap);
                }
                if wish.target != RecoveryTarget::End {
                    return Err(Error::new(Kind::NotFound, "the archived WAL ends before the recovery target")
                        .detail(format!("it ends at {}: {}", way.end, ending(&way, &followed.missing)))
                        .at(&log.path));
                }
            }
            let mut found = self.judge(log, lineage, way)?;
            if let Some(last) = found.steps.last() {
                found.histories = archive.histories(self.timeline, last.checkpoint().timeline)?;
            }
            found.seconds = begun.elapsed().as_secs_f64();
            return Ok(found);
        }
    }

    /// Whether the timeline to be followed goes through the backup.
    fn check_lineage(&self, lineage: &Lineage) -> Result<()> {
        let least = (self.control.min_recovery_point(), self.control.min_recovery_timeline());
        let places = [
            ("checkpoint", self.checkpoint, self.timeline),
            ("minimum recovery point", Lsn(least.0.max(1) - 1), least.1),
        ];
        for (what, lsn, timeline) in places.into_iter().filter(|(_, lsn, _)| lsn.0 != 0) {
            if lineage.at(lsn) != timeline {
                let left = lineage.left(timeline).map_or("never had it".to_owned(), |at| format!("left it at {at}"));
                let wanted = lineage.timeline();
                return Err(Error::new(Kind::Invalid, format!("timeline {wanted} does not come from the backup"))
                    .detail(format!(
                        "the backup's {what} is at {lsn} on timeline {timeline}, but timeline {wanted} {left}"
                    ))
                    .hint("restore an older backup, or name another timeline: --to-timeline")
                    .at(&self.cluster.root));
            }
        }
        Ok(())
    }

    /// Refuses what must not be done, and chooses the checkpoints.
    fn judge(&self, log: Arc<Wal>, lineage: Lineage, way: Way) -> Result<Found> {
        let target = way.stop.unwrap_or(way.end);
        way.check_timelines(&lineage)?;
        let Some(first) = way.checkpoints.iter().find(|passed| passed.start == self.checkpoint) else {
            if way.stop.is_some() {
                return Err(self.too_early(target, self.checkpoint));
            }
            return Err(Error::new(
                Kind::Invalid,
                format!("the WAL does not have the checkpoint that {} names", self.said_by),
            )
            .detail(format!(
                "the checkpoint is at {}, the WAL ends at {}: {}",
                self.checkpoint, way.end, way.end_reason
            ))
            .at(&log.path));
        };
        if first.checkpoint().redo != self.redo.0 || first.checkpoint().timeline != self.timeline {
            return Err(Error::new(
                Kind::Invalid,
                format!("{} does not match the checkpoint in the WAL", self.said_by),
            )
            .detail(format!("replay begins at {}, but the checkpoint says {}", self.redo, Lsn(first.checkpoint().redo)))
            .at(format!("LSN {}", self.checkpoint)));
        }
        let consistent = self.consistent(&way)?;
        if consistent > target {
            return Err(self.too_early(target, consistent));
        }
        let steps = self.steps(&way, consistent)?;
        let restored = Restored {
            consistent,
            target,
            timeline: lineage.timeline(),
            restartpoint: steps.last().map_or(Lsn(0), |last| last.start),
            redo: steps.last().map_or(self.redo, |last| Lsn(last.checkpoint().redo)),
        };
        let first = first.bytes;
        Ok(Found { log, lineage, first, steps, histories: Vec::new(), restored, seconds: 0.0 })
    }

    fn too_early(&self, target: Lsn, consistent: Lsn) -> Error {
        Error::new(Kind::Usage, "the recovery target is before the point from which on the backup is consistent")
            .detail(format!("the target is at {target}, the backup is consistent at {consistent}"))
            .hint("restore an older backup, or take a later target")
            .at(&self.cluster.root)
    }

    /// Where the data is consistent.
    fn consistent(&self, way: &Way) -> Result<Lsn> {
        if let Some(at) = way.minimal {
            return Err(minimal().at(format!("LSN {at}")));
        }
        let mut consistent = Lsn(self.control.min_recovery_point().max(self.checkpoint.0));
        let Some(backup) = self.backup else { return Ok(consistent) };
        if backup.end != 0 {
            return Ok(consistent.max(Lsn(backup.end)));
        }
        let Some((end, _)) = way.backup_ends.iter().find(|(_, since)| since.0 == backup.start) else {
            if way.stop.is_some() {
                return Err(Error::new(Kind::Usage, "the recovery target is before the end of the backup")
                    .detail(format!("the target is at {}", way.stop.unwrap_or_default()))
                    .hint("restore an older backup, or take a later target")
                    .at(&self.cluster.root));
            }
            return Err(Error::new(Kind::Invalid, "the archived WAL ends before the end of the backup")
                .detail(format!("it ends at {}: all WAL written during the backup is needed", way.end))
                .hint("copy what is missing to the archive")
                .at(&self.cluster.root));
        };
        let is_within = |passed: &&Passed| passed.is_shutdown && self.checkpoint < passed.start && passed.start < *end;
        if let Some(passed) = way.checkpoints.iter().find(is_within) {
            return Err(Error::new(Kind::Invalid, "the server was shut down while the backup was taken")
                .detail("the backup was cancelled by that")
                .hint("restore another backup")
                .at(format!("LSN {}", passed.start)));
        }
        consistent = consistent.max(*end);
        Ok(consistent)
    }

    /// The checkpoints to go to, one after the other: the last one, and before it those behind copies of databases.
    ///
    /// A copy takes the files of the other database as they are. Were it made again from files that were changed since, after
    /// somebody killed us, it would be wrong; so a restartpoint follows it at once. The server that made it did the same.
    fn steps(&self, way: &Way, consistent: Lsn) -> Result<Vec<Passed>> {
        let redo = |passed: &Passed| Lsn(passed.checkpoint().redo);
        let is_usable = |passed: &&Passed| redo(passed) >= consistent && redo(passed) > self.redo;
        let Some(last) = way.checkpoints.iter().rfind(is_usable) else { return Ok(Vec::new()) };
        let mut steps = BTreeSet::from([last.start]);
        for copy in way.copies.iter().filter(|copy| **copy < redo(last)) {
            let next = way.checkpoints.iter().find(|passed| redo(passed) > *copy);
            match next.filter(is_usable) {
                Some(next) => steps.insert(next.start),
                None => {
                    return Err(refused("a database was copied file by file while the backup was taken")
                        .detail("only the server can replay that")
                        .at(format!("LSN {copy}")))
                }
            };
        }
        Ok(way.checkpoints.iter().filter(|passed| steps.contains(&passed.start)).copied().collect())
    }
}

fn minimal() -> Error {
    Error::new(Kind::Unsupported, "the WAL was written with wal_level minimal")
        .detail("it does not have all that archive recovery needs")
        .hint("restore a backup that was taken after wal_level was raised")
}

/// Why the WAL ends.
fn ending(way: &Way, missing: &str) -> String {
    if way.end_reason.is_empty() {
        format!("{missing} is missing")
    } else {
        way.end_reason.clone()
    }
}

/// What is to be done.
struct Found {
    log: Arc<Wal>,
    lineage: Lineage,
    /// The checkpoint that replay begins with.
    first: [u8; CHECKPOINT_SIZE],
    /// Checkpoints to go to; empty when there is none.
    steps: Vec<Passed>,
    /// Files of timelines that are passed. The server brings those behind its restartpoint to `pg_wal`, where its standbys ask for them
    /// (`restoreTimeLineHistoryFiles`).
    histories: Vec<(String, Vec<u8>)>,
    restored: Restored,
    seconds: f64,
}

impl Found {
    fn report(&self, start: &Start) -> Report {
        Report {
            major: start.cluster.major,
            redo: start.redo,
            end: self.restored.redo,
            end_reason: "redo of the last checkpoint before the target".to_owned(),
            timeline: self.steps.last().map_or(start.timeline, |last| last.checkpoint().timeline),
            restored: Some(self.restored),
            seconds: vec![(Phase::Find, self.seconds)],
            ..Report::default()
        }
    }

    /// The control file as the server has it once it began.
    fn begun(&self, start: &Start) -> ControlFile {
        let mut control = start.control.clone();
        control.set_restartpoint(start.checkpoint.0, &self.first, start.backup, crate::now());
        control
    }

    /// Reads the part of the WAL up to a step, and refuses what cannot be replayed.
    fn read_step(
        &self,
        start: &Start,
        control: &ControlFile,
        step: &Passed,
        options: &Options,
        memory: usize,
        progress: Progress<'_>,
    ) -> Result<Read> {
        let (cluster, log) = (start.cluster.clone(), Arc::clone(&self.log));
        let range = Range { from: Lsn(control.checkpoint().redo), to: Lsn(step.checkpoint().redo) };
        let read = crate::read_log(cluster, control.clone(), log, range, options, memory, progress)?;
        if let Some((at, reason)) = &read.scanned.ending.early {
            return Err(Error::new(Kind::Gone, "the archived WAL changed while being read")
                .detail(format!("it ends now at {at}: {reason}"))
                .at(&self.log.path));
        }
        let linked: Vec<u32> = start.spaces.iter().map(|space| space.oid).collect();
        preflight::check_state(&read.cluster, &read.state, &linked)?;
        Ok(read)
    }

    /// Reads all of it and writes nothing.
    fn read(&self, start: &Start, options: &Options, progress: Progress<'_>) -> Result<Report> {
        let mut report = self.report(start);
        let mut control = self.begun(start);
        for step in &self.steps {
            let read = self.read_step(start, &control, step, options, 0, progress)?;
            report.add(&read.report);
            at_step(&mut control, &read, step);
        }
        Ok(report)
    }

    fn write(&self, start: &Start, options: &Options, progress: Progress<'_>) -> Result<Report> {
        let mut report = self.report(start);
        if self.steps.len() > 1 {
            // What is refused in a later part is refused before the first is written.
            self.read(start, options, progress)?;
        }
        let mut control = self.begun(start);
        let memory = usize::try_from(options.memory).unwrap_or(usize::MAX);
        for (number, step) in self.steps.iter().enumerate() {
            let mut read = self.read_step(start, &control, step, options, memory, progress)?;
            // Files will be of the time of its redo point: nobody may stop before.
            let redo = Lsn(step.checkpoint().redo);
            control.raise_min_recovery_point(redo.0, self.lineage.at(Lsn(redo.0 - 1)));
            if number == 0 {
                label::link(&start.cluster, &start.spaces)?;
                for (name, bytes) in &self.histories {
                    start.cluster.replace(&start.cluster.root.join("pg_wal").join(name), bytes)?;
                }
            }
            checkpoint::store_control(&control)?;
            label::set_aside(&start.cluster)?;
            crate::write_files(&mut read, options, false, progress)?;
            let begun = Instant::now();
            at_step(&mut control, &read, step);
            checkpoint::store_control(&control)?;
            read.report.seconds.push((Phase::HandOver, begun.elapsed().as_secs_f64()));
            report.add(&read.report);
        }
        report.checkpoint = self.restored.restartpoint;
        Ok(report)
    }
}

/// The control file after a restartpoint.
fn at_step(control: &mut ControlFile, read: &Read, step: &Passed) {
    if let Some(parameters) = &read.state.parameters {
        control.set_parameters(parameters);
    }
    control.set_restartpoint(step.start.0, &step.bytes, None, crate::now());
    control.raise_min_recovery_point(step.end.0, step.checkpoint().timeline);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::control::Checkpoint;

    /// A backup that begins at 100, with its checkpoint at 120.
    fn start(backup: Option<Backup>) -> Start {
        let cluster = Cluster::new(Path::new("/"), 18, 1, 8192, 131_072, true).unwrap();
        let control = ControlFile::blank();
        let (redo, checkpoint) = (Lsn(100), Lsn(120));
        Start { cluster, control, redo, checkpoint, timeline: 1, backup, spaces: Vec::new(), said_by: "backup_label" }
    }

    const OF_PRIMARY: Option<Backup> = Some(Backup { start: 100, end: 0, is_end_required: true });

    fn passed(redo: u64, start: u64, is_shutdown: bool) -> Passed {
        let checkpoint = Checkpoint { redo, timeline: 1, ..Checkpoint::default() };
        Passed { start: Lsn(start), end: Lsn(start + 9), bytes: checkpoint.to_bytes(18), is_shutdown }
    }

    fn way(checkpoints: Vec<Passed>) -> Way {
        Way {
            checkpoints,
            backup_ends: vec![(Lsn(150), Lsn(90)), (Lsn(200), Lsn(100))],
            end: Lsn(900),
            ..Way::default()
        }
    }

    fn starts(steps: &[Passed]) -> Vec<u64> {
        steps.iter().map(|step| step.start.0).collect()
    }

    #[test]
    fn a_backup_is_consistent_at_its_own_end() {
        let start = start(OF_PRIMARY);
        let mut way = way(vec![passed(100, 120, false), passed(150, 160, false), passed(300, 300, true)]);
        assert_eq!(start.consistent(&way), Ok(Lsn(200)));
        way.backup_ends.pop();
        assert_eq!(start.consistent(&way).unwrap_err().message, "the archived WAL ends before the end of the backup");
        way.stop = Some(Lsn(180));
        assert_eq!(start.consistent(&way).unwrap_err().message, "the recovery target is before the end of the backup");
    }

    #[test]
    fn wal_of_level_minimal_is_refused() {
        let way = Way { minimal: Some(Lsn(300)), ..way(vec![passed(100, 120, false)]) };
        assert_eq!(
            start(OF_PRIMARY).consistent(&way).unwrap_err().message,
            "the WAL was written with wal_level minimal"
        );
    }

    #[test]
    fn a_shutdown_while_the_backup_was_taken_is_refused() {
        let way = way(vec![passed(100, 120, true), passed(150, 150, true)]);
        let message = start(OF_PRIMARY).consistent(&way).unwrap_err().message;
        assert_eq!(message, "the server was shut down while the backup was taken");
    }

    #[test]
    fn a_backup_of_a_standby_is_consistent_where_its_control_file_says() {
        let of_standby = Some(Backup { start: 100, end: 400, is_end_required: true });
        assert_eq!(start(of_standby).consistent(&way(Vec::new())), Ok(Lsn(400)));
        let mut stopped = start(None);
        assert_eq!(stopped.consistent(&way(Vec::new())), Ok(Lsn(120)));
        stopped.control.raise_min_recovery_point(350, 1);
        assert_eq!(stopped.consistent(&way(Vec::new())), Ok(Lsn(350)));
    }

    #[test]
    fn the_last_checkpoint_after_the_backup_is_taken_and_those_behind_copies() {
        let start = start(OF_PRIMARY);
        let mut way = way(vec![
            passed(100, 120, false),
            passed(190, 210, false),
            passed(250, 260, false),
            passed(300, 310, false),
            passed(400, 410, false),
        ]);
        let steps = |way: &Way| start.steps(way, Lsn(200)).map(|steps| starts(&steps));
        assert_eq!(steps(&way), Ok(vec![410]));
        way.copies = vec![Lsn(260), Lsn(270), Lsn(500)];
        assert_eq!(steps(&way), Ok(vec![310, 410]));
        way.copies = vec![Lsn(195)];
        assert_eq!(steps(&way), Ok(vec![260, 410]));
        way.copies = vec![Lsn(130)];
        assert_eq!(steps(&way).unwrap_err().message, "a database was copied file by file while the backup was taken");
        way.checkpoints.truncate(2);
        assert_eq!(steps(&way), Ok(Vec::new()));
    }
}
