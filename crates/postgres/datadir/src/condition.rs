//! How well a data directory is: whether what is in its files is all there is, and whether they can be trusted.
//!
//! ```text
//! server runs                          files are as it last wrote them
//! backup_label                         a backup that no server has replayed the log of yet
//! pg_control: shut down                files are whole
//! pg_control: anything else            crashed, or copied while its server ran: the log after `redo` is not in the files
//! ```

use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::{ControlState, DbState};
use leadline_page::Lsn;

use crate::control::{read_bytes, root_above};
use crate::copied::Original;
use crate::dir::DATA_FILE;
use crate::majors::{major_of_catalog, majors_of_control, read_version};
use crate::postmaster::{find_server, PidFile};

/// What its server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Server {
    Running {
        pid: u32,
        in_recovery: bool,
    },
    /// It ended in order: all it knew is in the files.
    Stopped,
    /// A standby that ended in order: what it replayed after the checkpoint that pg_control names may not be in the files.
    StoppedInRecovery,
    /// It ended by force and was not started again. Files copied while it ran look the same when they have no postmaster.pid.
    Crashed,
    /// The files were copied while the server ran, as their postmaster.pid tells, which is that of a server that runs elsewhere: not of
    /// one moment.
    Copied,
    /// A base backup of which the log was not replayed yet.
    Restoring,
    /// There is no pg_control that would tell.
    Unknown,
}

impl Server {
    /// For programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Server::Running { .. } => "running",
            Server::Stopped => "stopped",
            Server::StoppedInRecovery => "stopped in recovery",
            Server::Crashed => "crashed",
            Server::Copied => "copied",
            Server::Restoring => "restoring",
            Server::Unknown => "unknown",
        }
    }
}

/// How well a data directory is.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Its root.
    pub root: PathBuf,
    /// What its server does.
    pub server: Server,
    /// postmaster.pid, where there is one that can be read.
    pub pid_file: Option<PidFile>,
    /// pg_control; the error says why it tells nothing.
    pub control: Result<ControlState>,
    /// What PG_VERSION says; the error says why it cannot be read.
    pub version: Result<String>,
    /// There is a backup_label. A running server of 13 or 14 may have one, of a backup in its exclusive mode.
    pub has_backup_label: bool,
    /// There is a standby.signal.
    pub has_standby_signal: bool,
    /// There is a recovery.signal.
    pub has_recovery_signal: bool,
}

/// One thing that a reader of the files should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// For programs: running, crashed, copied, restoring, stopped-in-recovery, control, control-crc, version.
    pub name: &'static str,
    /// The files are damaged, not only behind.
    pub is_error: bool,
    /// What is so, in one line.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Condition {
    /// Looks at the data directory at `root`. What cannot be read is said in the answer.
    pub fn of(root: &Path) -> Condition {
        let control_path = root.join("global/pg_control");
        let text = read_bytes(&root.join("postmaster.pid")).ok();
        let pid_file = text.and_then(|text| PidFile::parse(&String::from_utf8_lossy(&text)));
        // Asked for the server first: one that stops meanwhile has written its state before it is gone.
        let before = find_server(root, pid_file.as_ref());
        let control = read_bytes(&control_path)
            .map_err(|e| Error::reading(&control_path, "the control file", &e))
            .and_then(|bytes| {
                ControlState::parse(&bytes).map_err(|wrong| {
                    Error::new(Kind::Invalid, "cannot decode pg_control").detail(wrong.to_string()).at(&control_path)
                })
            });
        let is_down = control.as_ref().is_ok_and(|c| c.state.is_shut_down());
        // And again, where one may have started meanwhile.
        let found = before.or_else(|| if is_down { None } else { find_server(root, pid_file.as_ref()) });
        let has = |name: &str| root.join(name).exists();
        let has_backup_label = has("backup_label");
        let server = match (found, &control) {
            (Some(pid), control) => {
                let in_recovery = control.as_ref().is_ok_and(|c| c.state.is_in_recovery());
                Server::Running { pid, in_recovery }
            }
            (None, Err(_)) => Server::Unknown,
            (None, Ok(_)) if has_backup_label => Server::Restoring,
            (None, Ok(control)) => match control.state {
                DbState::Shutdowned => Server::Stopped,
                DbState::ShutdownedInRecovery => Server::StoppedInRecovery,
                _ => match Original::of(root, pid_file.as_ref(), control) {
                    Some(original) if original.ran => Server::Copied,
                    _ => Server::Crashed,
                },
            },
        };
        Condition {
            root: root.to_owned(),
            server,
            pid_file,
            control,
            version: read_version(root).map_err(|e| Error::reading(&root.join("PG_VERSION"), DATA_FILE, &e)),
            has_backup_label,
            has_standby_signal: has("standby.signal"),
            has_recovery_signal: has("recovery.signal"),
        }
    }

    /// The same for the data directory that a file is in; none when it is in none.
    pub fn around(file: &Path) -> Option<Condition> {
        root_above(file).map(|root| Condition::of(&root))
    }

    /// Whether a server may change the files now.
    pub fn is_running(&self) -> bool {
        matches!(self.server, Server::Running { .. })
    }

    /// From where on the log may not be in the files; none when all of it is.
    ///
    /// Of a running server more than the log may be missing: what it has in memory, and unlogged tables.
    pub fn behind_since(&self) -> Option<Lsn> {
        let control = self.control.as_ref().ok()?;
        match self.server {
            Server::Stopped | Server::Unknown => None,
            Server::StoppedInRecovery => replayed_since(control),
            _ => Some(control.redo),
        }
    }

    /// PG_VERSION and the major that pg_control is of, when they differ. Of a build whose catalog version is not known, the major is
    /// the first that has control files of its version.
    pub fn differing_majors(&self) -> Option<(String, u32)> {
        let (version, control) = (self.version.as_ref().ok()?, self.control.as_ref().ok()?);
        // A file that was damaged says nothing of its major.
        if control.wrong_crc.is_some() {
            return None;
        }
        let known = match major_of_catalog(control.catalog_version_no) {
            Some(major) => vec![major],
            None => majors_of_control(control.pg_control_version),
        };
        let first = *known.first()?;
        (!known.iter().any(|major| major.to_string() == *version)).then(|| (version.clone(), first))
    }

    /// What a reader of the files should know, errors first; empty when they are whole and nobody writes them.
    pub fn remarks(&self) -> Vec<Remark> {
        let mut remarks = self.damage();
        let redo = self.behind_since().map_or_else(String::new, |redo| format!(" after {redo}"));
        let mut say = |name, message: String, hint: &str| {
            remarks.push(Remark { name, is_error: false, message, hint: hint.into() });
        };
        let replay = "start the server to replay its WAL, then stop it; or read the files as they are";
        match self.server {
            Server::Stopped | Server::Unknown => {}
            Server::Running { in_recovery, .. } => say(
                "running",
                "the server is running: the files lack changes that are only in its memory".into(),
                if in_recovery { "run CHECKPOINT on the primary, then on this server, to write them" } else { "run CHECKPOINT to write them" },
            ),
            // Of which all that it replayed is in the files.
            Server::StoppedInRecovery if redo.is_empty() => {}
            Server::StoppedInRecovery => say(
                "stopped-in-recovery",
                format!("a stopped standby: changes that it replayed{redo} may be missing from the files"),
                "run CHECKPOINT on the primary, then on the standby, before stopping the standby",
            ),
            Server::Crashed => say(
                "crashed",
                format!("the server was not shut down cleanly, or the files were copied while it was running: changes in its WAL{redo} may be missing from the files"),
                replay,
            ),
            Server::Copied => say(
                "copied",
                format!("the files were copied while the server was running: they are not consistent, and changes in its WAL{redo} may be missing from them"),
                "copy with pg_basebackup, or stop the server before copying",
            ),
            Server::Restoring => say(
                "restoring",
                format!("a backup that was not restored (backup_label): changes in its WAL{redo} may be missing from the files"),
                replay,
            ),
        }
        remarks
    }

    fn damage(&self) -> Vec<Remark> {
        let error = |name, message: String, hint: &str| Remark { name, is_error: true, message, hint: hint.into() };
        let mut found = Vec::new();
        match &self.control {
            Err(e) => found.push(error("control", [e.message.as_str(), e.detail.as_str()].join(": "), "")),
            Ok(control) => found.extend(control.wrong_crc.as_ref().map(|wrong| {
                error(
                    "control-crc",
                    format!("pg_control is damaged: its checksum is {}, expected {}", wrong.found, wrong.wanted),
                    "its values for page size, checksums and transactions may be wrong; restore the file from a backup",
                )
            })),
        }
        if let Some((version, major)) = self.differing_majors() {
            found.push(error(
                "version",
                format!("PG_VERSION says {version}, but pg_control is from {major}"),
                "files of two data directories were mixed, or PG_VERSION was edited",
            ));
        }
        found
    }
}

/// Where the log begins of which a standby that was stopped may not have written all; none when it replayed nothing after the checkpoint
/// that its files hold.
///
/// It writes all that it replayed when it ends, but only if its primary made a checkpoint since it last did that. pg_control is the same
/// either way; it tells for certain only how far it replayed.
fn replayed_since(control: &ControlState) -> Option<Lsn> {
    const RECORD: u64 = 120; // a checkpoint's, of 114 bytes and aligned, in each major
    const PAGE_HEADER: u64 = 40; // the longer one: with the shorter, what is over has no room for a record
    let (at, page) = (control.checkpoint.0, u64::from(control.xlog_blcksz));
    let crosses = at % page + RECORD > page;
    let end = at.saturating_add(RECORD + if crosses { PAGE_HEADER } else { 0 });
    (control.min_recovery_point.0 > end).then_some(control.checkpoint)
}
