//! Waiting for sockets, for the time, or for both.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A wait without a moment ends at least so often, so that a signal to stop is seen.
pub(crate) const LOOK: i64 = 100_000_000;
/// The number under which the ticks come.
const TICK: u64 = u64::MAX;

/// The sockets of one thread.
pub(crate) struct Poll {
    poll: OwnedFd,
    /// Ends a wait that has no moment. One timer for all waits: setting one for each takes CPU time, too.
    ticks: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Poll> {
        let owned = |fd: RawFd| match fd {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: it was made just now, and nobody else has it.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        };
        // SAFETY: the call takes flags and touches no memory of ours.
        let poll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        let ticks =
            owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) })?;
        let every = libc::timespec { tv_sec: 0, tv_nsec: LOOK };
        let times = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the pointer is to a structure of ours, and null is allowed for the other.
        if unsafe { libc::timerfd_settime(ticks.as_raw_fd(), 0, &times, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let poll = Poll { poll, ticks };
        poll.control(libc::EPOLL_CTL_ADD, poll.ticks.as_raw_fd(), libc::EPOLLIN, TICK)?;
        Ok(poll)
    }

    /// Adds, changes or removes a socket. Told once of what comes: a client that waits has read all there was.
    pub(crate) fn watch(&self, what: i32, fd: RawFd, number: usize, wants_to_write: bool) -> io::Result<()> {
        let write = if wants_to_write { libc::EPOLLOUT } else { 0 };
        self.control(what, fd, libc::EPOLLIN | write, number as u64)
    }

    fn control(&self, what: i32, fd: RawFd, events: i32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (events | libc::EPOLLET) as u32, u64: number };
        // SAFETY: both descriptors are ours, and the event is on the stack.
        match unsafe { libc::epoll_ctl(self.poll.as_raw_fd(), what, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What is ready: at once, or after at most so many ns; None: whenever it comes, or after LOOK.
    pub(crate) fn wait(&self, events: &mut [libc::epoll_event], ns: Option<i64>) -> io::Result<usize> {
        let timeout = ns.map(|ns| libc::timespec { tv_sec: 0, tv_nsec: ns.clamp(0, LOOK) });
        let pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the pointers are to a buffer of this length and to a timespec of ours, or null; no signal mask is given.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.poll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                pointer,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if ready >= 0 {
            return Ok(ready as usize);
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            e if e.raw_os_error() == Some(libc::ENOSYS) => self.wait_in_milliseconds(events, ns),
            e => Err(e),
        }
    }

    /// The client that an event is of; None of a tick, after which the timer goes on.
    pub(crate) fn client_of(&self, event: &libc::epoll_event) -> Option<usize> {
        let number = event.u64;
        if number != TICK {
            return Some(number as usize);
        }
        let mut count = 0_u64;
        // SAFETY: the pointer is to eight bytes of ours, which is what a timer writes. What it says does not matter.
        unsafe { libc::read(self.ticks.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        None
    }

    /// Before Linux 5.11: no more exact than to a millisecond, which the schedule error shows.
    fn wait_in_milliseconds(&self, events: &mut [libc::epoll_event], ns: Option<i64>) -> io::Result<usize> {
        let (fd, most) = (self.poll.as_raw_fd(), events.len() as i32);
        let timeout = ns.map_or(-1, |ns| (ns.clamp(0, LOOK) / 1_000_000) as i32);
        // SAFETY: as above.
        let ready = unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), most, timeout) };
        usize::try_from(ready).or_else(|_| match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            e => Err(e),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_without_a_moment_ends_with_a_tick_or_a_message() {
        let poll = Poll::new().unwrap();
        let (mut there, here) = UnixStream::pair().unwrap();
        poll.watch(libc::EPOLL_CTL_ADD, here.as_raw_fd(), 7, false).unwrap();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        assert_eq!(poll.wait(&mut events, Some(0)).unwrap(), 0);
        for _ in 0..3 {
            assert_eq!((poll.wait(&mut events, None).unwrap(), poll.client_of(&events[0])), (1, None));
        }
        there.write_all(b"x").unwrap();
        let ready = poll.wait(&mut events, None).unwrap();
        assert!(events[..ready].iter().any(|event| poll.client_of(event) == Some(7)));
    }
}
