//! Backups in a folder of WAL-G: `basebackups_005/base_...` with the archives in `tar_partitions`, and a sentinel beside the folder.
//!
//! Source: internal/databases/postgres/ of WAL-G (backup_sentinel_dto.go, tar_ball_file_packer.go). A delta backup has those files whole that
//! are new, and of others the blocks that changed ([`increment`](crate::increment)); which these are is in `files_metadata.json`, or in the
//! sentinel of older versions.

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

/// One backup.
pub(crate) struct WalG {
    tars: Tars,
    stop_lsn: Option<String>,
    from: Option<PathBuf>,
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
        let increments = [&said, &files].into_iter().flat_map(increments_of).collect();
        let stop_lsn =
            said.get("FinishLSN").and_then(Value::as_u64).map(|lsn| format!("{:X}/{:X}", lsn >> 32, lsn as u32));
        let tars = Tars::of(archives_in(&partitions)?, &partitions, increments, go_on)?;
        let from = said.get("DeltaFrom").and_then(Value::as_str).and_then(|name| plain(name.as_bytes()));
        let from = from.map(|name| folder.with_file_name(name));
        Ok(Some(WalG { tars, stop_lsn, from }))
    }
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

/// Files of which there are only the blocks that changed.
fn increments_of(said: &Value) -> BTreeSet<PathBuf> {
    let files = said.get("Files").and_then(Value::as_object).into_iter().flatten();
    let is_increment = |about: &Value| about.get("IsIncremented").and_then(Value::as_bool).unwrap_or(false);
    files.filter(|(_, about)| is_increment(about)).filter_map(|(name, _)| plain(name.as_bytes())).collect()
}

fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = store::entries(folder).map_err(|e| Error::reading(folder, "the folder", &e))?;
    Ok(listed.into_iter().map(|entry| entry.path).filter(|path| is_file(path)).collect())
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

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        self.tars.small(name)
    }

    fn stop_lsn(&self) -> Option<String> {
        self.stop_lsn.clone()
    }
}
