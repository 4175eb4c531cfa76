//! Files of a data directory that are taken apart like pages and are none of a relation.
//!
//! Known by their names and folders: global/pg_control, pg_filenode.map, pg_xact/0000 and on. Copies elsewhere are read too,
//! as long as they keep their names (of pg_xact also the folder's).

use std::fs::{self, File};
use std::path::Path;

use leadline_datadir::above;
use leadline_errors::Error;
use leadline_page::postgres::{describe_clog, describe_control, describe_relmap, SLRU_PAGES_PER_SEGMENT};
use leadline_page::{Part, Wrong};

use crate::error::{cannot_read, no_pages};
use crate::layout::{layout_of, read_at};

/// No such file is longer that a server makes; more is not read.
const LONGEST: usize = 32 << 10;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// pg_control
    Control,
    /// pg_filenode.map
    Relmap,
    /// A file of pg_xact; its number.
    Clog(u32),
}

/// A file or one page of it, taken apart.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct OtherPage {
    pub kind: &'static str,
    pub raw: Vec<u8>,
    pub parts: Vec<Part>,
    pub wrong: Vec<Wrong>,
    /// As it should be, where there is one.
    pub checksum: Option<u32>,
}

impl Other {
    /// By the path.
    pub fn of(path: &Path) -> Option<Other> {
        let name = path.file_name()?.to_str()?;
        match name {
            "pg_control" => return Some(Other::Control),
            "pg_filenode.map" => return Some(Other::Relmap),
            _ => {}
        }
        let full = std::path::absolute(path).ok()?;
        let is_xact = full.parent()?.file_name()? == "pg_xact";
        let is_number = name.len() == 4 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
        (is_xact && is_number).then(|| u32::from_str_radix(name, 16).ok().map(Other::Clog))?
    }

    /// Takes the file apart, of pg_xact its page `block`.
    ///
    /// # Errors
    /// When it cannot be read or has no such page.
    pub fn read(self, path: &Path, block: u32, block_size: Option<u32>) -> Result<OtherPage, Error> {
        let failed = |source| cannot_read(path, &source);
        let no_page = |detail: String| no_pages(path, detail);
        let about = fs::metadata(path).map_err(failed)?;
        if !about.is_file() {
            return Err(no_page("not a file".into()));
        }
        let file = File::open(path).map_err(failed)?;
        let size = match self {
            Other::Clog(_) => layout_of(above(path)?.as_ref(), block_size)?.block_size as usize,
            _ if block > 0 => return Err(no_page(format!("no block {block}: the file is read as a single block 0"))),
            _ => LONGEST,
        };
        let mut raw = vec![0; size];
        let read = read_at(&file, &mut raw, u64::from(block) * size as u64).map_err(failed)?;
        raw.truncate(read);
        let one = |kind, (parts, wrong, sum): (Vec<Part>, Vec<Wrong>, u32), raw| OtherPage {
            kind,
            raw,
            parts,
            wrong,
            checksum: (sum != 0).then_some(sum),
        };
        Ok(match self {
            _ if read == 0 => return Err(no_page(format!("no block {block}: the file has {} bytes", about.len()))),
            Other::Control => one("control file", describe_control(&raw), raw),
            Other::Relmap => one("filenode map", describe_relmap(&raw), raw),
            Other::Clog(_) if read < size => {
                return Err(no_page(format!(
                    "the file ends in the middle of block {block}, after {read} of {size} bytes"
                )))
            }
            Other::Clog(number) => {
                let page = number.wrapping_mul(SLRU_PAGES_PER_SEGMENT).wrapping_add(block);
                OtherPage {
                    kind: "transaction log",
                    parts: describe_clog(&raw, page),
                    raw,
                    wrong: Vec::new(),
                    checksum: None,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        let of = |path: &str| Other::of(Path::new(path));
        assert_eq!(of("/d/global/pg_control"), Some(Other::Control));
        assert_eq!(of("copy/pg_filenode.map"), Some(Other::Relmap));
        assert_eq!(of("/d/pg_xact/00AF"), Some(Other::Clog(0xaf)));
        for other in ["/d/pg_xact/00af", "/d/pg_multixact/offsets/0000", "/d/0000", "/d/pg_xact/00000", "/", "1259"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
