//! What pg_control says of the server: its state, its last checkpoint, and how far its log must be replayed.

use super::control::{describe_control, log_block_size};
use crate::lsn::Lsn;
use crate::part::{Value, Wrong};

/// What the server did when it last wrote the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DbState {
    Startup,
    Shutdowned,
    ShutdownedInRecovery,
    Shutdowning,
    InCrashRecovery,
    InArchiveRecovery,
    InProduction,
    /// A number that no server writes.
    Other(u32),
}

impl DbState {
    fn of(number: u32) -> DbState {
        match number {
            0 => DbState::Startup,
            1 => DbState::Shutdowned,
            2 => DbState::ShutdownedInRecovery,
            3 => DbState::Shutdowning,
            4 => DbState::InCrashRecovery,
            5 => DbState::InArchiveRecovery,
            6 => DbState::InProduction,
            other => DbState::Other(other),
        }
    }

    /// Whether the server had ended in order when it wrote this.
    pub fn is_shut_down(self) -> bool {
        matches!(self, DbState::Shutdowned | DbState::ShutdownedInRecovery)
    }

    /// Whether the server was replaying its log.
    pub fn is_in_recovery(self) -> bool {
        matches!(self, DbState::ShutdownedInRecovery | DbState::InCrashRecovery | DbState::InArchiveRecovery)
    }
}

/// What pg_control of 13 to 18 says of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ControlState {
    pub system_identifier: u64,
    pub pg_control_version: u32,
    pub catalog_version_no: u32,
    pub state: DbState,
    /// The last checkpoint's record.
    pub checkpoint: Lsn,
    /// From where on the log is to be replayed: what is before is in the files.
    pub redo: Lsn,
    pub timeline: u32,
    /// As of the last checkpoint; the lower half.
    pub next_xid: u32,
    pub next_multi: u32,
    pub next_multi_offset: u32,
    /// Older ones are in no row that asks for them.
    pub oldest_xid: u32,
    pub oldest_multi: u32,
    /// Earlier ones had ended at the checkpoint; 0 when it does not say.
    pub oldest_active_xid: u32,
    /// How far the log must be replayed before the files fit each other; 0 of a primary.
    pub min_recovery_point: Lsn,
    /// Bytes of a page of the log.
    pub xlog_blcksz: u32,
    /// Where the backup began that is being restored; 0 when there is none.
    pub backup_start_point: Lsn,
    /// The checksum that is not as it should be: then nothing else here is certain.
    pub wrong_crc: Option<Wrong>,
}

impl ControlState {
    /// From the file's content.
    ///
    /// # Errors
    /// When it is of a version that is not known, or too short.
    pub fn parse(bytes: &[u8]) -> Result<ControlState, Wrong> {
        let (parts, wrong, _) = describe_control(bytes);
        let (crc, other): (Vec<Wrong>, Vec<Wrong>) = wrong.into_iter().partition(|w| w.class == "checksum");
        if let Some(wrong) = other.into_iter().next() {
            return Err(wrong);
        }
        let value = |name: &'static str| {
            parts.iter().find_map(|part| part.field(name)).map(|field| &field.value).ok_or_else(|| Wrong {
                class: "control",
                what: name,
                item: None,
                offset: bytes.len(),
                wanted: "a file that has it".into(),
                found: format!("a file of {}", bytes.len()),
            })
        };
        let number = |name| Ok(if let Value::Number(n) = value(name)? { *n } else { 0 });
        let lower = |name| number(name).map(|n| n as u32);
        let lsn = |name| Ok(if let Value::Lsn(n) = value(name)? { Lsn(*n) } else { Lsn(0) });
        Ok(ControlState {
            system_identifier: number("system_identifier")?,
            pg_control_version: lower("pg_control_version")?,
            catalog_version_no: lower("catalog_version_no")?,
            state: DbState::of(lower("state")?),
            checkpoint: lsn("checkPoint")?,
            redo: lsn("redo")?,
            timeline: lower("ThisTimeLineID")?,
            next_xid: lower("nextXid")?,
            next_multi: lower("nextMulti")?,
            next_multi_offset: lower("nextMultiOffset")?,
            oldest_xid: lower("oldestXid")?,
            oldest_multi: lower("oldestMulti")?,
            oldest_active_xid: lower("oldestActiveXid")?,
            min_recovery_point: lsn("minRecoveryPoint")?,
            xlog_blcksz: log_block_size(lower("xlog_blcksz")?),
            backup_start_point: lsn("backupStartPoint")?,
            wrong_crc: crc.into_iter().next(),
        })
    }
}
