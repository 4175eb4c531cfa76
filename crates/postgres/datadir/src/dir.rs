//! A data directory: what its files say of all of it, and where the file of a relation is.

use std::fs;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::{checksum, is_block_size, ControlState, DbState, Header};

use crate::control::{read_bytes, read_control, root_above};
use crate::majors::{read_version, MAJORS};
use crate::name::SEGMENT_BYTES;
use crate::space::database_folder;
use crate::tar::is_in_tar;

/// What a file that cannot be read is called in errors.
pub const DATA_FILE: &str = "a file of the data directory";

/// A data directory of a major that is known.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct DataDir {
    pub root: PathBuf,
    pub major: u32,
    pub block_size: usize,
    pub segment_blocks: u32,
    /// Whether its pages have checksums.
    pub checksums: bool,
    /// Which transactions there are; none when pg_control has another checksum than its bytes.
    pub transactions: Option<Transactions>,
    /// Why pg_control tells nothing, and the rest is taken from a page: [`DataDir::salvage`].
    pub control_lost: Option<String>,
}

/// Which transactions and multixacts there are, by the last checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Transactions {
    pub oldest_xid: u32,
    pub next_xid: u32,
    /// Those before it had ended at the checkpoint.
    pub oldest_active_xid: u32,
    pub oldest_multi: u32,
    pub next_multi: u32,
    pub next_multi_offset: u32,
    /// The server ended in order: there are no later ones.
    pub is_final: bool,
}

impl Transactions {
    fn of(root: &Path, state: &ControlState) -> Transactions {
        let active = Some(state.oldest_active_xid).filter(|xid| *xid != 0);
        Transactions {
            oldest_xid: state.oldest_xid,
            next_xid: state.next_xid,
            oldest_active_xid: active.unwrap_or(state.next_xid),
            oldest_multi: state.oldest_multi,
            next_multi: state.next_multi,
            next_multi_offset: state.next_multi_offset,
            is_final: state.state == DbState::Shutdowned && !root.join("backup_label").exists(),
        }
    }

    /// Whether there was no such transaction at the checkpoint yet.
    pub fn is_future(&self, xid: u32) -> bool {
        xid > 2 && xid.wrapping_sub(self.next_xid) as i32 >= 0
    }

    /// Whether there is none at all: it would have begun after the end of the server, or further after the checkpoint than any does.
    pub fn is_impossible(&self, xid: u32) -> bool {
        self.is_future(xid) && self.is_beyond(xid.wrapping_sub(self.next_xid))
    }

    /// The same of a multixact.
    pub fn is_impossible_multi(&self, multi: u32) -> bool {
        let ahead = multi.wrapping_sub(self.next_multi);
        ahead as i32 >= 0 && self.is_beyond(ahead)
    }

    fn is_beyond(&self, ahead: u32) -> bool {
        /// More do not begin between two checkpoints.
        const MOST: u32 = 1 << 28;
        self.is_final || ahead >= MOST
    }
}

impl DataDir {
    /// The data directory at `root`.
    ///
    /// # Errors
    /// When there is none, or none of a known major.
    pub fn open(root: &Path) -> Result<DataDir> {
        let major = major_of(root)?;
        refuse_pg_probackup(root)?;
        refuse_incremental(root)?;
        let (control, raw) = read_control(root)?;
        let state = ControlState::parse(&raw.bytes)
            .map_err(|e| Error::new(Kind::Invalid, "cannot decode pg_control").detail(e.to_string()).at(&raw.path))?;
        Ok(DataDir {
            root: root.to_owned(),
            major,
            block_size: control.blcksz as usize,
            segment_blocks: control.relseg_size,
            checksums: control.data_checksum_version != 0,
            transactions: state.wrong_crc.is_none().then(|| Transactions::of(root, &state)),
            control_lost: None,
        })
    }

    /// The same. Where pg_control is lost or cannot be decoded, a page of a catalog says how large pages are and whether they have
    /// checksums; which transactions there are is not known then.
    ///
    /// # Errors
    /// As of `open`, and when there is no such page.
    pub fn salvage(root: &Path) -> Result<DataDir> {
        let e = match DataDir::open(root) {
            Err(e) if matches!(e.kind, Kind::NotFound | Kind::Invalid) => e,
            opened => return opened,
        };
        let Ok(major) = major_of(root) else { return Err(e) };
        let Some((block_size, checksums)) = pages_of(root) else { return Err(e) };
        let segment_blocks = SEGMENT_BYTES / block_size as u32; // unless the server was built otherwise
        let control_lost = Some(e.to_string());
        Ok(DataDir {
            root: root.to_owned(),
            major,
            block_size,
            segment_blocks,
            checksums,
            transactions: None,
            control_lost,
        })
    }

    /// Whether a server may be writing its files now.
    pub fn may_be_running(&self) -> bool {
        self.root.join("postmaster.pid").exists()
    }

    /// The data directory around a file.
    ///
    /// # Errors
    /// When there is none.
    pub fn around(file: &Path) -> Result<DataDir> {
        match root_above(file) {
            Some(root) => DataDir::open(&root),
            None => Err(is_in_tar(file).unwrap_or_else(|| {
                Error::new(Kind::Invalid, "this file is not inside a data directory")
                    .detail("its columns are read from the catalog of its data directory")
                    .hint("run leadline page show FILE to decode single pages")
                    .at(file)
            })),
        }
    }

    /// The folder of a database's files in a tablespace (0: that of the database).
    ///
    /// # Errors
    /// When the tablespace cannot be read or has no files of this server.
    pub fn folder(&self, database: u32, database_space: u32, space: u32) -> Result<PathBuf> {
        let space = if space == 0 { database_space } else { space };
        let above = || self.root.join("pg_tblspc").join(space.to_string());
        let found = database_folder(&self.root, self.major, space, database);
        let hint = "put its folder back, or let the link lead to where it is now: ln -sfn FOLDER LINK";
        found
            .map_err(|e| match (e.kind(), fs::read_link(above())) {
                (std::io::ErrorKind::NotFound, Ok(to)) => {
                    Error::new(Kind::NotFound, "a tablespace is missing: its link leads nowhere")
                        .detail(format!("it leads to {}", to.display()))
                        .hint(hint)
                        .at(above())
                }
                (std::io::ErrorKind::NotFound, Err(_)) => {
                    Error::new(Kind::NotFound, "a tablespace is missing: there is no link to it").hint(hint).at(above())
                }
                _ => Error::reading(&above(), DATA_FILE, &e),
            })?
            .ok_or_else(|| {
                Error::new(Kind::NotFound, "the tablespace has no files of this server").hint(hint).at(above())
            })
    }

    /// Numbers of the databases with files in the default tablespace.
    ///
    /// # Errors
    /// When its folder cannot be read.
    pub fn database_folders(&self) -> Result<Vec<u32>> {
        let base = self.root.join("base");
        let entries = fs::read_dir(&base).map_err(|e| Error::reading(&base, DATA_FILE, &e))?;
        let mut found: Vec<u32> =
            entries.flatten().filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect();
        found.sort_unstable();
        Ok(found)
    }
}

/// A backup of pg_probackup looks like a data directory, but before each page of a file there is where it belongs, and how it is compressed.
///
/// # Errors
/// That it is one.
pub fn refuse_pg_probackup(root: &Path) -> Result<()> {
    let beside = ["backup.control", "backup_content.control"].map(|name| root.join("..").join(name));
    if root.file_name().is_none_or(|name| name != "database") || !beside.iter().all(|path| path.is_file()) {
        return Ok(());
    }
    Err(Error::new(Kind::Unsupported, "this is a backup of pg_probackup, which is not read in place")
        .detail("its files have pages in a form of their own")
        .hint("restore it first: pg_probackup restore -D DIR")
        .at(root))
}

/// An incremental backup (17 and later) has only those blocks of a relation that changed since another backup, in files of their own.
fn refuse_incremental(root: &Path) -> Result<()> {
    let path = root.join("backup_label");
    let label = read_bytes(&path).unwrap_or_default();
    let label = String::from_utf8_lossy(&label);
    match label.lines().find_map(|line| line.strip_prefix("INCREMENTAL FROM LSN: ")) {
        None => Ok(()),
        Some(since) => Err(Error::new(Kind::Unsupported, "this is an incremental backup")
            .detail(format!("it has only what changed since {since}"))
            .hint("combine it with the backups it is based on: pg_combinebackup")
            .at(path)),
    }
}

/// The major of the data directory at `root`.
fn major_of(root: &Path) -> Result<u32> {
    let version = root.join("PG_VERSION");
    if !root.is_dir() {
        // Not there, or below a folder that may not be entered.
        fs::metadata(root).map_err(|e| Error::reading(root, "the data directory", &e))?;
    }
    if !version.exists() {
        is_in_tar(root).map_or(Ok(()), Err)?;
    }
    if !version.exists() && fs::metadata(&version).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Err(Error::new(Kind::Invalid, "not a PostgreSQL data directory")
            .detail("it has no PG_VERSION file")
            .hint("give the folder that `show data_directory` prints, or the file of a relation in it")
            .at(root));
    }
    let text = read_version(root).map_err(|e| Error::reading(&version, DATA_FILE, &e))?;
    text.parse().ok().filter(|m| MAJORS.contains(m)).ok_or_else(|| {
        Error::new(Kind::Unsupported, format!("PostgreSQL {text} is not supported"))
            .detail(format!("supported versions: {} to {}", MAJORS.start(), MAJORS.end()))
            .at(&version)
    })
}

/// The size of pages, and whether they have checksums, by the first page of a catalog that is never empty.
fn pages_of(root: &Path) -> Option<(usize, bool)> {
    let databases = fs::read_dir(root.join("base")).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = std::iter::once(root.join("global")).chain(databases);
    let files = folders.flat_map(|folder| ["1262", "1249", "1259"].map(|name| folder.join(name)));
    files.filter_map(|path| read_bytes(&path).ok()).find_map(|bytes| {
        let header = Header::parse(&bytes)?;
        let size = header.page_size();
        let page = bytes.get(..size).filter(|_| is_block_size(size as u32))?;
        let has_checksum = header.pd_checksum != 0 && header.pd_checksum == checksum(page, 0);
        (header.pd_upper != 0 && header.wrong(size).is_none()).then_some((size, has_checksum))
    })
}
