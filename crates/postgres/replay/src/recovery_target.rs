//! Where a recovery is to stop, and the checkpoints on the way there: the archived WAL read once, for a few kinds of records only.
//!
//! The server stops by itself, at its own recovery target. What is found here must never be beyond it: it decides which checkpoint is
//! the last one that replay may be brought to.
//!
//! Source: `recoveryStopsBefore`, `recoveryStopsAfter`, `CheckRecoveryConsistency` in `access/transam/xlogrecovery.c`, `xlog_redo` in
//! `access/transam/xlog.c`.

use std::sync::Arc;

use leadline_errors::{Error, Kind, Result};
use leadline_wal::parallel::{self, Work};
use leadline_wal::record::EPOCH_US;
use leadline_wal::rmgr::xlog::{BACKUP_END, CHECKPOINT_ONLINE, CHECKPOINT_SHUTDOWN, PARAMETER_CHANGE, RESTORE_POINT};
use leadline_wal::rmgr::{self, id};
use leadline_wal::{Lineage, Lsn, Range, Reader, Record, Wal};

use crate::files::control::{u64_at, Checkpoint, Parameters, CHECKPOINT_SIZE};
use crate::read::xact;

/// Bytes of the WAL that a thread reads at a time.
const CHUNK: u64 = 8 << 20;
/// `WAL_LEVEL_MINIMAL`.
pub(crate) const MINIMAL: u32 = 0;

/// A recovery target of the server, one of `recovery_target_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RecoveryTarget {
    /// No target: all of the WAL.
    End,
    /// The first record that begins here or later. It is replayed when the target is inclusive.
    Lsn { lsn: Lsn, inclusive: bool },
    /// The first end of a transaction later than this, or at it when the target is not inclusive. Microseconds since 1970.
    Time { time_us: i64, inclusive: bool },
    /// The end of this transaction.
    Xid { xid: u32, inclusive: bool },
    /// The first restore point of this name.
    Name(String),
}

impl RecoveryTarget {
    /// Where the server stops when it comes to this record.
    fn stop(&self, record: &Record<'_>) -> Option<Lsn> {
        let side = |inclusive: bool| if inclusive { record.end } else { record.start };
        match self {
            RecoveryTarget::End => None,
            RecoveryTarget::Lsn { lsn, inclusive } => (record.start >= *lsn).then(|| side(*inclusive)),
            RecoveryTarget::Time { time_us, inclusive } => {
                let ended = ended(record)?;
                let target = time_us - EPOCH_US;
                let is_past = if *inclusive { ended.time > target } else { ended.time >= target };
                is_past.then_some(record.start)
            }
            RecoveryTarget::Xid { xid, inclusive } => (ended(record)?.xid == *xid).then(|| side(*inclusive)),
            RecoveryTarget::Name(name) => {
                let is_point = record.rmid == id::XLOG && record.info & rmgr::OPCODE_MASK == RESTORE_POINT;
                let told = record.main_data().get(8..).filter(|_| is_point)?;
                let told = told.split(|b| *b == 0).next().unwrap_or_default();
                (told == name.as_bytes()).then_some(record.end)
            }
        }
    }
}

fn ended<'a>(record: &Record<'a>) -> Option<xact::Ended<'a>> {
    if record.rmid == id::XACT {
        xact::ended(record)?.ok()
    } else {
        None
    }
}

/// A checkpoint in the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub start: Lsn,
    pub end: Lsn,
    /// Its record's data.
    pub bytes: [u8; CHECKPOINT_SIZE],
    pub is_shutdown: bool,
}

impl Passed {
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint::parse(&self.bytes).unwrap_or_default()
    }
}

/// One record that matters.
enum Note {
    Checkpoint(Passed),
    /// The end of a backup: where its record ends, and where it says that replay began.
    BackupEnd(Lsn, Lsn),
    /// A database copied file by file.
    Copy(Lsn),
    /// From here on the WAL has not all that replay needs.
    Minimal(Lsn),
    Stop(Lsn),
}

/// What the WAL has up to the target.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Checkpoints whose records end before the target.
    pub checkpoints: Vec<Passed>,
    /// Ends of backups: where the record ends, where the backup's replay begins.
    pub backup_ends: Vec<(Lsn, Lsn)>,
    /// Where databases were copied file by file.
    pub copies: Vec<Lsn>,
    pub minimal: Option<Lsn>,
    /// Where the server stops; none when the WAL ends before.
    pub stop: Option<Lsn>,
    /// Where the WAL that was read ends, and why.
    pub end: Lsn,
    pub end_reason: String,
}

struct Worker<'a> {
    target: &'a RecoveryTarget,
}

impl Work for Worker<'_> {
    type Part = Vec<Note>;

    fn read(&mut self, reader: &mut Reader) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        while let Some(record) = reader.next_record()? {
            let stop = self.target.stop(&record);
            if stop.is_none_or(|stop| stop >= record.end) {
                notes.extend(note(&record));
            }
            if let Some(stop) = stop {
                notes.push(Note::Stop(stop));
                break;
            }
        }
        Ok(notes)
    }
}

fn note(record: &Record<'_>) -> Option<Note> {
    let op = record.info & rmgr::OPCODE_MASK;
    let main = || record.main_data();
    match (record.rmid, op) {
        (id::XLOG, CHECKPOINT_SHUTDOWN | CHECKPOINT_ONLINE) => {
            let bytes = *main().first_chunk()?;
            let is_shutdown = op == CHECKPOINT_SHUTDOWN;
            Some(Note::Checkpoint(Passed { start: record.start, end: record.end, bytes, is_shutdown }))
        }
        (id::XLOG, BACKUP_END) => Some(Note::BackupEnd(record.end, Lsn(u64_at(main(), 0)))),
        (id::XLOG, PARAMETER_CHANGE) => {
            let wal_level = Parameters::parse(main())?.wal_level;
            (wal_level == MINIMAL).then_some(Note::Minimal(record.start))
        }
        // XLOG_DBASE_CREATE, since 15 XLOG_DBASE_CREATE_FILE_COPY
        (id::DBASE, 0x00) => Some(Note::Copy(record.start)),
        _ => None,
    }
}

/// Reads the WAL from `range.from` to the target.
pub(crate) fn way(
    log: &Arc<Wal>,
    range: Range,
    target: &RecoveryTarget,
    threads: usize,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Way> {
    let mut way = Way { end: range.to, ..Way::default() };
    let stopped = std::sync::atomic::AtomicBool::new(false);
    let merge = |notes: Vec<Note>| {
        for note in notes {
            match note {
                _ if way.stop.is_some() => break,
                Note::Checkpoint(passed) => way.checkpoints.push(passed),
                Note::BackupEnd(end, since) => way.backup_ends.push((end, since)),
                Note::Copy(at) => way.copies.push(at),
                Note::Minimal(at) => way.minimal = way.minimal.or(Some(at)),
                Note::Stop(at) => way.stop = Some(at),
            }
        }
        stopped.store(way.stop.is_some(), std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let worker = || Worker { target };
    let mut is_interrupted = false;
    let ending = parallel::run(log, range, threads, CHUNK, worker, merge, &mut |done| {
        is_interrupted |= !go_on(done);
        !is_interrupted && !stopped.load(std::sync::atomic::Ordering::Relaxed)
    });
    if is_interrupted {
        return Err(crate::pages::apply::interrupted());
    }
    // Damage behind the target is none of our business.
    if way.stop.is_none() {
        if let Some((end, reason)) = ending?.early {
            (way.end, way.end_reason) = (end, reason);
        }
    }
    Ok(way)
}

impl Way {
    /// Refuses a checkpoint of a timeline that is not the one to be followed.
    pub(crate) fn check_timelines(&self, lineage: &Lineage) -> Result<()> {
        for passed in &self.checkpoints {
            let (has, wanted) = (passed.checkpoint().timeline, lineage.at(passed.start));
            if has != wanted {
                return Err(Error::new(Kind::Invalid, "the archived WAL has a checkpoint of another timeline")
                    .detail(format!("it is of timeline {has}, expected {wanted}"))
                    .hint("the archive has WAL of two servers, or a history file of another one")
                    .at(format!("LSN {}", passed.start)));
            }
        }
        Ok(())
    }
}
