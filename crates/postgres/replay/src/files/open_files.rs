//! The files that a thread has open.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;

use leadline_errors::Result;

use crate::files::cluster::{reading, Cluster};
use crate::partition::record_refs::ForkId;

/// Files a thread keeps open.
const MOST: usize = 200;

/// A file, how long it was, and the bytes that were written there since the disk was given some to do.
///
/// What is behind its end does not count: the disk is given that at last and in one piece, so that the file system finds room in one piece.
pub(crate) struct Open {
    pub file: File,
    pub length: u64,
    pub unsynced: usize,
}

/// Files by fork and segment; none where there is no file.
pub(crate) struct OpenFiles<'a> {
    cluster: &'a Cluster,
    open: HashMap<(ForkId, u32), Option<Open>>,
}

impl<'a> OpenFiles<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> OpenFiles<'a> {
        OpenFiles { cluster, open: HashMap::new() }
    }

    /// The file that has a block, and where in it.
    pub(crate) fn place(&self, of: ForkId, block: u32) -> (PathBuf, u64) {
        let within = u64::from(block % self.cluster.segment_blocks);
        let path = self.cluster.file(of.0, of.1, block / self.cluster.segment_blocks);
        (path, within * self.cluster.block_size as u64)
    }

    /// The open file that has a block; none when there is none and it is not to be made.
    pub(crate) fn of_block(&mut self, of: ForkId, block: u32, make: bool) -> Result<Option<&mut Open>> {
        let key = (of, block / self.cluster.segment_blocks);
        if self.open.len() >= MOST && !self.open.contains_key(&key) {
            self.open.clear();
        }
        if make && self.open.get(&key).is_some_and(Option::is_none) {
            self.open.remove(&key);
        }
        let path = self.cluster.file(of.0, of.1, key.1);
        let open = match self.open.entry(key) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let opened = if make {
                    Some(self.cluster.open_or_create(&path)?)
                } else {
                    match OpenOptions::new().read(true).write(true).open(&path) {
                        Ok(file) => Some(file),
                        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                        Err(e) => return Err(reading(&path, &e)),
                    }
                };
                let length = opened.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |about| about.len());
                place.insert(opened.map(|file| Open { file, length, unsynced: 0 }))
            }
        };
        Ok(open.as_mut())
    }
}
