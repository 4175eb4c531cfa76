//! Which relation files there are, and how large their pages are. What their names mean is in `leadline-datadir`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use leadline_datadir::{
    of_path, own_version, read_bytes, read_version, refuse_pg_probackup, root_above, FileName, RelFile,
    DEFAULT_BLOCK_SIZE, MAJORS, SEGMENT_BYTES,
};
use leadline_errors::Error;
use leadline_page::postgres::{is_block_size, Control, ControlState, Fork, Header};
use leadline_page::Wrong;

use crate::error::{cannot_read, no_pages};
use crate::formats::{told_by_name, Format, Postgres, TOLD_BY_BYTES};
use crate::incremental::{self, plain_path, Stored};
use crate::layout::{layout_of, read_at, Layout};
use crate::listing::entries;
use crate::passed::{self, PassedOver};

/// One file of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RelationFile {
    pub path: PathBuf,
    pub format: &'static dyn Format,
    /// Whose files these are; what the path does not tell is 0.
    pub relation: RelFile,
    pub fork: Fork,
    pub segment: u32,
    /// When it was looked at.
    pub bytes: u64,
    /// How its pages are laid out.
    pub layout: Layout,
    /// It is of an incremental backup: it has some blocks of the relation's file, in an order of its own.
    pub incremental: bool,
}

impl RelationFile {
    /// Number within the fork of a block of this file.
    pub fn fork_block(&self, block: u32) -> u32 {
        self.segment.wrapping_mul(self.layout.segment_blocks).wrapping_add(block)
    }

    /// Opens one file, whatever its name. With `block_size` the pages are taken to be of that size.
    ///
    /// # Errors
    /// When it is not a file that can be read, or holds no page.
    pub fn open(path: &Path, block_size: Option<u32>) -> Result<(RelationFile, File), Error> {
        let read = |source| cannot_read(path, &source);
        // Asked before it is opened: to open a pipe is to wait for somebody who writes.
        let about = fs::metadata(path).map_err(read)?;
        if !about.is_file() {
            return Err(no_pages(path, "not a file"));
        }
        if let (Some(kind), None) = (passed::kind(path), block_size) {
            return Err(no_pages(path, format!("a file without pages of a relation ({kind})")));
        }
        let file = File::open(path).map_err(read)?;
        let (format, layout): (&'static dyn Format, Layout) = match Said::above(path)? {
            Said::Believed(control) => (&Postgres, layout_of(Some(&control), block_size)?),
            Said::Doubted(control) => {
                let found = first_page(path, &file, block_size).ok().and_then(|(_, size)| size);
                (&Postgres, doubtful_layout(control, block_size.or(found)))
            }
            Said::Nothing => {
                let (format, found) = first_page(path, &file, block_size)?;
                (format, layout_of(None, block_size.or(found))?)
            }
        };
        Ok((RelationFile { format, ..named(path, about.len(), layout) }, file))
    }

    /// One page of the file.
    ///
    /// # Errors
    /// When there is no such block, not even a part of it.
    pub fn read_block(&self, file: &File, block: u32) -> Result<Vec<u8>, Error> {
        let size = self.layout.block_size as usize;
        let mut page = vec![0; size];
        let at = match self.stored(file)? {
            None => u64::from(block) * size as u64,
            Some(Err(wrong)) => return Err(no_pages(&self.path, wrong.to_string())),
            Some(Ok(stored)) => stored.offset_of(block, self.layout.block_size).ok_or_else(|| {
                let detail =
                    format!("block {block} is not in this file of an incremental backup: it has {}", stored.listed());
                no_pages(&self.path, detail)
            })?,
        };
        let read = read_at(file, &mut page, at);
        let read = read.map_err(|source| cannot_read(&self.path, &source))?;
        if read < size {
            let blocks = self.bytes / size as u64;
            let detail = match (read, blocks) {
                (0, 0) => format!("the file has {} bytes, less than one page of {size}", self.bytes),
                (0, n) if u64::from(block) < n => {
                    format!("the file was truncated while being read: block {block} is gone")
                }
                (0, _) => format!("no block {block}: the file has blocks 0 to {}", blocks - 1),
                _ => format!("the file ends in the middle of block {block}, after {read} of {size} bytes"),
            };
            return Err(no_pages(&self.path, detail));
        }
        Ok(page)
    }

    /// Which blocks it has, or what is wrong with what it says of that; none when it has all.
    pub(crate) fn stored(&self, file: &File) -> Result<Option<Result<Stored, Wrong>>, Error> {
        self.incremental.then(|| Stored::read(&self.path, file, self.layout)).transpose()
    }
}

/// What there is to look at.
#[derive(Debug, Default)]
pub struct Found {
    /// Files of pages.
    pub files: Vec<RelationFile>,
    /// Links of tablespaces in pg_tblspc that lead nowhere: their files cannot be looked at.
    pub absent: Vec<PathBuf>,
    /// Files that are not looked at.
    pub passed: PassedOver,
}

/// The files to look at: each path is a file of pages, a data directory, or a folder of relation files in one.
///
/// # Errors
/// When a path cannot be read or there are no relation files in it.
pub fn find(paths: &[PathBuf], block_size: Option<u32>) -> Result<Found, Error> {
    let mut found = Found::default();
    for path in paths {
        let about = fs::metadata(path).map_err(|source| cannot_read(path, &source))?;
        if about.is_dir() {
            refuse_pg_probackup(path)?;
            let before = found.files.len();
            let layout = Said::above(&path.join("PG_VERSION"))?.layout(block_size, || size_in(path))?;
            if path.join("PG_VERSION").is_file() && path.join("base").is_dir() {
                data_directory(path, layout, &mut found)?;
            } else {
                folder(path, layout, &mut found)?;
            }
            if found.files.len() == before {
                let kinds: Vec<_> = found.passed.iter().map(|(kind, of)| format!("{} {kind}", of.files)).collect();
                let others =
                    if kinds.is_empty() { String::new() } else { format!("; other files: {}", kinds.join(", ")) };
                return Err(no_pages(
                    path,
                    format!("neither a data directory nor a folder with relation files{others}"),
                ));
            }
        } else {
            if told_by_name(path).is_some() && block_size.is_none() {
                let detail = "it does not belong to a relation; page show can decode it";
                return Err(no_pages(path, detail));
            }
            let (file, _) = RelationFile::open(path, block_size)?;
            if file.format.engine() != Postgres.engine() {
                let owner = file.format.owner();
                let detail =
                    format!("it contains {owner} blocks, which can only be decoded one at a time (show, hex, diff)");
                return Err(no_pages(path, detail));
            }
            found.files.push(file);
        }
    }
    Ok(found)
}

fn data_directory(root: &Path, layout: Layout, found: &mut Found) -> Result<(), Error> {
    folder(&root.join("global"), layout, found)?;
    databases(&root.join("base"), layout, found)?;
    passed::count_others(root, &mut found.passed);
    // Of several servers that share a tablespace's folder, as after pg_upgrade, each has a folder of its own there.
    let major = read_version(root).ok().and_then(|version| version.parse().ok()).unwrap_or(0);
    let is_own = |path: &PathBuf| path.file_name().is_some_and(|name| own_version(&name.to_string_lossy(), major));
    for space in entries(&root.join("pg_tblspc"))? {
        if space.is_symlink() && !space.exists() {
            found.absent.push(space);
            continue;
        }
        for version in folders(&space)?.into_iter().filter(is_own) {
            databases(&version, layout, found)?;
        }
    }
    Ok(())
}

/// The folders of databases in one, and that of temporary files.
fn databases(path: &Path, layout: Layout, found: &mut Found) -> Result<(), Error> {
    for path in entries(path)? {
        match path.is_dir() {
            true if path.file_name().is_some_and(|name| name == "pgsql_tmp") => {
                passed::count_below(&path, 0, &mut found.passed);
            }
            true => folder(&path, layout, found)?,
            false => passed::count(&mut found.passed, &path),
        }
    }
    Ok(())
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(entries(path)?.into_iter().filter(|p| p.is_dir()).collect())
}

/// The relation files of one folder; those that vanish meanwhile are left out.
fn folder(path: &Path, layout: Layout, found: &mut Found) -> Result<(), Error> {
    for path in entries(path)? {
        let is_relation = path.file_name().and_then(|name| FileName::parse(name.to_str()?)).is_some();
        match fs::metadata(&path) {
            Ok(about)
                if about.is_file() && (is_relation || plain_path(&path).is_some()) && passed::kind(&path).is_none() =>
            {
                found.files.push(named(&path, about.len(), layout));
            }
            // What is no regular file, and bears the name of a relation's, is a problem that the catalogs tell of.
            Ok(about) if about.is_file() || !is_relation => passed::count_below(&path, 0, &mut found.passed),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn named(path: &Path, bytes: u64, layout: Layout) -> RelationFile {
    let plain = plain_path(path);
    let (relation, FileName { fork, segment, .. }) = of_path(plain.as_deref().unwrap_or(path));
    let (path, incremental) = (path.to_owned(), plain.is_some());
    RelationFile { path, format: &Postgres, relation, fork, segment, bytes, layout, incremental }
}

/// What pg_control says of pages.
pub(crate) enum Said {
    /// There is none, or that of a major that says it at other places.
    Nothing,
    Believed(Control),
    /// It is damaged: what it says may be so or not, if it can be at all. Pages are then taken by what they say themselves.
    Doubted(Option<Control>),
}

impl Said {
    fn above(path: &Path) -> Result<Said, Error> {
        let Some(root) = root_above(path) else { return Ok(Said::Nothing) };
        let path = root.join("global/pg_control");
        let bytes = read_bytes(&path).map_err(|e| cannot_read(&path, &e))?;
        // A version that cannot be read is none of before.
        Ok(Said::of_bytes(&bytes, || read_version(&root).unwrap_or_else(|_| MAJORS.start().to_string())))
    }

    /// By the bytes of the file, and what PG_VERSION says.
    pub(crate) fn of_bytes(bytes: &[u8], version: impl Fn() -> String) -> Said {
        let is_of_before = || version().parse().map_or(true, |major: u32| major < *MAJORS.start());
        if Control::is_older(bytes) && is_of_before() {
            return Said::Nothing;
        }
        let is_whole = ControlState::parse(bytes).is_ok_and(|state| state.wrong_crc.is_none());
        match Control::parse(bytes) {
            Ok(control) if is_whole => Said::Believed(control),
            control => Said::Doubted(control.ok()),
        }
    }

    /// How pages lie in the files that it is of; `found` is the size that these claim.
    pub(crate) fn layout(self, block_size: Option<u32>, found: impl Fn() -> Option<u32>) -> Result<Layout, Error> {
        match self {
            Said::Believed(control) => layout_of(Some(&control), block_size),
            Said::Doubted(control) => Ok(doubtful_layout(control, block_size.or_else(found))),
            Said::Nothing => layout_of(None, block_size),
        }
    }

    /// What is wrong with its bytes.
    pub(crate) fn wrong(&self, bytes: &[u8]) -> Option<Wrong> {
        match (self, ControlState::parse(bytes)) {
            (Said::Doubted(_), Ok(state)) => state.wrong_crc,
            (Said::Doubted(_), Err(wrong)) => Some(wrong),
            _ => None,
        }
    }
}

/// With a pg_control that is damaged: checksums are compared on pages that have one.
fn doubtful_layout(control: Option<Control>, block_size: Option<u32>) -> Layout {
    let is_size = |size: &u32| is_block_size(*size);
    let said = control.as_ref().map(|c| c.blcksz).filter(is_size);
    let block_size = block_size.filter(is_size).or(said).unwrap_or(DEFAULT_BLOCK_SIZE);
    let segment = control.map(|c| c.relseg_size).filter(|blocks| blocks.is_power_of_two());
    Layout { block_size, segment_blocks: segment.unwrap_or(SEGMENT_BYTES / block_size), checksums: None }
}

/// The size of pages that the files in a data directory, or in a folder of one, claim.
fn size_in(path: &Path) -> Option<u32> {
    let global = path.join("global");
    let listed = entries(if global.is_dir() { &global } else { path }).ok()?;
    listed.iter().filter(|path| path.is_file()).find_map(|path| {
        FileName::parse(path.file_name()?.to_str()?)?;
        first_page(path, &File::open(path).ok()?, None).ok()?.1
    })
}

/// The format of a file's pages and the size that the first one claims; no size when that page is new.
fn first_page(path: &Path, file: &File, given: Option<u32>) -> Result<(&'static dyn Format, Option<u32>), Error> {
    let mut start = [0; 24];
    let read = read_at(file, &mut start, 0).map_err(|source| cannot_read(path, &source))?;
    let start = start.get(..read).unwrap_or(&[]);
    if read == 0 || Header::parse(start).is_some_and(|h| h == Header::default()) {
        return Ok((&Postgres, None));
    }
    if plain_path(path).is_some() {
        let bytes = fs::metadata(path).map_or(0, |about| about.len());
        return Ok((&Postgres, incremental::block_size_of(start, bytes)));
    }
    for format in TOLD_BY_BYTES {
        if let Some(size) = format.told_size(start) {
            return Ok((format, Some(size)));
        }
    }
    if given.is_some() {
        return Ok((&Postgres, None)); // somebody knows better
    }
    let detail = "it does not start with a PostgreSQL page, and it is not inside a data directory";
    Err(no_pages(path, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_datadir::DEFAULT_BLOCK_SIZE;

    #[test]
    fn a_dropped_database_has_no_files_and_blocks_are_counted_over_segments() {
        let layout = Layout { block_size: DEFAULT_BLOCK_SIZE, segment_blocks: 131_072, checksums: None };
        assert!(entries(Path::new("/d/base/5")).is_ok_and(|entries| entries.is_empty()), "a database that was dropped");
        let third = RelationFile { segment: 2, ..named(Path::new("1.2"), 0, layout) };
        assert_eq!(third.fork_block(7), 262_151);
    }
}
