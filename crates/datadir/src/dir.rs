//! A data directory: what its files say of all of it, and where the file of a relation is.

use std::fs;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::ControlState;

use crate::control::{read_control, root_above};
use crate::majors::{read_version, MAJORS};
use crate::space::database_folder;

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
    /// The next transaction's number, by the last checkpoint.
    pub next_xid: u32,
    pub next_multi_offset: u32,
}

impl DataDir {
    /// The data directory at `root`.
    ///
    /// # Errors
    /// When there is none, or none of a known major.
    pub fn open(root: &Path) -> Result<DataDir> {
        let version = root.join("PG_VERSION");
        if !root.is_dir() && !root.exists() {
            return Err(Error::new(Kind::NotFound, "no such file or folder").at(root));
        }
        if !version.exists() && fs::metadata(&version).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Err(Error::new(Kind::Invalid, "not a PostgreSQL data directory")
                .detail("it has no PG_VERSION file")
                .hint("give the folder that `show data_directory` prints, or the file of a relation in it")
                .at(root));
        }
        let text = read_version(root).map_err(|e| Error::reading(&version, DATA_FILE, &e))?;
        let major = text.parse().ok().filter(|m| MAJORS.contains(m)).ok_or_else(|| {
            Error::new(Kind::Unsupported, format!("PostgreSQL {text} is not supported"))
                .detail(format!("supported versions: {} to {}", MAJORS.start(), MAJORS.end()))
                .at(&version)
        })?;
        let (control, raw) = read_control(root)?;
        let state = ControlState::parse(&raw.bytes)
            .map_err(|e| Error::new(Kind::Invalid, "cannot decode pg_control").detail(e.to_string()).at(&raw.path))?;
        Ok(DataDir {
            root: root.to_owned(),
            major,
            block_size: control.blcksz as usize,
            segment_blocks: control.relseg_size,
            checksums: control.data_checksum_version != 0,
            next_xid: state.next_xid,
            next_multi_offset: state.next_multi_offset,
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
            None => Err(Error::new(Kind::Invalid, "this file is not inside a data directory")
                .detail("its columns are read from the catalog of its data directory")
                .hint("run leadline page show FILE to decode single pages")
                .at(file)),
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
        found
            .map_err(|e| Error::reading(&above(), DATA_FILE, &e))?
            .ok_or_else(|| Error::new(Kind::NotFound, "the tablespace has no files of this server").at(above()))
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
