//! What the kernel has queued for a TCP connection of this host, whoever owns it: sock_diag, which needs no right.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NETLINK_SOCK_DIAG: i32 = 4;
const HEADER: usize = 16;
/// Places in `struct inet_diag_msg`, behind the header of the message.
const RQUEUE: usize = HEADER + 4 + 48 + 4;
const WQUEUE: usize = RQUEUE + 4;

/// A way to ask.
pub struct Diag(OwnedFd);

/// Bytes in the queues of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Received, and not read by the program.
    pub receive: u32,
    /// Written by the program, and not acknowledged by the other end.
    pub send: u32,
}

impl Diag {
    /// Opens it.
    pub fn open() -> io::Result<Diag> {
        // SAFETY: the call takes numbers; what it gives is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, NETLINK_SOCK_DIAG) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Diag(fd))
    }

    /// The queues of the socket whose own address is `local`; None if there is none on this host.
    pub fn queues(&self, local: SocketAddr, remote: SocketAddr) -> Option<Queues> {
        let request = request(local, remote);
        let mut answer = [0_u8; 512];
        // SAFETY: pointers and lengths are those of arrays of ours. The kernel answers at once.
        let n = unsafe {
            let fd = self.0.as_raw_fd();
            if libc::send(fd, request.as_ptr().cast(), request.len(), 0) < 0 {
                return None;
            }
            libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0)
        };
        let answer = answer.get(..usize::try_from(n).ok()?)?;
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        (kind == SOCK_DIAG_BY_FAMILY).then_some(Queues { receive: number(RQUEUE)?, send: number(WQUEUE)? })
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`, for one socket.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut out = Vec::with_capacity(72);
    out.extend_from_slice(&72_u32.to_ne_bytes());
    out.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    out.extend_from_slice(&u32::MAX.to_ne_bytes()); // in every state
    out.extend_from_slice(&local.port().to_be_bytes());
    out.extend_from_slice(&remote.port().to_be_bytes());
    for ip in [local.ip(), remote.ip()] {
        match ip {
            IpAddr::V4(v4) => out.extend_from_slice(&[v4.octets().as_slice(), &[0; 12]].concat()),
            IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
        }
    }
    out.extend_from_slice(&0_u32.to_ne_bytes()); // any interface
    out.extend_from_slice(&[0xff; 8]); // any cookie
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_nobody_has_read_is_in_the_queue_of_the_receiver() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (there, _) = listener.accept().unwrap();
            here.write_all(&[0; 777]).unwrap();
            let diag = Diag::open().unwrap();
            let queues = diag.queues(there.local_addr().unwrap(), there.peer_addr().unwrap()).expect(host);
            assert_eq!(queues.receive, 777, "{host}");
            let nobody = "127.0.0.1:1".parse().unwrap();
            assert_eq!(diag.queues(nobody, nobody), None);
        }
    }
}
