//! What is refused, before anything is written.

use std::path::Path;

use leadline_datadir::{read_control, Condition, DataDir, Doubt, Original, Server};
use leadline_errors::{Error, Kind, Result};
use leadline_wal::kept::Kept;
use leadline_wal::{Lsn, Wal};

use crate::files::cluster::Cluster;
use crate::files::control::{ControlFile, ARCHIVE_RECOVERY, SHUTDOWN_IN_RECOVERY, SHUT_DOWN};
use crate::handover::checkpoint::End;
use crate::read::state::State;

/// Records whole, however long.
pub(crate) const KEEP_ALL: Kept = Kept { front: usize::MAX, main: usize::MAX, piece: 1 << 16 };

/// The size of pages that all released builds have.
const PAGE: usize = 8192;

/// What all refusals end with.
const SERVER: &str = "start the server: its own recovery works as before";

pub(crate) fn refused(message: &str) -> Error {
    Error::new(Kind::Unsupported, message).hint(SERVER)
}

pub(crate) fn running(pid: u32) -> Error {
    Error::new(Kind::Usage, "the server is running")
        .detail(format!("pid {pid}"))
        .hint("only a server that is down can be recovered")
}

/// What is known of a directory before its WAL is read.
pub(crate) struct Looked {
    pub cluster: Cluster,
    pub control: ControlFile,
    pub condition: Condition,
}

impl Looked {
    /// Whether archive recovery is asked for.
    pub(crate) fn has_signal(&self) -> bool {
        self.condition.has_recovery_signal || self.condition.has_standby_signal
    }
}

/// Looks at the directory, whatever is to be done with it.
pub(crate) fn look_at(root: &Path) -> Result<Looked> {
    let dir = DataDir::open(root)?;
    let condition = Condition::of(root);
    if let Server::Running { pid, .. } = condition.server {
        return Err(running(pid).at(root));
    }
    refuse_copy(root, &condition)?;
    let control = ControlFile::open(root)?;
    if let Some((version, major)) = condition.differing_majors() {
        return Err(
            Error::new(Kind::Invalid, format!("PG_VERSION says {version}, but pg_control is from {major}")).at(root)
        );
    }
    if dir.block_size != PAGE {
        return Err(refused("only data directories with pages of 8 kB can be recovered")
            .detail(format!("this one has pages of {} bytes", dir.block_size))
            .at(&control.path));
    }
    let (layout, _) = read_control(root)?;
    let major = dir.major as u8;
    let cluster =
        Cluster::new(root, major, control.catalog_version(), dir.block_size, layout.relseg_size, dir.checksums)?;
    Ok(Looked { cluster, control, condition })
}

/// Refuses a copy that may not be of one moment: its server ran when it was made, or may have run.
fn refuse_copy(root: &Path, condition: &Condition) -> Result<()> {
    let Ok(control) = &condition.control else { return Ok(()) };
    if !matches!(condition.server, Server::Copied | Server::Crashed) {
        return Ok(());
    }
    let Some(original) = Original::of(root, condition.pid_file.as_ref(), control) else { return Ok(()) };
    let named = format!("postmaster.pid names {}", original.root.display());
    let no_other = "copy with pg_basebackup, or stop the server before copying";
    if original.ran {
        return Err(Error::new(Kind::Unsupported, "the files were copied while their server was running")
            .detail(format!("{named}, where that server still runs"))
            .hint(no_other)
            .at(root));
    }
    let doubt = match original.is_left_behind(root) {
        Ok(()) => return Ok(()),
        Err(Doubt::Shared(folder)) => {
            return Err(Error::new(
                Kind::Unsupported,
                "this copy shares a folder with the data directory it was made from",
            )
            .detail(format!("{named}, and both lead to the same files here"))
            .hint("copy that folder too, and let the copy's link lead there")
            .at(folder));
        }
        Err(Doubt::Runs(pid)) => format!("a server runs there again (pid {pid})"),
        Err(Doubt::Differs(file)) => format!("{} was changed since, or was not copied", file.display()),
    };
    Err(Error::new(
        Kind::Unsupported,
        "this is a copy, and it is not known whether its server was running when it was made",
    )
    .detail(format!("{named}; {doubt}"))
    .hint(format!(
        "if the server was down, remove postmaster.pid from the copy and run the command again; otherwise {no_other}"
    ))
    .at(root))
}

/// Looks at the directory of a server that crashed; none when it was shut down in order.
pub(crate) fn look(root: &Path) -> Result<Option<(Cluster, ControlFile)>> {
    let Looked { cluster, control, condition } = look_at(root)?;
    for (is_there, name, what) in [
        (condition.has_backup_label, "backup_label", "a base backup"),
        (condition.has_recovery_signal, "recovery.signal", "a data directory for archive recovery"),
        (condition.has_standby_signal, "standby.signal", "a standby"),
    ] {
        if is_there {
            return Err(Error::new(Kind::Usage, format!("this is {what}, not a server that crashed"))
                .hint("give its archived WAL, with --archive or --restore-command; or start the server")
                .at(root.join(name)));
        }
    }
    match control.state() {
        SHUT_DOWN => return Ok(None),
        SHUTDOWN_IN_RECOVERY | ARCHIVE_RECOVERY => {
            return Err(refused("this is a standby or an archive recovery, not a server that crashed")
                .detail("pg_control says that the server was in recovery")
                .at(&control.path));
        }
        _ => {}
    }
    if control.backup().is_some() {
        return Err(refused("this is a base backup, not a server that crashed")
            .detail("pg_control names the start of a backup")
            .at(&control.path));
    }
    Ok(Some((cluster, control)))
}

/// Whether the WAL is this server's.
pub(crate) fn check_log(cluster: &Cluster, control: &ControlFile, log: &Wal) -> Result<()> {
    let wrong = |message: &str, found: String, wanted: String| {
        Err(Error::new(Kind::Invalid, message).detail(format!("{found}, pg_control says {wanted}")).at(&log.path))
    };
    if log.system_id != control.system_id() {
        return wrong("the WAL is from another server", log.system_id.to_string(), control.system_id().to_string());
    }
    if log.major != cluster.major {
        return wrong("the WAL is from another version", log.major.to_string(), cluster.major.to_string());
    }
    if log.segment_size != u64::from(control.wal_segment_size()) {
        return wrong(
            "the WAL has segments of another size",
            log.segment_size.to_string(),
            control.wal_segment_size().to_string(),
        );
    }
    Ok(())
}

/// Whether the WAL begins and ends where the control file says that it must.
pub(crate) fn check_end(cluster: &Cluster, control: &ControlFile, state: &State, end: &End) -> Result<()> {
    let pg_wal = cluster.root.join("pg_wal");
    if !state.checkpoint_seen {
        return Err(Error::new(Kind::Invalid, "the WAL does not have the checkpoint that pg_control names")
            .detail(format!("the checkpoint is at {}, the WAL ends at {}", Lsn(control.checkpoint_at()), Lsn(end.at)))
            .hint("segments of the WAL are missing or damaged: the server would not start either")
            .at(pg_wal));
    }
    if control.min_recovery_point() > end.at {
        return Err(Error::new(Kind::Invalid, "the WAL ends before the data directory is consistent")
            .detail(format!("it must reach {}, but ends at {}", Lsn(control.min_recovery_point()), Lsn(end.at)))
            .at(pg_wal));
    }
    Ok(())
}

/// Whether what the WAL holds can be done. `linked`: tablespaces whose links will be made.
pub(crate) fn check_state(cluster: &Cluster, state: &State, linked: &[u32]) -> Result<()> {
    if let Some((rmid, lsn)) = state.custom {
        return Err(refused("the WAL has records of an extension, which only the extension can replay")
            .detail(format!("resource manager {rmid}"))
            .at(format!("LSN {}", Lsn(lsn))));
    }
    for stage in &state.stages {
        stage.folders.iter().try_for_each(|change| change.check())?;
        let made: Vec<u32> = stage.folders.iter().filter_map(|change| change.made_space()).collect();
        for (relation, _, _) in stage.fork_changes.forks() {
            let space = relation.spc;
            if matches!(space, 1663 | 1664) || made.contains(&space) || linked.contains(&space) {
                continue;
            }
            let folder = cluster.space(space).join(&cluster.version_folder);
            if !folder.is_dir() {
                return Err(Error::new(Kind::NotFound, "the folder of a tablespace is missing")
                    .detail(format!("the WAL changes files of tablespace {space}"))
                    .hint("restore the link and its folder, then run the command again")
                    .at(folder));
            }
        }
    }
    Ok(())
}
