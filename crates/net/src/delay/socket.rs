//! Sockets that do not block, and the moment at which the kernel received what is read from them.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::address::set_option;
use crate::clock::now_ns;

/// No kernel stamps a packet earlier than this before it is read, unless its clock was set meanwhile.
const OLDEST_NS: i64 = 1_000_000_000;

/// Asks for the kernel's own time of arrival; false where it gives none.
pub(super) fn stamp_arrivals(fd: &impl AsRawFd) -> bool {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).is_ok()
}

/// What a read gave.
pub(super) enum Read {
    /// So many bytes, and when they arrived on CLOCK_MONOTONIC.
    Bytes(usize, i64),
    /// The stream ended.
    End,
    /// Nothing now.
    Later,
    /// The connection broke.
    Broken,
}

/// Reads once. The time is the kernel's, else now: a thread that woke up late delays nothing then.
pub(super) fn read(fd: &OwnedFd, into: &mut [u8]) -> Read {
    let mut control = [0_u64; 16];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all bytes zero is a valid value of this C structure.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = mem::size_of_val(&control);
    // SAFETY: the message points to a buffer and a control buffer of ours, with their lengths.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    let now = now_ns();
    match n {
        0 => Read::End,
        n if n > 0 => Read::Bytes(n as usize, stamp(&message, now).unwrap_or(now)),
        _ => match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Read::Later,
            _ => Read::Broken,
        },
    }
}

/// The kernel's time of arrival, which is on the wall clock.
fn stamp(message: &libc::msghdr, now: i64) -> Option<i64> {
    // SAFETY: the kernel has filled the control buffer of this message, and its length says how far.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, and inside of the control buffer, as the macros of the system promise.
        let found = unsafe { &*header };
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: a control message of this type holds a timespec.
            let time: libc::timespec = unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
            let age = wall_ns() - (time.tv_sec * 1_000_000_000 + time.tv_nsec);
            return (0..OLDEST_NS).contains(&age).then_some(now - age);
        }
        // SAFETY: likewise.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn wall_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Writes once: how many bytes were taken, None when the connection broke.
pub(super) fn write(fd: &OwnedFd, bytes: &[u8]) -> Option<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer and the length are those of a slice.
    let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if n >= 0 {
        return Some(n as usize);
    }
    match io::Error::last_os_error().kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Some(0),
        _ => None,
    }
}

/// Ends our direction of a connection.
pub(super) fn end(fd: &OwnedFd) {
    // SAFETY: the call takes numbers.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// The connection is to be reset when it is closed, not ended in order.
pub(super) fn reset_on_close(fd: &OwnedFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the pointer is to a structure of ours, the length its own.
    unsafe {
        let size = mem::size_of_val(&linger) as u32;
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size);
    }
}

/// How long it takes from the begin of a small write to the arrival at the other end, on this host; 0 where the kernel gives no time of
/// arrival. A part that is written so much earlier arrives in time.
pub(super) fn cost_of_a_write() -> i64 {
    const TRIES: usize = 301;
    let pair = || -> io::Result<(OwnedFd, OwnedFd)> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let here = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (there, _) = listener.accept()?;
        here.set_nodelay(true)?;
        Ok((here.into(), there.into()))
    };
    let Ok((here, there)) = pair() else { return 0 };
    if !stamp_arrivals(&there) {
        return 0;
    }
    let mut costs = Vec::with_capacity(TRIES);
    let mut buffer = [0; 64];
    for _ in 0..TRIES {
        let began = now_ns();
        if write(&here, &[0; 32]) != Some(32) {
            return 0;
        }
        if let Read::Bytes(_, at) = read(&there, &mut buffer) {
            costs.push(at - began);
        }
    }
    costs.sort_unstable();
    costs.get(costs.len() / 2).copied().unwrap_or(0).clamp(0, 50_000)
}
