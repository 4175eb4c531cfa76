//! Locks on files that are written, which end with the process that has them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks a file until it is closed; false when another process has it. Where a file system has no locks, nobody has one.
pub fn try_lock(file: &File) -> bool {
    // SAFETY: of an open file only its lock is changed.
    let done = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    done == 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}
