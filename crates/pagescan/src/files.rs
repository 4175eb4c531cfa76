//! Which relation files there are, what their names mean, and how large their pages are.
//!
//! Source: src/common/relpath.c: base/DB/N, global/N, pg_tblspc/SPACE/PG_VERSION_CATALOG/DB/N, with _fsm, _vm or _init for
//! other forks and .1, .2 ... for each further gigabyte.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use leadline_page::oracle;
use leadline_page::postgres::{Control, Fork, Header};

use crate::error::Error;
use crate::other::Other;

const DEFAULT_BLOCK: u32 = 8192;
const SEGMENT_BYTES: u64 = 1 << 30;
const DEFAULT_TABLESPACE: u32 = 1663;
const GLOBAL_TABLESPACE: u32 = 1664;

/// Whose pages a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Engine {
    Postgres,
    /// A datafile, or blocks cut out of one.
    Oracle,
}

/// One file of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RelationFile {
    pub path: PathBuf,
    pub engine: Engine,
    /// Tablespace; 0 when the path does not tell.
    pub spcnode: u32,
    /// Database; 0 for shared relations and when the path does not tell.
    pub dbnode: u32,
    /// 0 when the name is no number.
    pub relfilenode: u32,
    pub fork: Fork,
    pub segment: u32,
    /// When it was looked at.
    pub bytes: u64,
    /// How its pages are laid out.
    pub layout: Layout,
}

/// How pages lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a page.
    pub block_size: u32,
    /// Blocks in a file before the next one begins.
    pub segment_blocks: u32,
    /// Whether pages have checksums; None when no pg_control says it: then those are checked that are not 0.
    pub checksums: Option<bool>,
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
        let read = |source| Error::Read { path: path.to_owned(), source };
        // Asked before it is opened: to open a pipe is to wait for somebody who writes.
        let about = fs::metadata(path).map_err(read)?;
        if !about.is_file() {
            return Err(Error::NotPages { path: path.to_owned(), detail: "not a file".into() });
        }
        let file = File::open(path).map_err(read)?;
        let (engine, layout) = match control_above(path)? {
            Some(control) => (Engine::Postgres, layout_of(Some(&control), block_size)?),
            None => {
                let (engine, found) = first_page(path, &file, block_size)?;
                (engine, layout_of(None, block_size.or(found))?)
            }
        };
        Ok((RelationFile { engine, ..named(path, about.len(), layout) }, file))
    }

    /// One page of the file.
    ///
    /// # Errors
    /// When there is no such block, not even a part of it.
    pub fn read_block(&self, file: &File, block: u32) -> Result<Vec<u8>, Error> {
        let size = self.layout.block_size as usize;
        let mut page = vec![0; size];
        let read = read_at(file, &mut page, u64::from(block) * size as u64);
        let read = read.map_err(|source| Error::Read { path: self.path.clone(), source })?;
        if read < size {
            let blocks = self.bytes / size as u64;
            let detail = match (read, blocks) {
                (0, 0) => format!("the file has {} bytes, less than one page of {size}", self.bytes),
                (0, n) if u64::from(block) < n => {
                    format!("the file became shorter while it was read: block {block} is gone")
                }
                (0, _) => format!("there is no block {block}: the file has blocks 0 to {}", blocks - 1),
                _ => format!("the file ends within block {block}: it has {read} of {size} bytes"),
            };
            return Err(Error::NotPages { path: self.path.clone(), detail });
        }
        Ok(page)
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// What there is to look at.
#[derive(Debug, Default)]
pub struct Found {
    /// Files of pages.
    pub files: Vec<RelationFile>,
    /// Links of tablespaces in pg_tblspc that lead nowhere: their files cannot be looked at.
    pub absent: Vec<PathBuf>,
}

/// The files to look at: each path is a file of pages, a data directory, or a folder of relation files in one.
///
/// # Errors
/// When a path cannot be read or there are no relation files in it.
pub fn find(paths: &[PathBuf], block_size: Option<u32>) -> Result<Found, Error> {
    let mut found = Found::default();
    for path in paths {
        let about = fs::metadata(path).map_err(|source| Error::Read { path: path.clone(), source })?;
        if about.is_dir() {
            let before = found.files.len();
            let layout = layout_of(control_above(&path.join("PG_VERSION"))?.as_ref(), block_size)?;
            if path.join("PG_VERSION").is_file() && path.join("base").is_dir() {
                data_directory(path, layout, &mut found)?;
            } else {
                folder(path, layout, &mut found)?;
            }
            if found.files.len() == before {
                let detail = "neither a data directory nor a folder with relation files".into();
                return Err(Error::NotPages { path: path.clone(), detail });
            }
        } else {
            if Other::of(path).is_some() && block_size.is_none() {
                let detail = "it belongs to no relation: page show takes it apart".into();
                return Err(Error::NotPages { path: path.clone(), detail });
            }
            let (file, _) = RelationFile::open(path, block_size)?;
            if file.engine != Engine::Postgres {
                let detail = "it holds blocks of Oracle, of which only single ones are taken apart (show, hex, diff)";
                return Err(Error::NotPages { path: path.clone(), detail: detail.into() });
            }
            found.files.push(file);
        }
    }
    Ok(found)
}

fn data_directory(root: &Path, layout: Layout, found: &mut Found) -> Result<(), Error> {
    folder(&root.join("global"), layout, found)?;
    for database in folders(&root.join("base"))? {
        folder(&database, layout, found)?;
    }
    // Of several servers that share a tablespace's folder, as after pg_upgrade, each has a folder of its own there.
    let version = fs::read_to_string(root.join("PG_VERSION")).unwrap_or_default();
    let own = format!("PG_{}_", version.trim());
    let is_own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own));
    for space in entries(&root.join("pg_tblspc"))? {
        if space.is_symlink() && !space.exists() {
            found.absent.push(space);
            continue;
        }
        for version in folders(&space)?.into_iter().filter(is_own) {
            for database in folders(&version)? {
                folder(&database, layout, found)?;
            }
        }
    }
    Ok(())
}

/// What is in a folder; nothing when there is none, since a running server drops databases and tablespaces.
fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    let listing = match fs::read_dir(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        listing => listing.map_err(read)?,
    };
    let listed: io::Result<Vec<PathBuf>> = listing.map(|e| Ok(e?.path())).collect();
    let mut listed = listed.map_err(read)?;
    listed.sort();
    Ok(listed)
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(entries(path)?.into_iter().filter(|p| p.is_dir()).collect())
}

/// The relation files of one folder; temporary ones and those that vanish meanwhile are left out.
fn folder(path: &Path, layout: Layout, found: &mut Found) -> Result<(), Error> {
    for path in entries(path)? {
        if parse_name(&path).is_some() {
            if let Ok(about) = fs::metadata(&path) {
                if about.is_file() {
                    found.files.push(named(&path, about.len(), layout));
                }
            }
        }
    }
    Ok(())
}

/// (relfilenode, fork, segment) of a relation file's name; of temporary relations, which are called t3_16384 in session 3, too.
fn parse_any_name(path: &Path) -> Option<(u32, Fork, u32)> {
    let name = path.file_name()?.to_str()?;
    let permanent =
        name.strip_prefix('t').and_then(|rest| rest.split_once('_')).filter(|(session, _)| is_digits(session));
    parse_name(Path::new(permanent.map_or(name, |(_, name)| name)))
}

/// The same of a relation's that is not temporary.
fn parse_name(path: &Path) -> Option<(u32, Fork, u32)> {
    let name = path.file_name()?.to_str()?;
    let (name, segment) = match name.split_once('.') {
        Some((name, segment)) => (name, number(segment)?),
        None => (name, 0),
    };
    let (name, fork) = match name.split_once('_') {
        Some((name, "fsm")) => (name, Fork::Fsm),
        Some((name, "vm")) => (name, Fork::Vm),
        Some((name, "init")) => (name, Fork::Init),
        Some(_) => return None,
        None => (name, Fork::Main),
    };
    Some((number(name)?, fork, segment))
}

/// A number as PostgreSQL writes it into names: no sign, no zero in front.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| is_digits(text) && !text.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn named(path: &Path, bytes: u64, layout: Layout) -> RelationFile {
    let (relfilenode, fork, segment) = parse_any_name(path).unwrap_or_default();
    let above = |n: usize| path.ancestors().nth(n).and_then(|p| p.file_name()?.to_str());
    let (spcnode, dbnode) = match (above(1), above(2), above(4)) {
        (Some("global"), _, _) => (GLOBAL_TABLESPACE, 0),
        (Some(db), Some("base"), _) => (DEFAULT_TABLESPACE, number(db).unwrap_or(0)),
        (Some(db), Some(version), Some("pg_tblspc")) if version.starts_with("PG_") => {
            (above(3).and_then(number).unwrap_or(0), number(db).unwrap_or(0))
        }
        _ => (0, 0),
    };
    let engine = Engine::Postgres;
    RelationFile { path: path.to_owned(), engine, spcnode, dbnode, relfilenode, fork, segment, bytes, layout }
}

pub(crate) fn layout_of(control: Option<&Control>, block_size: Option<u32>) -> Result<Layout, Error> {
    let block_size = block_size.or(control.map(|c| c.blcksz)).unwrap_or(DEFAULT_BLOCK);
    if !block_size.is_power_of_two() || !(1024..=32768).contains(&block_size) {
        return Err(Error::Usage(format!("a block size is a power of two from 1024 to 32768, not {block_size}")));
    }
    let segment_blocks = control.map_or((SEGMENT_BYTES / u64::from(block_size)) as u32, |c| c.relseg_size);
    Ok(Layout { block_size, segment_blocks, checksums: control.map(|c| c.data_checksum_version != 0) })
}

/// The pg_control of the data directory that a file is in: by its path as given, which may lead through the link of a tablespace,
/// else by where it really is.
pub(crate) fn control_above(path: &Path) -> Result<Option<Control>, Error> {
    let given = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for folder in [&given, &full].into_iter().flat_map(|path| path.ancestors().skip(1).take(5)) {
        let control = folder.join("global/pg_control");
        if !control.is_file() {
            continue;
        }
        let mut bytes = Vec::new();
        let read = File::open(&control).and_then(|f| f.take(8192).read_to_end(&mut bytes));
        read.map_err(|source| Error::Read { path: control.clone(), source })?;
        if Control::is_older(&bytes) {
            return Ok(None); // readable, but what it says of its pages is at other places
        }
        let parsed = Control::parse(&bytes);
        return parsed.map(Some).map_err(|e| Error::NotPages { path: control, detail: e.to_string() });
    }
    Ok(None)
}

/// Whose pages a file has and the block size that the first one claims; no size when that page is new.
fn first_page(path: &Path, file: &File, given: Option<u32>) -> Result<(Engine, Option<u32>), Error> {
    let mut start = [0; 24];
    let read = read_at(file, &mut start, 0).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let start = start.get(..read).unwrap_or(&[]);
    let header = Header::parse(start);
    if read == 0 || header.is_some_and(|h| h == Header::default()) {
        return Ok((Engine::Postgres, None));
    }
    match header.map(|h| (h.page_size() as u32, h.version())) {
        Some((size, 4)) if size.is_power_of_two() && (1024..=32768).contains(&size) => {
            return Ok((Engine::Postgres, Some(size)))
        }
        _ => {}
    }
    if let Some(size) = oracle::block_size(start) {
        return Ok((Engine::Oracle, Some(size as u32)));
    }
    if given.is_some() {
        return Ok((Engine::Postgres, None)); // somebody knows better
    }
    let detail = "it does not begin with a page of PostgreSQL, and no data directory around it says that it has pages";
    Err(Error::NotPages { path: path.to_owned(), detail: detail.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        let layout = Layout { block_size: 8192, segment_blocks: 131_072, checksums: None };
        let of = |path: &str| {
            let f = named(Path::new(path), 0, layout);
            (f.spcnode, f.dbnode, f.relfilenode, f.fork, f.segment)
        };
        assert_eq!(of("/d/base/5/1259"), (1663, 5, 1259, Fork::Main, 0));
        assert_eq!(of("/d/base/5/1259_vm.3"), (1663, 5, 1259, Fork::Vm, 3));
        assert_eq!(of("/d/global/1262_fsm"), (1664, 0, 1262, Fork::Fsm, 0));
        assert_eq!(of("/d/pg_tblspc/77/PG_15_202209061/5/16385_init"), (77, 5, 16385, Fork::Init, 0));
        for other in
            ["/d/base/5/t3_16384", "/d/base/5/PG_VERSION", "/d/base/5/1259.x", "/d/base/5/01", "/d/base/5/1_vmx"]
        {
            assert_eq!(parse_name(Path::new(other)), None, "{other}");
        }
        assert_eq!(of("/d/base/5/t3_16384"), (1663, 5, 16384, Fork::Main, 0));
        assert_eq!(of("/d/base/5/t12_16384_fsm.1"), (1663, 5, 16384, Fork::Fsm, 1));
        assert_eq!(of("/d/base/5/tx_16384_fsm"), (1663, 5, 0, Fork::Main, 0));
        assert!(entries(Path::new("/d/base/5")).is_ok_and(|entries| entries.is_empty()), "a database that was dropped");
        let third = RelationFile { segment: 2, ..named(Path::new("1.2"), 0, layout) };
        assert_eq!(third.fork_block(7), 262_151);
    }
}
