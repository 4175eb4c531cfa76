//! Holes of sparse files: pages that were never written take no time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Whether parts of it may be holes: it takes less room than it has bytes.
pub(crate) fn is_sparse(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.blocks() * 512 < about.len())
}

/// Where the hole around this offset ends, `end` when nothing follows it; None when there is none, or nobody knows.
pub(crate) fn hole_at(file: &File, offset: u64, end: u64) -> Option<u64> {
    let from = libc::off_t::try_from(offset).ok()?;
    // SAFETY: of an open file only its offset is changed, which nobody reads from.
    let data = unsafe { libc::lseek(file.as_raw_fd(), from, libc::SEEK_DATA) };
    if data < 0 {
        let nothing_follows = io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO);
        return nothing_follows.then_some(end);
    }
    u64::try_from(data).ok().map(|data| data.min(end)).filter(|data| *data > offset)
}
