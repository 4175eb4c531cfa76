//! The files that a base backup adds to a data directory: `backup_label` says where its replay begins, `tablespace_map` where its
//! tablespaces are.
//!
//! Source: `read_backup_label` and `read_tablespace_map` in `access/transam/xlogrecovery.c`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};
use leadline_wal::Lsn;

use crate::files::cluster::{failed, sync_folder, Cluster};

const LABEL: &str = "backup_label";
const MAP: &str = "tablespace_map";

/// What `backup_label` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    /// Where replay begins.
    pub redo: Lsn,
    /// Where the record of the backup's checkpoint begins.
    pub checkpoint: Lsn,
    pub timeline: u32,
    /// The WAL must have the end of the backup.
    pub is_streamed: bool,
    /// The control file says how far the WAL must go, and not a record.
    pub is_from_standby: bool,
}

/// A tablespace of the backup: its number, and the folder that its link leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Space {
    pub oid: u32,
    pub path: PathBuf,
}

fn read(root: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = root.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::reading(&path, &format!("{name} of the backup"), &e)),
    }
}

impl Label {
    /// The label of a data directory; none when it has none.
    pub(crate) fn of(root: &Path) -> Result<Option<Label>> {
        let Some(bytes) = read(root, LABEL)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let wrong = |line: &str| {
            Error::new(Kind::Invalid, "backup_label is damaged")
                .detail(format!("wrong or missing: {line}"))
                .at(root.join(LABEL))
        };
        Label::parse(&text).map(Some).map_err(wrong)
    }

    fn parse(text: &str) -> std::result::Result<Label, &'static str> {
        let find = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (redo, timeline) = find("START WAL LOCATION: ").and_then(start_of).ok_or("START WAL LOCATION")?;
        let checkpoint = find("CHECKPOINT LOCATION: ").and_then(|lsn| lsn.parse().ok()).ok_or("CHECKPOINT LOCATION")?;
        if find("START TIMELINE: ").is_some_and(|number| number.parse() != Ok(timeline)) {
            return Err("START TIMELINE");
        }
        Ok(Label {
            redo,
            checkpoint,
            timeline,
            is_streamed: find("BACKUP METHOD: ") == Some("streamed"),
            is_from_standby: find("BACKUP FROM: ") == Some("standby"),
        })
    }
}

/// LSN and timeline of `0/2000028 (file 000000010000000000000002)`.
fn start_of(text: &str) -> Option<(Lsn, u32)> {
    let (lsn, file) = text.split_once(" (file ")?;
    Some((lsn.parse().ok()?, u32::from_str_radix(file.get(..8)?, 16).ok()?))
}

/// The tablespaces that `tablespace_map` names. A folder that is missing is refused.
pub(crate) fn spaces(cluster: &Cluster) -> Result<Vec<Space>> {
    let root = &cluster.root;
    let Some(bytes) = read(root, MAP)? else { return Ok(Vec::new()) };
    let path = root.join(MAP);
    let Some(spaces) = parse_map(&bytes) else {
        return Err(Error::new(Kind::Invalid, "tablespace_map is damaged").at(path));
    };
    for space in &spaces {
        if !space.path.join(&cluster.version_folder).is_dir() {
            return Err(Error::new(Kind::NotFound, "the folder of a tablespace is missing")
                .detail(format!("tablespace_map names it for tablespace {}", space.oid))
                .hint("restore the folder, or change tablespace_map, then run the command again")
                .at(space.path.join(&cluster.version_folder)));
        }
        let link = cluster.space(space.oid);
        let is_folder = fs::symlink_metadata(&link).is_ok_and(|about| about.is_dir());
        if is_folder && fs::read_dir(&link).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::new(Kind::Invalid, "the link of a tablespace is a folder with files")
                .detail(format!("tablespace_map says that tablespace {} is in {}", space.oid, space.path.display()))
                .hint("move the files to that folder, or remove them if they are there already")
                .at(link));
        }
    }
    Ok(spaces)
}

/// Lines of a number and a path, in which a backslash takes the next byte as it is.
fn parse_map(bytes: &[u8]) -> Option<Vec<Space>> {
    let (mut spaces, mut line) = (Vec::new(), Vec::new());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\n' | b'\r' if line.is_empty() => {}
            b'\n' | b'\r' => {
                let at = line.iter().position(|b| *b == b' ')?;
                let oid = std::str::from_utf8(&line[..at]).ok()?.parse().ok()?;
                let path = line.get(at + 1..).filter(|path| !path.is_empty())?;
                spaces.push(Space { oid, path: PathBuf::from(OsStr::from_bytes(path)) });
                line.clear();
            }
            b'\\' => line.push(*rest.next()?),
            byte => line.push(*byte),
        }
    }
    line.is_empty().then_some(spaces)
}

/// Makes the links of tablespaces.
pub(crate) fn link(cluster: &Cluster, spaces: &[Space]) -> Result<()> {
    for space in spaces {
        let link = cluster.space(space.oid);
        match fs::symlink_metadata(&link) {
            // An empty folder, which the backup may have where the link was.
            Ok(about) if about.is_dir() => fs::remove_dir(&link).map_err(|e| failed("remove", &link, &e))?,
            Ok(_) => drop(cluster.remove_file(&link)?),
            Err(_) => {}
        }
        symlink(&space.path, &link).map_err(|e| failed("create", &link, &e))?;
    }
    if spaces.is_empty() {
        return Ok(());
    }
    sync_folder(&cluster.root.join("pg_tblspc"))
}

/// Renames both to `.old`, as the server does once its control file has what they say.
pub(crate) fn set_aside(cluster: &Cluster) -> Result<()> {
    for name in [MAP, LABEL] {
        let (path, old) = (cluster.root.join(name), cluster.root.join(format!("{name}.old")));
        match fs::rename(&path, &old) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed("rename", &path, &e)),
        }
    }
    sync_folder(&cluster.root)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "START WAL LOCATION: 0/2000028 (file 000000030000000000000002)\n\
        CHECKPOINT LOCATION: 0/2000080\nBACKUP METHOD: streamed\nBACKUP FROM: standby\n\
        START TIME: 2026-11-24 11:00:00 UTC\nLABEL: pg_basebackup base backup\nSTART TIMELINE: 3\n";

    #[test]
    fn a_label_is_read() {
        let (redo, checkpoint) = (Lsn(0x200_0028), Lsn(0x200_0080));
        let wanted = Label { redo, checkpoint, timeline: 3, is_streamed: true, is_from_standby: true };
        assert_eq!(Label::parse(TEXT), Ok(wanted));
        let plain = Label { is_streamed: false, is_from_standby: false, ..wanted };
        let other =
            TEXT.replace("streamed", "pg_rewind").replace("standby", "primary").replace("START TIMELINE: 3\n", "");
        assert_eq!(Label::parse(&other), Ok(plain));
        for (from, to, wrong) in [
            ("0/2000028 ", "0-2000028 ", "START WAL LOCATION"),
            ("0/2000080", "0/x", "CHECKPOINT LOCATION"),
            ("TIMELINE: 3", "TIMELINE: 2", "START TIMELINE"),
        ] {
            assert_eq!(Label::parse(&TEXT.replace(from, to)), Err(wrong));
        }
    }

    #[test]
    fn a_map_is_read() {
        let found = parse_map(b"16385 /a b\r\n\r\n16390 /with\\\nline\\\\\n").unwrap();
        let of = |oid, path: &str| Space { oid, path: PathBuf::from(path) };
        assert_eq!(found, [of(16385, "/a b"), of(16390, "/with\nline\\")]);
        for wrong in [&b"16385 /a"[..], b"16385\n", b"16385 \n", b"x /a\n", b"1 /a\\"] {
            assert_eq!(parse_map(wrong), None);
        }
    }
}
