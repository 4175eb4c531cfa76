//! One page of a file of any format, taken apart.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};
use leadline_page::postgres::Fork;

use crate::error::cannot_read;
use crate::files::RelationFile;
use crate::formats::{told_by_name, Dissected, Format, PageAt, Postgres};
use crate::layout::read_at;

/// One page, and where it is.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct OnePage {
    pub path: PathBuf,
    pub engine: &'static str,
    /// Its number in the file.
    pub block: u32,
    /// None where files have no forks.
    pub fork: Option<Fork>,
    /// Its number from the beginning of the fork.
    pub fork_block: u32,
    pub block_size: u32,
    /// Whether pages of the file have checksums; none when nobody knows.
    pub checksums: Option<bool>,
    pub raw: Vec<u8>,
    pub found: Dissected,
}

/// Takes one page of a file apart, whose name or first bytes tell its format.
///
/// # Errors
/// The file cannot be read, is of no known format, or has no such page.
pub fn read_page(path: &Path, block: u32, block_size: Option<u32>) -> Result<OnePage, Error> {
    if let Some(file) = told_by_name(path) {
        let raw = file.read(path, block, block_size)?;
        let found = file.dissect(&raw, block);
        return Ok(OnePage {
            path: path.into(),
            engine: Postgres.engine(),
            block,
            fork: None,
            fork_block: block,
            block_size: raw.len() as u32,
            checksums: Some(found.checksum.is_some()),
            raw,
            found,
        });
    }
    let (about, file) = RelationFile::open(path, block_size)?;
    let raw = about.read_block(&file, block)?;
    let at = PageAt { fork: about.fork, block: about.fork_block(block), checksums: about.layout.checksums };
    Ok(OnePage {
        found: about.format.dissect(&raw, at),
        path: about.path,
        engine: about.format.engine(),
        block,
        fork: Some(at.fork),
        fork_block: at.block,
        block_size: about.layout.block_size,
        checksums: at.checksums,
        raw,
    })
}

/// Takes one page of a file or device apart that is said to be of a format.
///
/// # Errors
/// The format has no pages of this size, the file cannot be read or has no such page.
pub fn read_as(format: &dyn Format, path: &Path, block: u32, page_size: Option<u32>) -> Result<OnePage, Error> {
    let sizes = format.page_sizes();
    let size = page_size.or(sizes.first().copied()).filter(|size| sizes.contains(size)).ok_or_else(|| {
        let listed: Vec<_> = sizes.iter().map(u32::to_string).collect();
        let message = format!("{} has no {}-byte pages", format.owner(), page_size.unwrap_or(0));
        Error::new(Kind::Usage, message).hint(format!("use one of {}", listed.join(", ")))
    })?;
    let failed = |source| cannot_read(path, &source);
    let about = fs::metadata(path).map_err(failed)?;
    let is_not = |message| Error::new(Kind::Invalid, message).hint("give a file of pages").at(path);
    if about.is_dir() {
        return Err(is_not("this is a directory"));
    }
    if about.file_type().is_fifo() {
        return Err(is_not("this is a pipe")); // to open one is to wait for somebody who writes; raw devices are read
    }
    let file = File::open(path).map_err(failed)?;
    let mut raw = vec![0; size as usize];
    let read = read_at(&file, &mut raw, u64::from(block) * u64::from(size)).map_err(failed)?;
    if read < raw.len() {
        return Err(Error::new(Kind::Invalid, format!("the file does not contain the whole page {block}"))
            .detail(format!("{read} bytes left in the file, a page has {size}"))
            .hint("check the page number and --block-size")
            .at(path));
    }
    let at = PageAt { fork: Fork::Main, block, checksums: format.checksums() };
    Ok(OnePage {
        path: path.into(),
        engine: format.engine(),
        block,
        fork: None,
        fork_block: block,
        block_size: size,
        checksums: at.checksums,
        found: format.dissect(&raw, at),
        raw,
    })
}
