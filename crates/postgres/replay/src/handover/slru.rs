//! Files of small pages that the WAL changes without naming blocks: transaction status, multixacts, commit timestamps.
//!
//! The pages that the WAL changes are kept in memory until all of it was read, and written once. They have no LSN: what a record
//! does to them can be done again.
//!
//! Source: `access/transam/slru.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use leadline_bytes::Bytes;
use leadline_errors::Result;

use crate::files::cluster::{failed, reading, Cluster};

/// `SLRU_PAGES_PER_SEGMENT`.
const PAGES_PER_FILE: u64 = 32;
/// Bytes of a page.
pub(crate) const PAGE: usize = 8192;

/// The number of a page, as a record has it: of 64 bits since 17.
pub(crate) fn page_number(major: u8, main: &mut Bytes<'_>) -> leadline_bytes::Result<u64> {
    if major >= 17 {
        main.u64("pageno")
    } else {
        main.u32("pageno").map(u64::from)
    }
}

/// One such folder.
#[derive(Debug)]
pub(crate) struct Slru {
    folder: PathBuf,
    /// Numbers (transactions, multixacts, member offsets) that a page has.
    per_page: u32,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    /// Files removed, by number.
    removed: BTreeSet<u64>,
    /// All files that were there were removed.
    is_emptied: bool,
    /// The page used last, to find it without looking.
    last: Option<u64>,
}

impl Slru {
    pub(crate) fn new(root: &Path, folder: &str, per_page: u32) -> Slru {
        Slru {
            folder: root.join(folder),
            per_page,
            pages: BTreeMap::new(),
            removed: BTreeSet::new(),
            is_emptied: false,
            last: None,
        }
    }

    /// The page that has a number.
    pub(crate) fn page_of(&self, number: u32) -> u64 {
        u64::from(number / self.per_page)
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join(format!("{file:04X}"))
    }

    /// Whether a file on disk or a change made so far has the page.
    pub(crate) fn has(&self, page: u64) -> bool {
        let file = page / PAGES_PER_FILE;
        self.pages.contains_key(&page)
            || !self.is_emptied
                && !self.removed.contains(&file)
                && fs::metadata(self.path(file)).is_ok_and(|m| m.len() >= (page % PAGES_PER_FILE + 1) * PAGE as u64)
    }

    /// The page, for a change. What is in no file is zeros, as it is to the server in recovery.
    pub(crate) fn page(&mut self, page: u64) -> Result<&mut [u8; PAGE]> {
        if self.last != Some(page) && !self.pages.contains_key(&page) {
            let bytes = self.read(page)?;
            self.pages.insert(page, bytes);
        }
        self.last = Some(page);
        Ok(self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE])))
    }

    fn read(&self, page: u64) -> Result<Box<[u8; PAGE]>> {
        let mut bytes = Box::new([0; PAGE]);
        let file = page / PAGES_PER_FILE;
        if self.is_emptied || self.removed.contains(&file) {
            return Ok(bytes);
        }
        let path = self.path(file);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(bytes),
            Err(e) => return Err(reading(&path, &e)),
        };
        let (mut done, at) = (0, page % PAGES_PER_FILE * PAGE as u64);
        while done < PAGE {
            match file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(reading(&path, &e)),
            }
        }
        Ok(bytes)
    }

    /// Makes the page zeros.
    pub(crate) fn zero(&mut self, page: u64) {
        self.pages.insert(page, Box::new([0; PAGE]));
    }

    /// `SimpleLruTruncate`: removes the files whose pages are all before this one. Numbers go round, so that half of them are before.
    pub(crate) fn truncate(&mut self, cutoff: u64) -> Result<()> {
        let per_page = self.per_page;
        let precedes = |page: u64| {
            let number = |page: u64| (page as u32).wrapping_mul(per_page).wrapping_add(1);
            let (page, cutoff) = (number(page), number(cutoff));
            let last = cutoff.wrapping_add(per_page - 1);
            (page.wrapping_sub(cutoff) as i32) < 0 && (page.wrapping_sub(last) as i32) < 0
        };
        let files = self.files()?;
        for file in files {
            let first = file * PAGES_PER_FILE;
            if precedes(first) && precedes(first + PAGES_PER_FILE - 1) {
                self.remove(file);
            }
        }
        Ok(())
    }

    /// Removes one file.
    pub(crate) fn remove(&mut self, file: u64) {
        self.pages.retain(|page, _| page / PAGES_PER_FILE != file);
        self.removed.insert(file);
        self.last = None;
    }

    /// Removes all files.
    pub(crate) fn empty(&mut self) {
        self.pages.clear();
        self.removed.clear();
        self.is_emptied = true;
        self.last = None;
    }

    /// The file that has a page.
    pub(crate) fn file_of(page: u64) -> u64 {
        page / PAGES_PER_FILE
    }

    /// Files there are, on disk or to be written.
    fn files(&self) -> Result<BTreeSet<u64>> {
        let mut found: BTreeSet<u64> = self.pages.keys().map(|page| page / PAGES_PER_FILE).collect();
        if !self.is_emptied {
            found.extend(self.on_disk()?.into_iter().filter(|file| !self.removed.contains(file)));
        }
        Ok(found)
    }

    fn on_disk(&self) -> Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(reading(&self.folder, &e)),
        };
        let name = |name: &str| {
            let is_one = (4..=6).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_hexdigit());
            is_one.then(|| u64::from_str_radix(name, 16).ok()).flatten()
        };
        Ok(entries.flatten().filter_map(|entry| name(entry.file_name().to_str()?)).collect())
    }

    /// Writes the pages, removes what is to be removed, and makes both last.
    pub(crate) fn store(&self, cluster: &Cluster) -> Result<()> {
        let gone: BTreeSet<u64> =
            if self.is_emptied { self.on_disk()?.into_iter().collect() } else { self.removed.clone() };
        for file in gone {
            cluster.remove_file(&self.path(file))?;
        }
        let mut open: Option<(u64, PathBuf, File)> = None;
        for (page, bytes) in &self.pages {
            let number = page / PAGES_PER_FILE;
            if open.as_ref().is_none_or(|(of, _, _)| *of != number) {
                sync(open.take())?;
                let path = self.path(number);
                let file = cluster.open_or_create(&path)?;
                open = Some((number, path, file));
            }
            if let Some((_, path, file)) = &open {
                file.write_all_at(&bytes[..], page % PAGES_PER_FILE * PAGE as u64)
                    .map_err(|e| failed("write", path, &e))?;
            }
        }
        sync(open)?;
        // What the crashed server wrote and did not sync may be in files that the WAL changes no more.
        cluster.sync_files_of(&self.folder)
    }
}

fn sync(open: Option<(u64, PathBuf, File)>) -> Result<()> {
    open.map_or(Ok(()), |(_, path, file)| file.sync_all().map_err(|e| failed("sync", &path, &e)))
}
