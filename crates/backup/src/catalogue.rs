//! The backups of a repository, whichever tool made it.

use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};

use crate::store::{self, entries, is_file, is_folder};
use crate::{barman, tars, walg};

/// The folders of all backups at or below a path, in the order of their names: complete or not, they are to be accounted for.
///
/// Of pgBackRest REPO or REPO/backup/STANZA, of barman its home or a server's folder, of WAL-G the folder with `basebackups_005`, and any
/// folder of folders that `pg_basebackup` made.
///
/// # Errors
/// When a folder cannot be listed, or there is no backup.
pub fn backups_in(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let below = folders(path)?;
    let mut found = Vec::new();
    for folder in std::iter::once(path.to_owned()).chain(below) {
        found.extend(of_pgbackrest(&folder)?);
        if folder.file_name().is_some_and(|name| name == "backup") {
            for stanza in folders(&folder)? {
                found.extend(of_pgbackrest(&stanza)?);
            }
        }
        let base = folder.join("base");
        if is_folder(&base) && !store::exists(&folder.join("PG_VERSION")) {
            found.extend(folders(&base)?.into_iter().filter(|backup| is_file(&backup.join(barman::INFO))));
        }
        if folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("basebackups_")) {
            found.extend(folders(&folder)?.into_iter().filter(|backup| is_folder(&backup.join("tar_partitions"))));
        }
        if is_file(&folder.join("PG_VERSION")) || tars::is_folder_of_archives(&folder) {
            found.push(folder);
        }
    }
    found.sort();
    found.dedup();
    match found.is_empty() {
        true => Err(Error::new(Kind::NotFound, "no backups here")
            .hint("name a repository of pgBackRest, barman or WAL-G, or a folder of backups that pg_basebackup made")
            .at(path)),
        false => Ok(found),
    }
}

/// Those of a stanza: its backup.info is beside them, also when one is being made.
fn of_pgbackrest(stanza: &Path) -> Result<Vec<PathBuf>, Error> {
    if !is_file(&stanza.join("backup.info")) && !is_file(&stanza.join("backup.info.copy")) {
        return Ok(Vec::new());
    }
    let is_backup = |folder: &PathBuf| {
        ["backup.manifest", "backup.manifest.copy"].iter().any(|name| is_file(&folder.join(name)))
            && !store::is_link(folder) // "latest" is one of the others
    };
    Ok(folders(stanza)?.into_iter().filter(is_backup).collect())
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = entries(path).map_err(|e| Error::reading(path, "the folder", &e))?;
    Ok(listed.into_iter().map(|entry| entry.path).filter(|path| is_folder(path)).collect())
}

/// The file that says what is in a backup: while it is the same, so is the backup.
pub fn list_of(backup: &Path) -> PathBuf {
    let mut sentinel = backup.as_os_str().to_owned();
    sentinel.push(walg::SENTINEL);
    let lists =
        ["backup.manifest", barman::INFO, "backup_manifest", "base.tar", "backup_label"].map(|name| backup.join(name));
    let mut lists = std::iter::once(PathBuf::from(sentinel)).chain(lists);
    lists.find(|list| is_file(list)).unwrap_or_else(|| backup.to_owned())
}
