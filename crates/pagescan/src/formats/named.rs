//! Files of a data directory of PostgreSQL that are none of a relation, and are taken apart like pages.
//!
//! Known by their names and folders: global/pg_control, pg_filenode.map, pg_xact/0000 and on. Copies elsewhere are read too,
//! as long as they keep their names (of pg_xact also the folder's).

use std::fs::{self, File};
use std::path::Path;

use leadline_datadir::above;
use leadline_errors::Error;
use leadline_page::postgres::{describe_clog, describe_control, describe_relmap, SLRU_PAGES_PER_SEGMENT};
use leadline_page::{Part, Wrong};

use super::Dissected;
use crate::error::{cannot_read, no_pages};
use crate::layout::{layout_of, read_at};

/// No such file is longer that a server makes; more is not read.
const LONGEST: usize = 32 << 10;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedFile {
    /// pg_control
    Control,
    /// pg_filenode.map
    Relmap,
    /// A file of pg_xact; its number.
    Clog(u32),
}

impl NamedFile {
    /// By the path.
    pub(crate) fn of(path: &Path) -> Option<NamedFile> {
        let name = path.file_name()?.to_str()?;
        match name {
            "pg_control" => return Some(NamedFile::Control),
            "pg_filenode.map" => return Some(NamedFile::Relmap),
            _ => {}
        }
        let full = std::path::absolute(path).ok()?;
        let is_xact = full.parent()?.file_name()? == "pg_xact";
        let is_number = name.len() == 4 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
        (is_xact && is_number).then(|| u32::from_str_radix(name, 16).ok().map(NamedFile::Clog))?
    }

    /// The bytes of the file, of pg_xact those of its page `block`.
    ///
    /// # Errors
    /// When it cannot be read or has no such page.
    pub(crate) fn read(self, path: &Path, block: u32, block_size: Option<u32>) -> Result<Vec<u8>, Error> {
        let failed = |source| cannot_read(path, &source);
        let no_page = |detail: String| no_pages(path, detail);
        let about = fs::metadata(path).map_err(failed)?;
        if !about.is_file() {
            return Err(no_page("not a file".into()));
        }
        let file = File::open(path).map_err(failed)?;
        let size = match self {
            NamedFile::Clog(_) => layout_of(above(path)?.as_ref(), block_size)?.block_size as usize,
            _ if block > 0 => return Err(no_page(format!("no block {block}: the file is read as a single block 0"))),
            _ => LONGEST,
        };
        let mut raw = vec![0; size];
        let read = read_at(&file, &mut raw, u64::from(block) * size as u64).map_err(failed)?;
        raw.truncate(read);
        match self {
            _ if read == 0 => Err(no_page(format!("no block {block}: the file has {} bytes", about.len()))),
            NamedFile::Clog(_) if read < size => {
                Err(no_page(format!("the file ends in the middle of block {block}, after {read} of {size} bytes")))
            }
            _ => Ok(raw),
        }
    }

    /// Takes apart what was read.
    pub(crate) fn dissect(self, raw: &[u8], block: u32) -> Dissected {
        let summed = |kind: &str, (parts, wrong, sum): (Vec<Part>, Vec<Wrong>, u32)| {
            let checksum = (sum != 0).then_some(sum);
            Dissected { kind: kind.into(), parts, wrong, checksum }
        };
        match self {
            NamedFile::Control => summed("control file", describe_control(raw)),
            NamedFile::Relmap => summed("filenode map", describe_relmap(raw)),
            NamedFile::Clog(number) => {
                let page = number.wrapping_mul(SLRU_PAGES_PER_SEGMENT).wrapping_add(block);
                summed("transaction log", (describe_clog(raw, page), Vec::new(), 0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        let of = |path: &str| NamedFile::of(Path::new(path));
        assert_eq!(of("/d/global/pg_control"), Some(NamedFile::Control));
        assert_eq!(of("copy/pg_filenode.map"), Some(NamedFile::Relmap));
        assert_eq!(of("/d/pg_xact/00AF"), Some(NamedFile::Clog(0xaf)));
        for other in ["/d/pg_xact/00af", "/d/pg_multixact/offsets/0000", "/d/0000", "/d/pg_xact/00000", "/", "1259"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
