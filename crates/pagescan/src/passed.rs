//! Files that are passed over: what is in a data directory and is no file of pages of a relation, by kind.
//!
//! A run says of each kind how many files it did not look at. What it says of pages is then not taken for more than that.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use leadline_datadir::{root_above, FileName};

use crate::listing::entries;

/// Files of a server beside its relations, by the folder in which it keeps them.
const FOLDERS: &[(&str, &str)] = &[
    ("pg_wal", "WAL"),
    ("pg_xlog", "WAL"),
    ("pg_xact", "transaction status"),
    ("pg_clog", "transaction status"),
    ("pg_multixact", "multixact"),
    ("pg_subtrans", "subtransaction"),
    ("pg_commit_ts", "commit timestamp"),
    ("pg_twophase", "prepared transaction"),
    ("pg_notify", "notification"),
    ("pg_serial", "serializable transaction"),
    ("pg_snapshots", "exported snapshot"),
    ("pg_logical", "logical decoding"),
    ("pg_replslot", "replication slot"),
    ("pg_stat", "statistics"),
    ("pg_stat_tmp", "statistics"),
    ("pg_dynshmem", "shared memory"),
    ("log", "server log"),
    ("pg_log", "server log"),
];

/// By the name, wherever the file is. The first that fits counts.
const NAMES: &[(&str, &str)] = &[
    ("pg_control", "control file"),
    ("pg_filenode.map", "relation map"),
    ("PG_VERSION", "version"),
    ("backup_manifest", "backup description"),
    ("backup_label", "backup description"),
    ("backup_label.old", "backup description"),
    ("tablespace_map", "backup description"),
    ("tablespace_map.old", "backup description"),
    ("postmaster.pid", "server state"),
    ("postmaster.opts", "server state"),
    ("current_logfiles", "server state"),
    ("recovery.signal", "server state"),
    ("standby.signal", "server state"),
];

/// What no server puts there.
const UNKNOWN: &str = "unknown";

/// Files of one kind that were not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Passed {
    pub files: u64,
    /// The first one by its path.
    pub first: PathBuf,
}

/// By kind.
pub type PassedOver = BTreeMap<&'static str, Passed>;

/// Counts a file.
pub(crate) fn count(passed: &mut PassedOver, path: &Path) {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or("");
    let is_temporary = FileName::parse(name).is_none() && FileName::parse_any(name).is_some();
    let otherwise = if is_temporary { "temporary relation" } else { UNKNOWN };
    add(passed, kind(path).unwrap_or(otherwise), path);
}

fn add(passed: &mut PassedOver, kind: &'static str, path: &Path) {
    let of_kind = passed.entry(kind).or_default();
    if of_kind.files == 0 {
        of_kind.first = path.to_owned();
    }
    of_kind.files += 1;
}

/// Counts a file of a backup, by its name from the data directory on.
pub(crate) fn count_member(passed: &mut PassedOver, path: &Path, name: &Path) {
    let is_setting = name.components().count() == 1 && name.extension() == Some(OsStr::new("conf"));
    match is_setting.then_some("settings") {
        Some(kind) => add(passed, kind, path),
        None => count(passed, path),
    }
}

/// Counts all files of a data directory but those in the folders of relations, which were counted where they were read.
pub(crate) fn count_others(root: &Path, passed: &mut PassedOver) {
    for path in entries(root).unwrap_or_default() {
        let is_folder_of_relations =
            path.file_name().is_some_and(|name| ["base", "global", "pg_tblspc"].contains(&name.to_str().unwrap_or("")));
        if !is_folder_of_relations {
            count_below(&path, 0, passed);
        }
    }
}

/// Counts a file, or all files below a folder. A folder that cannot be listed counts as one.
pub(crate) fn count_below(path: &Path, depth: u32, passed: &mut PassedOver) {
    const DEEPEST: u32 = 8;
    // A link of pg_wal to another disk is followed; no other link, which may lead anywhere.
    let is_followed = depth == 0 || !path.is_symlink();
    match if path.is_dir() && is_followed && depth < DEEPEST { entries(path).ok() } else { None } {
        Some(below) => below.iter().for_each(|path| count_below(path, depth + 1, passed)),
        None => count(passed, path),
    }
}

/// What a file is when it has no pages of a relation; none when it may have, or nobody knows.
pub(crate) fn kind(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str().unwrap_or("");
    // In base/pgsql_tmp or a folder in it, and in copies without these.
    let mut names = path.ancestors().take(3).filter_map(|path| path.file_name()?.to_str());
    if names.any(|name| name.starts_with("pgsql_tmp")) {
        return Some("temporary");
    }
    if let Some((_, kind)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Some(kind);
    }
    if name.starts_with("pg_internal.init") {
        return Some("relation cache");
    }
    if let Some(kind) = of_place(path) {
        return Some(kind);
    }
    let is_setting = name.ends_with(".conf") && root_above(&path.with_file_name("global")).is_some();
    is_setting.then_some("settings")
}

/// By the folder of a data directory that it is in; elsewhere by the folders right above it, as a copy keeps them.
fn of_place(path: &Path) -> Option<&'static str> {
    let full = std::path::absolute(path).ok()?;
    let of = |name: &OsStr| FOLDERS.iter().find(|(folder, _)| name == *folder).map(|(_, kind)| *kind);
    if let Some(root) = root_above(&full) {
        return of(full.strip_prefix(root).ok()?.components().next()?.as_os_str());
    }
    let above = full.ancestors().skip(1).take(2).filter_map(Path::file_name);
    // Folders of this name are not the server's alone.
    above.filter(|name| *name != "log").find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_server_are_known_by_name_and_place() {
        let of = |path: &str| kind(Path::new(path));
        for (path, wanted) in [
            ("/b/pg_multixact/members/0000", "multixact"),
            ("/b/pg_xact/0000", "transaction status"),
            ("/b/pg_wal/000000010000000000000001", "WAL"),
            ("/b/base/5/pg_internal.init", "relation cache"),
            ("/b/base/5/pg_internal.init.4711", "relation cache"),
            ("/b/base/pgsql_tmp/pgsql_tmp77.0", "temporary"),
            ("/b/base/pgsql_tmp/pgsql_tmp77.0.fileset/0.0", "temporary"),
            ("/b/backup_manifest", "backup description"),
            ("/b/global/pg_control", "control file"),
        ] {
            assert_eq!(of(path), Some(wanted), "{path}");
        }
        for path in [
            "/b/base/5/1259",
            "/b/base/5/1259_fsm.1",
            "/b/log/7",
            "/b/base/5/INCREMENTAL.1259",
            "/b/base/5/INCREMENTAL.x",
            "/b/notes",
            "/b/base/5/t3_16384_fsm",
            "/",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
