//! `postmaster.pid` while recovery runs, so that no server starts meanwhile.
//!
//! A server refuses to start when the file names a process that lives and that it may signal; it removes the file of one that was
//! killed. Source: `CreateLockFile` in `utils/init/miscinit.c`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use leadline_datadir::{find_server, PidFile};
use leadline_errors::{Error, Kind, Result};

use crate::files::cluster::failed;

/// The file, ours until it is released.
pub(crate) struct Lock {
    path: PathBuf,
}

impl Lock {
    pub(crate) fn take(root: &Path) -> Result<Lock> {
        let path = root.join("postmaster.pid");
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let text = format!("{}\n{}\n{started}\n0\n\n\n", std::process::id(), root.display());
        for _ in 0..2 {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
                    if let Err(e) = written {
                        let _ = fs::remove_file(&path);
                        return Err(failed("write", &path, &e));
                    }
                    return Ok(Lock { path });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    refuse_if_alive(&root, &path)?;
                    // Of a server that was killed: the server would remove it, too.
                    fs::remove_file(&path).map_err(|e| failed("remove", &path, &e))?;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(Error::new(Kind::NotFound, "no such file or folder").at(root));
                }
                Err(e) => return Err(failed("create", &path, &e)),
            }
        }
        Err(Error::new(Kind::Gone, "postmaster.pid came back while it was being replaced").at(&path))
    }

    /// Removes it.
    pub(crate) fn release(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn refuse_if_alive(root: &Path, path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let noted = PidFile::parse(&text);
    if let Some(pid) = find_server(root, noted.as_ref()) {
        return Err(crate::preflight::running(pid).at(path));
    }
    let pid = noted.map_or(0, |noted| noted.pid.unsigned_abs());
    // Another recovery: a program of this name, not any process that has got the number since.
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if pid != u64::from(std::process::id()) && (comm.contains("leadline") || command.contains("leadline")) {
        return Err(Error::new(Kind::Usage, "this data directory is being recovered by another process")
            .detail(format!("pid {pid}"))
            .at(path));
    }
    Ok(())
}
