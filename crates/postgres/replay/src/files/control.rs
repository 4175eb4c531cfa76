//! `global/pg_control` as recovery reads and writes it: the last checkpoint, the state, and the settings a standby must know.
//!
//! Source: `catalog/pg_control.h`. The offsets are the same from 13 to 18, but for the place of the checksum.

use std::path::{Path, PathBuf};

use leadline_datadir::read_bytes;
use leadline_errors::{Error, Kind, Result};

/// `CheckPoint`, which is also the main data of a checkpoint's record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Checkpoint {
    /// Where replay begins.
    pub redo: u64,
    pub timeline: u32,
    pub prev_timeline: u32,
    pub full_page_writes: bool,
    /// Of 17 and later.
    pub wal_level: u32,
    /// With the epoch in the upper half.
    pub next_xid: u64,
    pub next_oid: u32,
    pub next_multi: u32,
    pub next_multi_offset: u32,
    pub oldest_xid: u32,
    pub oldest_xid_db: u32,
    pub oldest_multi: u32,
    pub oldest_multi_db: u32,
    /// Seconds since 1970.
    pub time: i64,
    pub oldest_commit_ts_xid: u32,
    pub newest_commit_ts_xid: u32,
    pub oldest_active_xid: u32,
}

/// `sizeof(CheckPoint)`.
pub(crate) const CHECKPOINT_SIZE: usize = 88;

impl Checkpoint {
    /// From a record's main data or the copy in the control file; none when it is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Checkpoint> {
        let bytes: &[u8; CHECKPOINT_SIZE] = bytes.first_chunk()?;
        let (u32_at, u64_at) = (|at| u32_at(bytes, at), |at| u64_at(bytes, at));
        Some(Checkpoint {
            redo: u64_at(0),
            timeline: u32_at(8),
            prev_timeline: u32_at(12),
            full_page_writes: bytes[16] != 0,
            wal_level: u32_at(20),
            next_xid: u64_at(24),
            next_oid: u32_at(32),
            next_multi: u32_at(36),
            next_multi_offset: u32_at(40),
            oldest_xid: u32_at(44),
            oldest_xid_db: u32_at(48),
            oldest_multi: u32_at(52),
            oldest_multi_db: u32_at(56),
            time: u64_at(64) as i64,
            oldest_commit_ts_xid: u32_at(72),
            newest_commit_ts_xid: u32_at(76),
            oldest_active_xid: u32_at(80),
        })
    }

    pub(crate) fn to_bytes(self, major: u8) -> [u8; CHECKPOINT_SIZE] {
        let mut bytes = [0; CHECKPOINT_SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.redo.to_le_bytes());
        put(8, &self.timeline.to_le_bytes());
        put(12, &self.prev_timeline.to_le_bytes());
        put(16, &[self.full_page_writes.into()]);
        if major >= 17 {
            put(20, &self.wal_level.to_le_bytes());
        }
        put(24, &self.next_xid.to_le_bytes());
        put(64, &self.time.to_le_bytes());
        let words = [
            (32, self.next_oid),
            (36, self.next_multi),
            (40, self.next_multi_offset),
            (44, self.oldest_xid),
            (48, self.oldest_xid_db),
            (52, self.oldest_multi),
            (56, self.oldest_multi_db),
            (72, self.oldest_commit_ts_xid),
            (76, self.newest_commit_ts_xid),
            (80, self.oldest_active_xid),
        ];
        for (at, word) in words {
            put(at, &word.to_le_bytes());
        }
        bytes
    }
}

/// Settings that the WAL tells when they change (`xl_parameter_change`), because a standby must be able to follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// `MaxConnections`, `max_worker_processes`, `max_wal_senders`, `max_prepared_xacts`, `max_locks_per_xact`.
    numbers: [u32; 5],
    pub wal_level: u32,
    pub wal_log_hints: bool,
    pub track_commit_timestamp: bool,
}

/// Where the control file has those numbers.
const NUMBERS_AT: [usize; 5] = [180, 184, 188, 192, 196];

impl Parameters {
    /// From the record `XLOG_PARAMETER_CHANGE`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Parameters> {
        let bytes: &[u8; 26] = bytes.first_chunk()?;
        Some(Parameters {
            numbers: [0, 4, 8, 12, 16].map(|at| u32_at(bytes, at)),
            wal_level: u32_at(bytes, 20),
            wal_log_hints: bytes[24] != 0,
            track_commit_timestamp: bytes[25] != 0,
        })
    }
}

/// `DBState`.
pub(crate) const SHUT_DOWN: u32 = 1;
pub(crate) const SHUTDOWN_IN_RECOVERY: u32 = 2;
pub(crate) const ARCHIVE_RECOVERY: u32 = 5;
/// `FirstNormalUnloggedLSN`: where the server begins to count again after a crash.
const FIRST_UNLOGGED_LSN: u64 = 1000;

const VERSION: usize = 8;
const CATALOG_VERSION: usize = 12;
const STATE: usize = 16;
const TIME: usize = 24;
const CHECKPOINT_AT: usize = 32;
const COPY: usize = 40;
const UNLOGGED_LSN: usize = 128;
const MIN_RECOVERY_POINT: usize = 136;
const BACKUP: usize = 152;
const WAL_LEVEL: usize = 172;
const TRACK_COMMIT_TIMESTAMP: usize = 200;
const SEGMENT_SIZE: usize = 228;

/// A backup whose end is still to come: `backupStartPoint`, `backupEndPoint`, `backupEndRequired`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backup {
    pub start: u64,
    /// 0 when a record tells it.
    pub end: u64,
    pub is_end_required: bool,
}

/// The control file of a data directory.
#[derive(Debug, Clone)]
pub(crate) struct ControlFile {
    pub path: PathBuf,
    bytes: Vec<u8>,
    /// Where its checksum is.
    crc: usize,
}

impl ControlFile {
    pub(crate) fn open(root: &Path) -> Result<ControlFile> {
        let path = root.join("global/pg_control");
        let bytes = read_bytes(&path).map_err(|e| Error::reading(&path, "the control file", &e))?;
        let version = u32_at(&bytes, VERSION);
        let crc = if version >= 1800 { 292 } else { 288 };
        let wrong = |what: &str, detail: String| Error::new(Kind::Invalid, what).detail(detail).at(&path);
        if bytes.len() < 512 {
            return Err(wrong("pg_control is truncated", format!("it has {} bytes", bytes.len())));
        }
        if ![1300, 1700, 1800].contains(&version) {
            return Err(Error::new(Kind::Unsupported, "pg_control is not of PostgreSQL 13 to 18")
                .detail(format!("its version is {version}"))
                .at(&path));
        }
        let (stored, computed) = (u32_at(&bytes, crc), crc32c::crc32c(&bytes[..crc]));
        if stored != computed {
            return Err(wrong(
                "pg_control is damaged",
                format!("its checksum is 0x{stored:08x}, computed 0x{computed:08x}"),
            ));
        }
        Ok(ControlFile { path, bytes, crc })
    }

    #[cfg(test)]
    pub(crate) fn blank() -> ControlFile {
        ControlFile { path: PathBuf::new(), bytes: vec![0; 8192], crc: 292 }
    }

    fn word(&self, at: usize) -> u32 {
        u32_at(&self.bytes, at)
    }

    /// `DBState`.
    pub(crate) fn state(&self) -> u32 {
        self.word(STATE)
    }

    pub(crate) fn catalog_version(&self) -> u32 {
        self.word(CATALOG_VERSION)
    }

    pub(crate) fn system_id(&self) -> u64 {
        u64_at(&self.bytes, 0)
    }

    /// Where the record of the last checkpoint begins.
    pub(crate) fn checkpoint_at(&self) -> u64 {
        u64_at(&self.bytes, CHECKPOINT_AT)
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint::parse(&self.bytes[COPY..]).unwrap_or_default()
    }

    pub(crate) fn min_recovery_point(&self) -> u64 {
        u64_at(&self.bytes, MIN_RECOVERY_POINT)
    }

    pub(crate) fn min_recovery_timeline(&self) -> u32 {
        self.word(MIN_RECOVERY_POINT + 8)
    }

    /// The backup whose end was not reached yet.
    pub(crate) fn backup(&self) -> Option<Backup> {
        let [start, end] = [0, 8].map(|at| u64_at(&self.bytes, BACKUP + at));
        let is_end_required = self.bytes[BACKUP + 16] != 0;
        (start != 0 || end != 0 || is_end_required).then_some(Backup { start, end, is_end_required })
    }

    pub(crate) fn wal_log_hints(&self) -> bool {
        self.bytes[WAL_LEVEL + 4] != 0
    }

    pub(crate) fn tracks_commit_timestamps(&self) -> bool {
        self.bytes[TRACK_COMMIT_TIMESTAMP] != 0
    }

    pub(crate) fn wal_level(&self) -> u32 {
        self.word(WAL_LEVEL)
    }

    /// Bytes of a segment of the WAL.
    pub(crate) fn wal_segment_size(&self) -> u32 {
        self.word(SEGMENT_SIZE)
    }

    pub(crate) fn set_parameters(&mut self, parameters: &Parameters) {
        for (at, number) in NUMBERS_AT.into_iter().zip(parameters.numbers) {
            self.put(at, &number.to_le_bytes());
        }
        self.put(WAL_LEVEL, &parameters.wal_level.to_le_bytes());
        self.put(WAL_LEVEL + 4, &[parameters.wal_log_hints.into()]);
        self.put(TRACK_COMMIT_TIMESTAMP, &[parameters.track_commit_timestamp.into()]);
    }

    /// The state of a server that was shut down with this checkpoint, whose record begins where it says redo does.
    pub(crate) fn set_checkpoint(&mut self, checkpoint: Checkpoint, major: u8) {
        self.put(STATE, &SHUT_DOWN.to_le_bytes());
        self.put(UNLOGGED_LSN, &FIRST_UNLOGGED_LSN.to_le_bytes());
        self.put(TIME, &checkpoint.time.to_le_bytes());
        self.put(CHECKPOINT_AT, &checkpoint.redo.to_le_bytes());
        self.put(COPY, &checkpoint.to_bytes(major));
        // minRecoveryPoint and its timeline.
        self.put(MIN_RECOVERY_POINT, &[0; 12]);
        self.set_backup(None);
    }

    /// The state of a server in archive recovery whose last restartpoint is at a checkpoint.
    pub(crate) fn set_restartpoint(
        &mut self,
        at: u64,
        record: &[u8; CHECKPOINT_SIZE],
        backup: Option<Backup>,
        time: i64,
    ) {
        self.put(STATE, &ARCHIVE_RECOVERY.to_le_bytes());
        self.put(TIME, &time.to_le_bytes());
        self.put(CHECKPOINT_AT, &at.to_le_bytes());
        self.put(COPY, record);
        self.set_backup(backup);
    }

    /// Recovery must not end before.
    pub(crate) fn raise_min_recovery_point(&mut self, lsn: u64, timeline: u32) {
        if self.min_recovery_point() < lsn {
            self.put(MIN_RECOVERY_POINT, &lsn.to_le_bytes());
            self.put(MIN_RECOVERY_POINT + 8, &timeline.to_le_bytes());
        }
    }

    fn set_backup(&mut self, backup: Option<Backup>) {
        let Backup { start, end, is_end_required } = backup.unwrap_or_default();
        self.put(BACKUP, &start.to_le_bytes());
        self.put(BACKUP + 8, &end.to_le_bytes());
        self.put(BACKUP + 16, &[is_end_required.into()]);
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// The file's bytes, with the checksum they need.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let crc = crc32c::crc32c(&bytes[..self.crc]);
        bytes[self.crc..self.crc + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_written_as_it_is_read() {
        let bytes: Vec<u8> = (1..=88).collect();
        let mut wanted: [u8; 88] = bytes[..].try_into().unwrap();
        let parsed = Checkpoint::parse(&bytes).unwrap();
        // What is between the fields is zero, and a truth is 0 or 1.
        wanted[16] = 1;
        wanted[17..20].fill(0);
        wanted[60..64].fill(0);
        wanted[84..].fill(0);
        assert_eq!(parsed.to_bytes(18), wanted);
        wanted[20..24].fill(0);
        assert_eq!(parsed.to_bytes(16), wanted);
        assert_eq!(Checkpoint::parse(&bytes[..87]), None);
    }

    #[test]
    fn a_restartpoint_never_takes_the_least_place_back() {
        let mut control = ControlFile::blank();
        let backup = Backup { start: 7, end: 8, is_end_required: true };
        control.set_restartpoint(500, &[1; CHECKPOINT_SIZE], Some(backup), 9);
        control.raise_min_recovery_point(600, 2);
        assert_eq!((control.state(), control.checkpoint_at(), control.backup()), (ARCHIVE_RECOVERY, 500, Some(backup)));
        control.set_restartpoint(400, &[2; CHECKPOINT_SIZE], None, 9);
        control.raise_min_recovery_point(599, 1);
        assert_eq!((control.min_recovery_point(), control.min_recovery_timeline()), (600, 2));
        assert_eq!((control.checkpoint_at(), control.backup()), (400, None));
    }
}
