//! The files of a data directory as recovery changes them: their places, modes, and what makes a change last.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use leadline_datadir::{segment_path, RelFile, DATA_FILE, DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use leadline_errors::{Error, Kind, Result};

/// Suffixes of the forks by number.
pub(crate) const FORKS: [&str; 4] = ["", "_fsm", "_vm", "_init"];

/// A data directory and what all of it has in common.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub root: PathBuf,
    pub major: u8,
    pub block_size: usize,
    /// Blocks of a file before the next one begins.
    pub segment_blocks: u32,
    pub checksums: bool,
    /// The folder of this server in a tablespace: `PG_18_202506291`.
    pub version_folder: String,
    /// Modes of new files and folders, as the server gives them.
    file_mode: u32,
    folder_mode: u32,
}

pub(crate) fn reading(path: &Path, e: &io::Error) -> Error {
    Error::reading(path, DATA_FILE, e)
}

/// What the system said when something was to be done to a file.
#[cold]
pub(crate) fn failed(what: &str, path: &Path, e: &io::Error) -> Error {
    let error = match e.kind() {
        io::ErrorKind::PermissionDenied => {
            Error::new(Kind::Rights, format!("cannot {what} a file of the data directory"))
                .detail(e.to_string())
                .hint("run as the owner of the files (often postgres), or as root")
        }
        io::ErrorKind::StorageFull => Error::new(Kind::Storage, format!("cannot {what} a file of the data directory"))
            .detail(e.to_string())
            .hint("free space, then run the command again or start the server: its own recovery still works"),
        _ => Error::new(Kind::Storage, format!("cannot {what} a file of the data directory")).detail(e.to_string()),
    };
    error.at(path)
}

impl Cluster {
    pub(crate) fn new(
        root: &Path,
        major: u8,
        catalog_version: u32,
        block_size: usize,
        segment_blocks: u32,
        checksums: bool,
    ) -> Result<Cluster> {
        let about = fs::metadata(root).map_err(|e| reading(root, &e))?;
        let group = about.mode() & 0o050 != 0;
        Ok(Cluster {
            root: root.to_owned(),
            major,
            block_size,
            segment_blocks,
            checksums,
            version_folder: format!("PG_{major}_{catalog_version}"),
            file_mode: if group { 0o640 } else { 0o600 },
            folder_mode: if group { 0o750 } else { 0o700 },
        })
    }

    /// The folder of a database in a tablespace.
    pub(crate) fn folder(&self, space: u32, database: u32) -> PathBuf {
        match space {
            GLOBAL_TABLESPACE => self.root.join("global"),
            DEFAULT_TABLESPACE => self.root.join("base").join(database.to_string()),
            space => self.space(space).join(&self.version_folder).join(database.to_string()),
        }
    }

    /// The link of a tablespace.
    pub(crate) fn space(&self, space: u32) -> PathBuf {
        self.root.join("pg_tblspc").join(space.to_string())
    }

    /// The first file of a fork.
    pub(crate) fn first_file(&self, relation: RelFile, fork: u8) -> PathBuf {
        let suffix = FORKS.get(usize::from(fork)).copied().unwrap_or("");
        self.folder(relation.spc, relation.db).join(format!("{}{suffix}", relation.rel))
    }

    /// The file of a fork that has a block.
    pub(crate) fn file(&self, relation: RelFile, fork: u8, segment: u32) -> PathBuf {
        segment_path(&self.first_file(relation, fork), segment)
    }

    /// Blocks of a fork, as the server counts them: a file that is not full is the last one. None when there is no file.
    pub(crate) fn blocks(&self, relation: RelFile, fork: u8) -> Result<Option<u32>> {
        let first = self.first_file(relation, fork);
        let mut segment = 0u32;
        loop {
            let path = segment_path(&first, segment);
            let blocks = match fs::metadata(&path) {
                Ok(about) => (about.len() / self.block_size as u64).min(self.segment_blocks.into()) as u32,
                Err(e) if e.kind() == io::ErrorKind::NotFound && segment == 0 => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
                Err(e) => return Err(reading(&path, &e)),
            };
            if blocks < self.segment_blocks {
                return Ok(Some(segment * self.segment_blocks + blocks));
            }
            segment += 1;
        }
    }

    /// Opens a file to read and write, and makes it if there is none.
    pub(crate) fn open_or_create(&self, path: &Path) -> Result<File> {
        let options = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(self.file_mode);
            options
        };
        match options().open(path) {
            // The folder of a database in a tablespace is made with its first file.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent() {
                    self.make_folder(folder)?;
                }
                options().open(path)
            }
            opened => opened,
        }
        .map_err(|e| failed("open", path, &e))
    }

    /// Makes a folder unless it is there.
    pub(crate) fn make_folder(&self, path: &Path) -> Result<()> {
        match DirBuilder::new().mode(self.folder_mode).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made.map_err(|e| failed("create", path, &e)),
        }
    }

    /// Removes a file if it is there; gives whether it was.
    pub(crate) fn remove_file(&self, path: &Path) -> Result<bool> {
        match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failed("remove", path, &e)),
        }
    }

    /// Removes a folder with all in it, if it is there.
    pub(crate) fn remove_folder(&self, path: &Path) -> Result<()> {
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, &e)),
            _ => Ok(()),
        }
    }

    /// Removes all files of a relation; gives whether there was one.
    pub(crate) fn remove_relation(&self, relation: RelFile) -> Result<bool> {
        let mut any = false;
        for fork in 0..FORKS.len() as u8 {
            let first = self.first_file(relation, fork);
            let mut segment = 0;
            while self.remove_file(&segment_path(&first, segment))? {
                any = true;
                segment += 1;
            }
        }
        Ok(any)
    }

    /// Truncations a fork to so many blocks if it has more. Files behind the last one stay, empty, as the server leaves them.
    pub(crate) fn truncate(&self, relation: RelFile, fork: u8, blocks: u32) -> Result<()> {
        let first = self.first_file(relation, fork);
        for segment in 0.. {
            let path = segment_path(&first, segment);
            let about = match fs::metadata(&path) {
                Ok(about) => about,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(reading(&path, &e)),
            };
            let here = blocks.saturating_sub(segment * self.segment_blocks).min(self.segment_blocks);
            let length = u64::from(here) * self.block_size as u64;
            if about.len() > length {
                let file = OpenOptions::new().write(true).open(&path).map_err(|e| failed("open", &path, &e))?;
                file.set_len(length).and_then(|()| file.sync_all()).map_err(|e| failed("truncate", &path, &e))?;
            }
        }
        Ok(())
    }

    /// Makes a fork at least so many blocks long, new ones zeros; makes its file if there is none.
    pub(crate) fn extend(&self, relation: RelFile, fork: u8, blocks: u32) -> Result<()> {
        let first = self.first_file(relation, fork);
        for segment in 0..=(blocks.max(1) - 1) / self.segment_blocks {
            let path = segment_path(&first, segment);
            let here = blocks.saturating_sub(segment * self.segment_blocks).min(self.segment_blocks);
            let length = u64::from(here) * self.block_size as u64;
            if fs::metadata(&path).is_ok_and(|about| about.len() >= length) {
                continue;
            }
            let file = self.open_or_create(&path)?;
            let has = file.metadata().map_err(|e| reading(&path, &e))?.len();
            if has < length {
                file.set_len(length).map_err(|e| failed("extend", &path, &e))?;
            }
        }
        Ok(())
    }

    /// All files and folders of the data directory, and of its tablespaces and its WAL where those are elsewhere.
    pub(crate) fn all_files(&self) -> Result<Vec<PathBuf>> {
        let elsewhere = |path: &Path| {
            path.parent().is_some_and(|parent| parent == self.root.join("pg_tblspc"))
                || path == self.root.join("pg_wal")
        };
        let (mut found, mut folders) = (Vec::new(), vec![self.root.clone()]);
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => continue,
                Err(e) => return Err(reading(&folder, &e)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| reading(&folder, &e))?;
                let (path, kind) = (entry.path(), entry.file_type().map_err(|e| reading(&folder, &e))?);
                if kind.is_dir() || kind.is_symlink() && elsewhere(&path) && path.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    found.push(path);
                }
            }
            found.push(folder);
        }
        Ok(found)
    }

    /// Makes the files in a folder last, and their names.
    pub(crate) fn sync_files_of(&self, folder: &Path) -> Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(reading(folder, &e)),
        };
        for entry in entries {
            let path = entry.map_err(|e| reading(folder, &e))?.path();
            if path.is_file() {
                sync_file(&path)?;
            }
        }
        sync_folder(folder)
    }

    /// Writes a small file as one step: under another name, made to last, renamed.
    ///
    /// The other name is one of the server's own temporary files, which it removes when it starts: nothing is left when we are killed.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let temporary = self.temporary_file()?;
        self.write_whole(&temporary, bytes, path)?;
        match fs::rename(&temporary, path) {
            // A tablespace on another device.
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                self.remove_file(&temporary)?;
                let beside = path.with_extension("leadline");
                self.write_whole(&beside, bytes, path)?;
                fs::rename(&beside, path).map_err(|e| failed("rename", &beside, &e))?;
            }
            renamed => renamed.map_err(|e| failed("rename", &temporary, &e))?,
        }
        path.parent().map_or(Ok(()), sync_folder)
    }

    /// A new file with the mode that the one it takes the place of has.
    fn write_whole(&self, path: &Path, bytes: &[u8], instead_of: &Path) -> Result<()> {
        let file = self.open_or_create(path)?;
        let written = file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).and_then(|()| file.sync_all());
        written.map_err(|e| failed("write", path, &e))?;
        if let Ok(about) = fs::metadata(instead_of) {
            let mode = Permissions::from_mode(about.mode() & 0o7777);
            fs::set_permissions(path, mode).map_err(|e| failed("write", path, &e))?;
        }
        Ok(())
    }

    /// A name for a file that the server removes when it starts, in a folder that is there.
    pub(crate) fn temporary_file(&self) -> Result<PathBuf> {
        let folder = self.temporary_folder();
        self.make_folder(&folder)?;
        Ok(folder.join("pgsql_tmp_leadline"))
    }

    fn temporary_folder(&self) -> PathBuf {
        self.root.join("base/pgsql_tmp")
    }

    /// Removes the folder of temporary files, unless there are others.
    pub(crate) fn remove_temporary_folder(&self) {
        let _ = fs::remove_dir(self.temporary_folder());
    }
}

/// Makes a file last; false when there is none.
pub(crate) fn sync_file(path: &Path) -> Result<bool> {
    match File::open(path) {
        Ok(file) => file.sync_all().map(|()| true).map_err(|e| failed("sync", path, &e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("open", path, &e)),
    }
}

/// Makes the names in a folder last; a folder that is gone needs nothing.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    sync_file(path).map(|_| ())
}

/// Fills `page` from a place in a file; false where the file ends before.
pub(crate) fn read_page(file: &File, path: &Path, at: u64, page: &mut [u8]) -> Result<bool> {
    let mut done = 0;
    while done < page.len() {
        match file.read_at(&mut page[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(reading(path, &e)),
        }
    }
    if done < page.len() {
        page.fill(0);
    }
    Ok(done == page.len())
}
