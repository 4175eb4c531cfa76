//! Files of a relation that are missing or not full although another follows: to the server the relation ends there, and it says
//! nothing of what is behind.
//!
//! Source: src/backend/storage/smgr/md.c. Relations are cut off from their last file on, and all files of a dropped one are emptied
//! from the first on; so a first file without bytes is no gap.

use std::fs;
use std::path::PathBuf;

use leadline_page::Wrong;

use crate::files::RelationFile;

/// The file before this one and what is wrong with it. Asked of files in data directories only: others may be copied one by one.
pub(crate) fn gap_before(file: &RelationFile) -> Option<(PathBuf, Wrong)> {
    file.layout.checksums?;
    let before = file.segment.checked_sub(1)?;
    let len = |path: &PathBuf| fs::metadata(path).ok().map(|about| about.len());
    let of = |segment: u32| match segment {
        0 => file.path.with_extension(""),
        n => file.path.with_extension(n.to_string()),
    };
    let (first, path) = (of(0), of(before));
    let full = u64::from(file.layout.segment_blocks) * u64::from(file.layout.block_size);
    // In this order: what is cut off meanwhile loses its last file first.
    let found = match len(&path) {
        Some(bytes) if bytes == full => return None,
        Some(bytes) => format!("{bytes} bytes"),
        None => "no file".into(),
    };
    if len(&first) == Some(0) || len(&file.path).unwrap_or(0) == 0 {
        return None;
    }
    let wanted = format!("{full} bytes, as segment {} follows", file.segment);
    Some((path, Wrong { class: "segment", what: "file", item: None, offset: 0, wanted, found }))
}
