//! Files of a relation that are longer than a file can be, or missing or not full although another follows: to the server the relation ends there, and it says
//! nothing of what is behind.
//!
//! Source: src/backend/storage/smgr/md.c.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use leadline_datadir::{root_above, segment_path};
use leadline_page::Wrong;

use crate::files::RelationFile;
use crate::incremental::{incremental_path, plain_path, Stored};
use crate::layout::Layout;

/// The file before this one and what is wrong with it.
///
/// Asked in data directories only, since other files may be copied one by one, and not where a server may be running: it removes and
/// copies the files of a database in any order.
pub(crate) fn gap_before(file: &RelationFile) -> Option<(PathBuf, Wrong)> {
    let before = file.segment.checked_sub(1)?;
    let root = root_above(&file.path)?;
    let plain = plain_path(&file.path).unwrap_or_else(|| file.path.clone());
    if root.join("postmaster.pid").exists() {
        return None;
    }
    let len = |path: &PathBuf| fs::metadata(path).ok().map(|about| about.len());
    let of = |segment| segment_path(&plain.with_extension(""), segment);
    let (first, path) = (of(0), of(before));
    let full = u64::from(file.layout.segment_blocks) * u64::from(file.layout.block_size);
    let found = match len(&path).or_else(|| combined_bytes(&path, file.layout)) {
        Some(bytes) if bytes == full => return None,
        Some(bytes) => format!("{bytes} bytes"),
        None => "no file".into(),
    };
    // All files of a dropped relation are emptied from the first on, and the first stays until a checkpoint.
    if len(&first) == Some(0) {
        return None;
    }
    let wanted = format!("{full} bytes, because segment {} follows", file.segment);
    Some((path, Wrong { class: "segment", what: "file", item: None, offset: 0, wanted, found }))
}

/// How long a file will be of which there is only what an incremental backup has of it. What is wrong with that is told elsewhere.
fn combined_bytes(path: &Path, layout: Layout) -> Option<u64> {
    let path = incremental_path(path)?;
    let stored = Stored::read(&path, &File::open(&path).ok()?, layout).ok()?;
    let blocks = stored.map_or(layout.segment_blocks, |stored| stored.combined_blocks());
    Some(u64::from(blocks) * u64::from(layout.block_size))
}

/// What is wrong with a file of a data directory that has more than a segment: the server does not read it.
pub(crate) fn too_long(file: &RelationFile) -> Option<Wrong> {
    let most = u64::from(file.layout.segment_blocks) * u64::from(file.layout.block_size);
    let is_one = file.layout.checksums.is_some() && file.relation.rel != 0 && !file.incremental && file.bytes > most;
    let (wanted, found) = (format!("at most {most} bytes"), format!("{} bytes", file.bytes));
    is_one.then_some(Wrong { class: "segment", what: "file", item: None, offset: 0, wanted, found })
}
