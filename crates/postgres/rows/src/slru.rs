//! The files of pg_xact and pg_multixact, read page by page: what is there, and what is lost.
//!
//! Source: src/backend/access/transam/slru.c: files of 32 pages, named by their number in four hexadecimal digits or more.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use leadline_datadir::DataDir;

/// Pages of a file.
pub(crate) const PAGES: u32 = 32;
/// Files that are kept in memory.
const KEPT: usize = 16;

/// One of these folders.
#[derive(Debug)]
pub(crate) struct Slru {
    /// As in `pg_xact`.
    name: &'static str,
    folder: PathBuf,
    pub block_size: usize,
    files: HashMap<u32, Segment>,
}

/// What there is of a file.
#[derive(Debug, Default)]
struct Segment {
    bytes: Vec<u8>,
    /// Why there are no bytes, or no more.
    end: &'static str,
    /// A bit for each page that has nothing but zeros.
    blank: u32,
}

impl Slru {
    pub(crate) fn new(dir: &DataDir, name: &'static str) -> Slru {
        Slru { name, folder: dir.root.join(name), block_size: dir.block_size, files: HashMap::new() }
    }

    /// The byte at a place of a page; None when it is lost.
    #[inline]
    pub(crate) fn byte(&mut self, page: u32, at: usize) -> Option<u8> {
        let from = (page % PAGES) as usize * self.block_size;
        self.segment(page / PAGES).bytes.get(from + at).copied()
    }

    pub(crate) fn u32(&mut self, page: u32, at: usize) -> Option<u32> {
        let from = (page % PAGES) as usize * self.block_size + at;
        let bytes = self.segment(page / PAGES).bytes.get(from..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Whether a page has nothing but zeros.
    pub(crate) fn is_blank(&mut self, page: u32) -> bool {
        self.segment(page / PAGES).blank >> (page % PAGES) & 1 == 1
    }

    /// Why a page is not all there; None when it is.
    pub(crate) fn end(&mut self, page: u32) -> Option<String> {
        let last = self.block_size - 1;
        if self.byte(page, last).is_some() {
            return None;
        }
        Some(self.why(page))
    }

    /// Why a page is lost, or is as good as lost.
    pub(crate) fn why(&mut self, page: u32) -> String {
        let (number, within, size) = (page / PAGES, page % PAGES, self.block_size);
        let file = format!("{}/{number:04X}", self.name);
        let segment = self.segment(number);
        match segment.bytes.len() / size > within as usize {
            true => format!("page {within} of {file} contains only zeros"),
            false => format!("{file} {}", segment.end),
        }
    }

    fn segment(&mut self, number: u32) -> &Segment {
        if self.files.len() > KEPT && !self.files.contains_key(&number) {
            self.files.clear();
        }
        let (folder, size) = (&self.folder, self.block_size);
        self.files.entry(number).or_insert_with(|| Segment::read(&folder.join(format!("{number:04X}")), size))
    }
}

impl Segment {
    fn read(path: &std::path::Path, block_size: usize) -> Segment {
        let none = |end| Segment { end, ..Segment::default() };
        match std::fs::metadata(path) {
            Ok(about) if !about.is_file() => return none("is not a regular file"),
            Err(e) if e.kind() == ErrorKind::NotFound => return none("is missing"),
            _ => {}
        }
        let mut bytes = Vec::new();
        let most = u64::from(PAGES) * block_size as u64;
        if File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).is_err() {
            return none("cannot be read");
        }
        let zeros = |page: &[u8]| page.len() == block_size && page.iter().all(|byte| *byte == 0);
        let blank = bytes.chunks(block_size).enumerate().fold(0, |all, (i, page)| all | u32::from(zeros(page)) << i);
        Segment { bytes, end: "is too short", blank }
    }
}
