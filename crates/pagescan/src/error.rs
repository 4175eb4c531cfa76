//! Why files could not be read as pages.

use std::io;
use std::path::Path;

use leadline_datadir::{is_in_tar, DEFAULT_BLOCK_SIZE};
use leadline_errors::{Error, Kind};

/// The file system said no.
pub(crate) fn cannot_read(path: &Path, source: &io::Error) -> Error {
    Error::reading(path, "the file", source)
}

/// There are no pages here: not a relation file, not a data directory, no such block.
pub(crate) fn no_pages(path: &Path, detail: impl Into<String>) -> Error {
    is_in_tar(path).unwrap_or_else(|| {
        Error::new(Kind::Invalid, "cannot read pages here")
            .detail(detail)
            .hint(format!(
                "give the file of a relation, its folder (base/16384), or a data directory; with --block-size {DEFAULT_BLOCK_SIZE} any \
                 file is read as pages"
            ))
            .at(path)
    })
}
