//! Where to connect to: a host name looked up, or a unix socket, and connections that are there in time or not at all.

use std::fmt;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};

/// As a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

impl Place {
    /// Of HOST and PORT; a host that begins with a slash is the path of a unix socket, and the port is not used.
    pub fn new(host: &str, port: u16) -> Place {
        match host.starts_with('/') {
            true => Place::Unix(host.into()),
            false => Place::Tcp(host.to_owned(), port),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp(host, port) => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// As the system names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6.
    Tcp(SocketAddr),
    /// The path of a socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The addresses of a place, at least one, and how long the look-up took.
///
/// The system's own look-up knows no deadline: a thread does it, and is left behind when it is too late.
pub fn resolve(place: &Place, timeout: Duration) -> Outcome<(Vec<Address>, i64)> {
    let (host, port) = match place {
        Place::Unix(path) => return Ok((vec![Address::Unix(path.clone())], 0)),
        Place::Tcp(host, port) => (host.clone(), *port),
    };
    let began = now_ns();
    if let Ok(ip) = host.parse() {
        return Ok((vec![Address::Tcp(SocketAddr::new(ip, port))], now_ns() - began));
        // nothing to look up
    }
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = tell.send(found); // nobody listens any more when it is too late
    });
    let found = told
        .recv_timeout(timeout)
        .map_err(|_| Fault::new("resolve", "timeout", "the look-up of the name took too long"))?;
    let took = now_ns() - began;
    let found = found.map_err(|e| Fault::new("resolve", "dns", e.to_string()))?;
    if found.is_empty() {
        return Err(Fault::new("resolve", "dns", "the name has no address"));
    }
    Ok((found.into_iter().map(Address::Tcp).collect(), took))
}

/// A connection that is there: its socket, blocking.
#[derive(Debug)]
pub enum Socket {
    /// TCP with TCP_NODELAY.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
}

impl Socket {
    /// Its file descriptor.
    pub fn fd(&self) -> i32 {
        match self {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// Connects to the first address that answers, and how long the successful attempt took: of TCP from SYN to SYN/ACK and back in this thread.
pub fn connect(
    addresses: &[Address],
    timeout: Duration,
    receive_buffer: Option<u32>,
) -> Outcome<(Socket, Address, i64)> {
    let until = Instant::now() + timeout;
    let mut first = None;
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now());
        match connect_one(address, left, receive_buffer) {
            Ok((socket, took)) => return Ok((socket, address.clone(), took)),
            Err(e) => first = first.or(Some(e)),
        }
    }
    let e = first.unwrap_or_else(|| io::ErrorKind::NotFound.into());
    Err(Fault::io("connect", &e))
}

fn connect_one(address: &Address, timeout: Duration, receive_buffer: Option<u32>) -> io::Result<(Socket, i64)> {
    let Address::Tcp(address) = address else {
        let Address::Unix(path) = address else { unreachable!("an address is one of two") };
        let began = now_ns();
        let stream = UnixStream::connect(path)?;
        return Ok((Socket::Unix(stream), now_ns() - began));
    };
    let fd = tcp_socket(address)?;
    if let Some(bytes) = receive_buffer {
        set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes as i32)?; // before the connection: it sets the window
    }
    let began = now_ns();
    match start_connect(&fd, address) {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => finish_connect(&fd, timeout)?,
        other => other?,
    }
    let took = now_ns() - began;
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok((Socket::Tcp(stream), took))
}

/// A socket for this address that does not block.
pub(crate) fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: the call takes numbers; what it gives is checked before it is owned.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Begins to connect: EINPROGRESS is the usual outcome.
pub(crate) fn start_connect(fd: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    let outcome = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all bytes zero is a valid value of this C structure.
            let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
            raw.sin_family = libc::AF_INET as u16;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            // SAFETY: the pointer and the length are those of a structure on the stack.
            unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), mem::size_of_val(&raw) as u32) }
        }
        SocketAddr::V6(v6) => {
            // SAFETY: likewise.
            let mut raw: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as u16;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            // SAFETY: likewise.
            unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), mem::size_of_val(&raw) as u32) }
        }
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn finish_connect(fd: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd, a timespec and no signal mask.
        match unsafe { libc::ppoll(&mut poll, 1, &wait, std::ptr::null()) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            n if n > 0 => break,
            _ => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
    connect_outcome(fd)
}

/// How an attempt to connect ended.
pub(crate) fn connect_outcome(fd: &OwnedFd) -> io::Result<()> {
    let mut code: libc::c_int = 0;
    let mut length = mem::size_of_val(&code) as u32;
    // SAFETY: the pointers are to an int of ours and its length.
    let outcome = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut code).cast(), &mut length)
    };
    match (outcome, code) {
        (0, 0) => Ok(()),
        (0, code) => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option that is an int.
pub(crate) fn set_option(fd: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer is to an int of ours, the length its own.
    let outcome = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), mem::size_of_val(&value) as u32)
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn it_connects_by_ipv4_ipv6_and_name() {
        for host in ["127.0.0.1", "::1", "localhost"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let place = Place::new(host, listener.local_addr().unwrap().port());
            let (addresses, _) = resolve(&place, SOON).unwrap();
            let (_, _, took) = connect(&addresses, SOON, None).unwrap();
            assert!(took > 0, "{place}");
        }
        assert_eq!(Place::new("::1", 7).to_string(), "[::1]:7");
    }

    #[test]
    fn nobody_there_is_refused_and_a_name_that_is_none_is_dns() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (addresses, _) = resolve(&Place::new("127.0.0.1", port), SOON).unwrap();
        assert_eq!(connect(&addresses, SOON, None).unwrap_err().cause, "ECONNREFUSED");
        assert_eq!(resolve(&Place::new("no-such-host.invalid", 1), SOON).unwrap_err().cause, "dns");
    }

    #[test]
    fn a_listener_that_takes_no_more_is_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: listening again only changes the length of the queue.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let addresses = [Address::Tcp(listener.local_addr().unwrap())];
        let mut kept = Vec::new();
        let refused = (0..8).find_map(|_| match connect(&addresses, Duration::from_millis(200), None) {
            Ok(connection) => {
                kept.push(connection);
                None
            }
            Err(fault) => Some(fault),
        });
        assert_eq!(refused.expect("the queue is full after a few").cause, "timeout");
    }
}
