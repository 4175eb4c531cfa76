//! Holds signals back from a thread for a while.

use std::mem::zeroed;
use std::ptr::null_mut;

/// Signals of this thread wait as long as this lives. They are not lost: they come when it is dropped, or go to another thread.
pub struct HeldBack {
    before: libc::sigset_t,
}

impl HeldBack {
    pub fn all() -> HeldBack {
        // SAFETY: both sets are filled before they are read.
        unsafe {
            let (mut all, mut before) = (zeroed(), zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            HeldBack { before }
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: the set is one that pthread_sigmask gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}
