//! Folders of databases and tablespaces that the WAL makes and removes, and the copy of a database's files.
//!
//! Source: `dbase_redo` in `commands/dbcommands.c`, `tblspc_redo` in `commands/tablespace.c`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};

use crate::files::cluster::{failed, reading, sync_file, sync_folder, Cluster};

/// One change of folders, in the order of the WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FolderChange {
    CreateDatabase {
        space: u32,
        database: u32,
    },
    DropDatabase {
        space: u32,
        database: u32,
    },
    /// The path is empty for a tablespace in the data directory itself.
    CreateSpace {
        space: u32,
        path: Vec<u8>,
    },
    DropSpace {
        space: u32,
    },
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

impl FolderChange {
    /// What would fail when it is done: a tablespace whose folder is not here.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            FolderChange::CreateSpace { path, .. } if !path.is_empty() && !path_of(path).is_dir() => {
                Err(Error::new(Kind::NotFound, "the folder of a tablespace is missing")
                    .detail("the WAL creates a tablespace in it")
                    .hint("create the folder, owned by the user of the server, then run the command again")
                    .at(path_of(path)))
            }
            _ => Ok(()),
        }
    }

    /// The tablespace that it makes.
    pub(crate) fn made_space(&self) -> Option<u32> {
        match self {
            FolderChange::CreateSpace { space, .. } => Some(*space),
            _ => None,
        }
    }

    pub(crate) fn apply(&self, cluster: &Cluster) -> Result<()> {
        match self {
            FolderChange::CreateDatabase { space, database } => {
                let folder = cluster.folder(*space, *database);
                cluster.make_folder(&folder)?;
                let version = folder.join("PG_VERSION");
                if !version.exists() {
                    cluster.replace(&version, format!("{}\n", cluster.major).as_bytes())?;
                }
                sync_folder(&folder)?;
                folder.parent().map_or(Ok(()), sync_folder)
            }
            FolderChange::DropDatabase { space, database } => {
                let folder = cluster.folder(*space, *database);
                cluster.remove_folder(&folder)?;
                folder.parent().map_or(Ok(()), sync_folder)
            }
            FolderChange::CreateSpace { space, path } => create_space(cluster, *space, &path_of(path)),
            FolderChange::DropSpace { space } => drop_space(cluster, *space),
        }
    }
}

/// `create_tablespace_directories`.
fn create_space(cluster: &Cluster, space: u32, path: &Path) -> Result<()> {
    let link = cluster.space(space);
    if path.as_os_str().is_empty() {
        cluster.make_folder(&link)?;
        return cluster.make_folder(&link.join(&cluster.version_folder));
    }
    cluster.make_folder(&path.join(&cluster.version_folder))?;
    match fs::symlink_metadata(&link) {
        Ok(about) if about.is_symlink() => {
            cluster.remove_file(&link)?;
        }
        // In recovery the server makes a folder where there is no link yet.
        Ok(_) => cluster.remove_folder(&link)?,
        Err(_) => {}
    }
    symlink(path, &link).map_err(|e| failed("create", &link, &e))?;
    link.parent().map_or(Ok(()), sync_folder)
}

/// `destroy_tablespace_directories`: only what is empty.
fn drop_space(cluster: &Cluster, space: u32) -> Result<()> {
    let link = cluster.space(space);
    let folder = link.join(&cluster.version_folder);
    if let Ok(entries) = fs::read_dir(&folder) {
        for entry in entries.flatten() {
            remove_empty(&entry.path())?;
        }
    }
    remove_empty(&folder)?;
    match fs::symlink_metadata(&link) {
        Ok(about) if about.is_symlink() => {
            cluster.remove_file(&link)?;
        }
        Ok(_) => remove_empty(&link)?,
        Err(_) => {}
    }
    link.parent().map_or(Ok(()), sync_folder)
}

fn remove_empty(path: &Path) -> Result<()> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => Ok(()),
        Err(e) => Err(failed("remove", path, &e)),
    }
}

/// `copydir`: all files of a database's folder, as they are now.
pub(crate) fn copy_database(cluster: &Cluster, from: (u32, u32), to: (u32, u32)) -> Result<()> {
    let (from, to) = (cluster.folder(from.0, from.1), cluster.folder(to.0, to.1));
    cluster.remove_folder(&to)?;
    cluster.make_folder(&to)?;
    for entry in fs::read_dir(&from).map_err(|e| reading(&from, &e))? {
        let entry = entry.map_err(|e| reading(&from, &e))?;
        if entry.path().is_file() {
            let target = to.join(entry.file_name());
            fs::copy(entry.path(), &target).map_err(|e| failed("copy", &target, &e))?;
            sync_file(&target)?;
        }
    }
    sync_folder(&to)?;
    to.parent().map_or(Ok(()), sync_folder)
}
