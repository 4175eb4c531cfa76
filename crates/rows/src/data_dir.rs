//! A data directory: what its files say of all of it, and where the file of a relation is.

use std::fs;
use std::path::{Path, PathBuf};

use leadline_page::postgres::Control;

use crate::error::{Error, Kind, Result};

const MAJORS: std::ops::RangeInclusive<u32> = 13..=18;
const DEFAULT_TABLESPACE: u32 = 1663;
const GLOBAL_TABLESPACE: u32 = 1664;
/// `checkPointCopy` in pg_control and the fields of it that matter here, the same from 13 to 18.
const NEXT_XID: usize = 40 + 24;
const NEXT_MULTI_OFFSET: usize = 40 + 40;

/// A data directory of a major that is known.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct DataDir {
    pub root: PathBuf,
    pub major: u32,
    pub block_size: usize,
    pub segment_blocks: u32,
    /// Whether pages have checksums.
    pub checksums: bool,
    /// The next transaction's number, by the last checkpoint.
    pub next_xid: u32,
    pub next_multi_offset: u32,
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::reading(path, &e))
}

impl DataDir {
    /// The data directory at `root`.
    ///
    /// # Errors
    /// When there is none, or none of a known major.
    pub fn open(root: &Path) -> Result<DataDir> {
        let version = root.join("PG_VERSION");
        let control = root.join("global/pg_control");
        if !root.is_dir() && !root.exists() {
            return Err(Error::new(Kind::NotFound, "there is no such file or folder").at(root));
        }
        if !version.exists() && fs::metadata(&version).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Err(Error::new(Kind::Invalid, "this is not a data directory of PostgreSQL")
                .detail("it has no file PG_VERSION")
                .hint("name the folder that `show data_directory` gives, or the file of a relation in it")
                .at(root));
        }
        let text = String::from_utf8_lossy(&read(&version)?).trim().to_owned();
        let major = text.parse().ok().filter(|m| MAJORS.contains(m)).ok_or_else(|| {
            Error::new(Kind::Unsupported, format!("PostgreSQL {text} is not known here"))
                .detail("known are the data directories of 13 to 18")
                .at(&version)
        })?;
        let bytes = read(&control)?;
        let parsed = Control::parse(&bytes)
            .map_err(|e| Error::new(Kind::Invalid, "pg_control makes no sense").detail(e.to_string()).at(&control))?;
        let u32_at = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        Ok(DataDir {
            root: root.to_owned(),
            major,
            block_size: parsed.blcksz as usize,
            segment_blocks: parsed.relseg_size,
            checksums: parsed.data_checksum_version != 0,
            next_xid: u32_at(NEXT_XID),
            next_multi_offset: u32_at(NEXT_MULTI_OFFSET),
        })
    }

    /// The data directory around a file.
    ///
    /// # Errors
    /// When there is none.
    pub fn around(file: &Path) -> Result<DataDir> {
        let full = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        match full.ancestors().skip(1).find(|p| p.join("global/pg_control").exists()) {
            Some(root) => DataDir::open(root),
            None => Err(Error::new(Kind::Invalid, "there is no data directory around this file")
                .detail("its columns are told by the catalog of the data directory that it is in")
                .hint("leadline page show FILE takes single pages apart")
                .at(file)),
        }
    }

    /// The folder of a database's files in a tablespace (0: that of the database).
    pub(crate) fn folder(&self, database: u32, database_space: u32, space: u32) -> Result<PathBuf> {
        let space = if space == 0 { database_space } else { space };
        match space {
            GLOBAL_TABLESPACE => Ok(self.root.join("global")),
            DEFAULT_TABLESPACE => Ok(self.root.join("base").join(database.to_string())),
            space => {
                let above = self.root.join("pg_tblspc").join(space.to_string());
                let wanted = format!("PG_{}_", self.major);
                let entries = fs::read_dir(&above).map_err(|e| Error::reading(&above, &e))?;
                let version = entries.flatten().find(|e| e.file_name().to_string_lossy().starts_with(&wanted));
                let version = version.ok_or_else(|| {
                    Error::new(Kind::NotFound, "the tablespace has no files of this server").at(&above)
                })?;
                Ok(version.path().join(database.to_string()))
            }
        }
    }

    /// Numbers of the databases with files in the default tablespace.
    pub(crate) fn database_folders(&self) -> Result<Vec<u32>> {
        let base = self.root.join("base");
        let entries = fs::read_dir(&base).map_err(|e| Error::reading(&base, &e))?;
        let mut found: Vec<u32> =
            entries.flatten().filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect();
        found.sort_unstable();
        Ok(found)
    }
}
