//! Pages written to their files, many at once where they follow each other.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use leadline_errors::Result;
use leadline_page::postgres::checksum;

use crate::files::cluster::{failed, Cluster};
use crate::files::open_files::{Open, OpenFiles};
use crate::partition::record_refs::ForkId;

/// Pages written at once.
const RUN: usize = 64;
/// Bytes that a thread writes to a file before the disk is given them.
const SYNC_AFTER: usize = 16 << 20;

/// What one thread writes.
pub(crate) struct Writer<'a> {
    cluster: &'a Cluster,
    files: OpenFiles<'a>,
    /// Gets files that are to be given to the disk meanwhile.
    sync: Sender<(File, PathBuf)>,
    /// Of the pages in a row that wait to be written: the fork and the first block.
    first: Option<(ForkId, u32)>,
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(cluster: &'a Cluster, sync: Sender<(File, PathBuf)>) -> Writer<'a> {
        Writer { cluster, files: OpenFiles::new(cluster), sync, first: None, bytes: Vec::new() }
    }

    /// Adds a page to those that wait to be written.
    pub(crate) fn put(&mut self, of: ForkId, block: u32, page: &[u8]) -> Result<()> {
        let pages = self.bytes.len() / self.cluster.block_size;
        let follows = pages < RUN
            && !block.is_multiple_of(self.cluster.segment_blocks)
            && self.first.is_some_and(|(fork, first)| fork == of && first + pages as u32 == block);
        if !follows {
            self.flush()?;
            self.first = Some((of, block));
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(page);
        set_checksum(self.cluster, &mut self.bytes[at..], block);
        Ok(())
    }

    /// Writes those that wait.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let Some((of, block)) = self.first.take() else { return Ok(()) };
        let (path, at) = self.files.place(of, block);
        let mut full = None;
        if let Some(Open { file, length, unsynced }) = self.files.of_block(of, block, true)? {
            file.write_all_at(&self.bytes, at).map_err(|e| failed("write", &path, &e))?;
            *unsynced += if at < *length { self.bytes.len() } else { 0 };
            if *unsynced >= SYNC_AFTER {
                *unsynced = 0;
                full = file.try_clone().ok();
            }
        }
        if let Some(file) = full {
            let _ = self.sync.send((file, path));
        }
        self.bytes.clear();
        Ok(())
    }
}

/// A page that is all zeros has none.
pub(crate) fn set_checksum(cluster: &Cluster, page: &mut [u8], block: u32) {
    // `PageIsNew`: pd_upper is 0.
    if cluster.checksums && page[14..16] != [0, 0] {
        let sum = checksum(page, block);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
    }
}
