//! Backups in a catalogue of barman: `SERVER/base/ID` with `backup.info`, the copied files in `data` and a folder for each tablespace, or
//! archives of them in `data`. `barman-cloud-backup` puts archives beside `backup.info`: data.tar, 16400.tar, and as many more of each as they
//! need, data_0001.tar.
//!
//! Source: barman/infofile.py, barman/backup_executor.py, barman/cloud.py.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};

use crate::folder::Folder;
use crate::place::plain;
use crate::store::{self, What};
use crate::tars::{is_number, is_tar_name, whole_name, Tars};
use crate::{Backup, GoOn, Member, Unread, Visit, Wants};

pub(crate) const INFO: &str = "backup.info";
const LONGEST: u64 = 1 << 20;
/// What a backup is when all its files are there; of the second one some WAL is not.
const COMPLETE: [&str; 2] = ["DONE", "WAITING_FOR_WALS"];

/// One backup.
pub(crate) struct Barman {
    inner: Box<dyn Backup>,
    stop_lsn: Option<String>,
    /// Of an incremental one (barman 3.11 and later, PostgreSQL 17 and later).
    parent: Option<PathBuf>,
}

impl Barman {
    /// The backup in a folder; none when it is none of barman.
    pub(crate) fn open(folder: &Path, go_on: &GoOn) -> Result<Option<Barman>, Error> {
        let (info, data) = (folder.join(INFO), folder.join("data"));
        if !store::is_file(&info) {
            return Ok(None);
        }
        let failed = |e: &std::io::Error| Error::reading(&info, "the description of the backup", e);
        let content = store::read(&info, LONGEST + 1).map_err(|e| failed(&e))?;
        if content.len() as u64 > LONGEST {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&content).into_owned();
        // pgBackRest has a file of this name for a stanza, and no status in it.
        let Some(status) = value(&text, "status") else { return Ok(None) };
        if !COMPLETE.contains(&status) {
            return Err(Error::new(Kind::Invalid, "this backup is not complete")
                .detail(format!("barman says of it: {status}"))
                .hint("wait until barman backup has ended, or take another backup")
                .at(folder));
        }
        if let Some(encrypted) = encrypted_in(&data) {
            return Err(Error::new(Kind::Unsupported, "this backup is encrypted by gpg, which is not read")
                .hint("decrypt it first")
                .at(encrypted));
        }
        let beside = if store::is_folder(&data) { Vec::new() } else { archives_in(folder)? };
        let inner: Box<dyn Backup> = match Tars::open(&data, go_on)? {
            Some(tars) => Box::new(tars),
            None if !beside.is_empty() => {
                let mut tars = Tars::new(BTreeSet::new(), false);
                tars.add(beside, go_on)?;
                Box::new(tars)
            }
            None => Box::new(Folder::of(&folders(folder, &data))?),
        };
        let stop_lsn = value(&text, "end_xlog").filter(|lsn| *lsn != "None").map(str::to_owned);
        let parent = value(&text, "parent_backup_id").filter(|id| *id != "None").and_then(|id| plain(id.as_bytes()));
        let parent = parent.map(|id| folder.with_file_name(id));
        Ok(Some(Barman { inner, stop_lsn, parent }))
    }
}

/// The folder of the data directory, and those of tablespaces, which are named by their numbers.
fn folders(folder: &Path, data: &Path) -> Vec<(PathBuf, PathBuf)> {
    let listed = store::entries(folder).unwrap_or_default().into_iter();
    let spaces = listed.filter(|entry| entry.what == What::Folder).filter_map(|entry| {
        let name = entry.name.into_string().ok().filter(|name| is_number(name))?;
        Some((entry.path, Path::new("pg_tblspc").join(name)))
    });
    let mut folders: Vec<_> = spaces.collect();
    folders.sort();
    folders.insert(0, (data.to_owned(), PathBuf::new()));
    folders
}

/// Those of `barman-cloud-backup`.
fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut archives = Vec::new();
    for entry in store::entries(folder).map_err(|e| Error::reading(folder, "the folder", &e))? {
        let name = entry.name.to_string_lossy();
        let Some((stem, _)) = name.split_once(".tar") else { continue };
        if whole_name(stem) != "data" && !is_number(whole_name(stem)) {
            continue;
        }
        if !is_tar_name(&entry.path) {
            return Err(Error::new(Kind::Unsupported, "this archive is compressed in a way that cannot be read")
                .hint("decompress it first")
                .at(entry.path));
        }
        archives.push(entry.path);
    }
    Ok(archives)
}

fn encrypted_in(data: &Path) -> Option<PathBuf> {
    let paths = store::entries(data).ok()?.into_iter().map(|entry| entry.path);
    paths.filter(|path| path.extension().is_some_and(|end| end == "gpg")).min()
}

/// A line "KEY=VALUE".
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::trim)
}

impl Backup for Barman {
    fn kind(&self) -> &'static str {
        "barman backup"
    }

    fn members(&self) -> &[Member] {
        self.inner.members()
    }

    fn unread(&self) -> &[Unread] {
        self.inner.unread()
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }

    fn read(&self, part: usize, wanted: &Wants, visit: &mut Visit) -> Result<(), Error> {
        self.inner.read(part, wanted, visit)
    }

    fn stored_as(&self, number: usize) -> Option<&Path> {
        self.inner.stored_as(number)
    }

    fn based_on(&self) -> Option<PathBuf> {
        self.parent.clone()
    }

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        self.inner.small(name)
    }

    fn stop_lsn(&self) -> Option<String> {
        self.stop_lsn.clone()
    }
}
