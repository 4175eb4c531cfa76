//! Backups in a folder of WAL-G: `basebackups_005/base_...` with the archives in `tar_partitions`, and a sentinel beside the folder.
//!
//! Source: internal/databases/postgres/ of WAL-G (backup_sentinel_dto.go, tar_ball_file_packer.go). A delta backup has those files whole that
//! are new, of others the blocks that changed ([`increment`](crate::increment)), and nothing of those whose time of change is the same; which
//! these are is in `files_metadata.json`, or in the sentinel of older versions.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};
use serde_json::Value;

use crate::place::plain;
use crate::store::{self, is_file, At};
use crate::tars::Tars;
use crate::{Backup, GoOn, Member, Unread, Visit, Wants};

const PARTITIONS: &str = "tar_partitions";
pub(crate) const SENTINEL: &str = "_backup_stop_sentinel.json";
const LONGEST: u64 = 4 << 30;
/// Archives of what ends a backup.
const LAST: [&str; 2] = ["pg_control.tar", "backup_label.tar"];

/// One backup.
pub(crate) struct WalG {
    tars: Tars,
    stop_lsn: Option<String>,
    from: Option<PathBuf>,
    since: Option<String>,
    unchanged: BTreeSet<PathBuf>,
}

impl WalG {
    /// The backup in a folder; none when it is none of WAL-G.
    pub(crate) fn open(folder: &Path, go_on: &GoOn) -> Result<Option<WalG>, Error> {
        let partitions = folder.join(PARTITIONS);
        if !store::is_folder(&partitions) {
            return Ok(None);
        }
        let mut sentinel = folder.as_os_str().to_owned();
        sentinel.push(SENTINEL);
        let sentinel = PathBuf::from(sentinel);
        if !is_file(&sentinel) {
            return Err(Error::new(Kind::Invalid, "this backup is not complete")
                .detail(format!(
                    "it has no {}, which WAL-G writes last",
                    sentinel.file_name().unwrap_or_default().display()
                ))
                .hint("wait until wal-g backup-push has ended, or take another backup")
                .at(folder));
        }
        let said = json(&sentinel)?;
        let metadata = folder.join("files_metadata.json");
        let files = if is_file(&metadata) { json(&metadata)? } else { Value::Null };
        let of_files = |is: &str| [&said, &files].into_iter().flat_map(|list| files_that(list, is)).collect();
        let (increments, unchanged): (_, BTreeSet<_>) = (of_files("IsIncremented"), of_files("IsSkipped"));
        let (stop_lsn, since) =
            (lsn(&said, "FinishLSN"), lsn(&said, "DeltaLSN").or_else(|| lsn(&said, "DeltaFromLSN")));
        // What comes by a connection of replication WAL-G cuts up, and leaves out marks of the end.
        let mut tars = Tars::new(increments, true);
        tars.add(archives_in(&partitions)?, go_on)?;
        let listed = [&said, &files].into_iter().flat_map(files_in).filter_map(|(name, _)| plain(name.as_bytes()));
        tars.must_have(listed.filter(|name| !unchanged.contains(name)));
        let from = said.get("DeltaFrom").and_then(Value::as_str).and_then(|name| plain(name.as_bytes()));
        let from = from.map(|name| folder.with_file_name(name));
        Ok(Some(WalG { tars, stop_lsn, from, since, unchanged }))
    }
}

/// As text.
fn lsn(said: &Value, key: &str) -> Option<String> {
    said.get(key).and_then(Value::as_u64).map(|lsn| format!("{:X}/{:X}", lsn >> 32, lsn as u32))
}

fn json(path: &Path) -> Result<Value, Error> {
    let failed = |e: std::io::Error| Error::reading(path, "the description of the backup", &e);
    let file = store::open(path).map_err(failed)?;
    if file.bytes().map_err(failed)? > LONGEST {
        return Err(Error::new(Kind::Invalid, "the description of the backup is too long").at(path));
    }
    serde_json::from_reader(BufReader::new(At { file, at: 0 })).map_err(|e| {
        Error::new(Kind::Invalid, "the description of the backup cannot be read").detail(e.to_string()).at(path)
    })
}

fn files_in(list: &Value) -> impl Iterator<Item = (&String, &Value)> {
    list.get("Files").and_then(Value::as_object).into_iter().flatten()
}

/// Those of which a list says that something is so.
fn files_that<'v>(list: &'v Value, is: &'v str) -> impl Iterator<Item = PathBuf> + 'v {
    let files = files_in(list).filter(move |(_, about)| about.get(is).and_then(Value::as_bool).unwrap_or(false));
    files.filter_map(|(name, _)| plain(name.as_bytes()))
}

/// In the order in which WAL-G restores them: of files of one name the last one counts. The data directory may have an old backup_label.
fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = store::entries(folder).map_err(|e| Error::reading(folder, "the folder", &e))?;
    let mut archives: Vec<_> = listed.into_iter().map(|entry| entry.path).filter(|path| is_file(path)).collect();
    archives.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        LAST.iter().position(|last| name.starts_with(last)).map_or(0, |at| at + 1)
    });
    Ok(archives)
}

impl Backup for WalG {
    fn kind(&self) -> &'static str {
        "WAL-G backup"
    }

    fn members(&self) -> &[Member] {
        self.tars.members()
    }

    fn unread(&self) -> &[Unread] {
        self.tars.unread()
    }

    fn parts(&self) -> usize {
        self.tars.parts()
    }

    fn read(&self, part: usize, wanted: &Wants, visit: &mut Visit) -> Result<(), Error> {
        self.tars.read(part, wanted, visit)
    }

    fn based_on(&self) -> Option<PathBuf> {
        self.from.clone()
    }

    fn changes_since(&self) -> Option<String> {
        self.since.clone()
    }

    fn unchanged(&self) -> &BTreeSet<PathBuf> {
        &self.unchanged
    }

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        self.tars.small(name)
    }

    fn stop_lsn(&self) -> Option<String> {
        self.stop_lsn.clone()
    }
}
