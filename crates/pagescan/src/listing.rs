//! What is in a folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leadline_errors::Error;

use crate::error::cannot_read;

/// What is in a folder; nothing when there is none, since a running server drops databases and tablespaces.
pub(crate) fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |source| cannot_read(path, &source);
    let listing = match fs::read_dir(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        listing => listing.map_err(read)?,
    };
    let listed: io::Result<Vec<PathBuf>> = listing.map(|e| Ok(e?.path())).collect();
    let mut listed = listed.map_err(read)?;
    listed.sort();
    Ok(listed)
}
