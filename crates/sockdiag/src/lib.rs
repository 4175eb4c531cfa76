//! What the kernel knows of the TCP connections of this host, whoever owns them: sock_diag, which needs no right.
//!
//! Source: include/uapi/linux/inet_diag.h, sock_diag.h and tcp.h of the kernel.

#![warn(missing_docs)]

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const HEADER: usize = 16; // struct nlmsghdr
const REQUEST: usize = HEADER + 56; // and struct inet_diag_req_v2
const MESSAGE: usize = 72; // struct inet_diag_msg
/// Names of the states of a connection, from 1 on; those of a connection that a process may own.
const STATES: [&str; 11] = [
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
];
const OWNED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// Room for what the kernel gives at once.
const ROOM: usize = 64 << 10;
/// Where in `struct tcp_info` each number is and how many bytes it has, in the order of [`Socket::numbers`]. What an older kernel does not
/// have gives null.
pub const NUMBERS: [(usize, usize); 23] = [
    (68, 4),  // rtt
    (72, 4),  // rttvar
    (148, 4), // min_rtt
    (80, 4),  // snd_cwnd
    (228, 4), // snd_wnd
    (16, 4),  // snd_mss
    (24, 4),  // unacked
    (32, 4),  // lost
    (144, 4), // notsent_bytes
    (160, 8), // delivery_rate
    (168, 8), // busy_time
    (176, 8), // rwnd_limited
    (184, 8), // sndbuf_limited
    (100, 4), // total_retrans
    (200, 8), // bytes_sent
    (208, 8), // bytes_retrans
    (120, 8), // bytes_acked
    (128, 8), // bytes_received
    (136, 4), // segs_out
    (140, 4), // segs_in
    (44, 4),  // last_data_sent
    (52, 4),  // last_data_recv
    (56, 4),  // last_ack_recv
];

/// A way to ask.
#[derive(Debug)]
pub struct Diag {
    asks: OwnedFd,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel does not tell of sockets.
    pub fn open() -> io::Result<Diag> {
        // SAFETY: the call takes numbers; what it gives is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, NETLINK_SOCK_DIAG) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now and belongs to nobody else.
        let asks = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Diag { asks, buffer: vec![0; ROOM] })
    }

    /// The connections whose own port this is, over IPv4 and IPv6, with their numbers. Those that no process owns any more are left out.
    ///
    /// # Errors
    /// The kernel does not tell of TCP.
    pub fn of_port(&mut self, port: u16) -> io::Result<Vec<Socket>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.ask(family as u8, libc::NLM_F_DUMP, OWNED, port, &[0; 46])?;
            while read_answer(self.receive()?, &mut found)? {}
        }
        Ok(found)
    }

    /// The socket whose own address is `local`; None if there is none on this host.
    pub fn one(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<Socket> {
        let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut rest = remote.port().to_be_bytes().to_vec();
        for ip in [local.ip(), remote.ip()] {
            match ip {
                IpAddr::V4(v4) => rest.extend_from_slice(&[v4.octets().as_slice(), &[0; 12]].concat()),
                IpAddr::V6(v6) => rest.extend_from_slice(&v6.octets()),
            }
        }
        rest.extend_from_slice(&[0; 4]); // any interface
        rest.extend_from_slice(&[0xff; 8]); // any cookie
        self.ask(family as u8, 0, u32::MAX, local.port(), &rest).ok()?;
        let mut found = Vec::new();
        read_answer(self.receive().ok()?, &mut found).ok()?;
        found.pop()
    }

    /// `struct nlmsghdr` and `struct inet_diag_req_v2`. rest: what follows the own port.
    fn ask(&self, family: u8, flags: i32, states: u32, port: u16, rest: &[u8]) -> io::Result<()> {
        let mut request = Vec::with_capacity(REQUEST);
        request.extend_from_slice(&(REQUEST as u32).to_ne_bytes());
        request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request.extend_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        request.extend_from_slice(&[0; 8]);
        request.extend_from_slice(&[family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0]);
        request.extend_from_slice(&states.to_ne_bytes());
        request.extend_from_slice(&port.to_be_bytes());
        request.extend_from_slice(rest);
        // SAFETY: pointer and length are those of an array of ours.
        if unsafe { libc::send(self.asks.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<&[u8]> {
        // SAFETY: pointer and length are those of an array of ours. The kernel answers at once.
        let n = unsafe { libc::recv(self.asks.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0) };
        let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        Ok(self.buffer.get(..n).unwrap_or_default())
    }
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<i64> {
    let found = bytes.get(at..at + size)?;
    Some(match size {
        2 => i64::from(u16::from_ne_bytes(found.try_into().ok()?)),
        4 => i64::from(u32::from_ne_bytes(found.try_into().ok()?)),
        _ => i64::try_from(u64::from_ne_bytes(found.try_into().ok()?)).unwrap_or(i64::MAX),
    })
}

/// The sockets of a part of an answer; false when it was the last part.
fn read_answer(mut bytes: &[u8], found: &mut Vec<Socket>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (number(bytes, 0, 4), number(bytes, 4, 2)) {
        let length = length as usize;
        let Some(message) = bytes.get(HEADER..length) else { break };
        match kind as u16 {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => return Err(io::Error::from_raw_os_error(-(number(message, 0, 4).unwrap_or(0) as i32))),
            SOCK_DIAG_BY_FAMILY => found.extend(Socket::parse(message)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    state: u8,
    /// Own address.
    pub local: (IpAddr, u16),
    /// That of the other end.
    pub remote: (IpAddr, u16),
    /// Bytes received, and not read by the program.
    pub receive_queue: i64,
    /// Bytes written by the program, and not acknowledged by the other end.
    pub send_queue: i64,
    /// As /proc/PID/fd names it; 0 of one that no process owns.
    pub inode: i64,
    /// Its number, which is never given again.
    pub cookie: i64,
    /// Of `struct tcp_info`, as [`NUMBERS`] has them.
    pub numbers: [Option<i64>; NUMBERS.len()],
}

impl Socket {
    /// The name of its state.
    pub fn state(&self) -> &'static str {
        STATES.get(usize::from(self.state).wrapping_sub(1)).unwrap_or(&"?")
    }

    /// From `struct inet_diag_msg` and its attributes.
    fn parse(bytes: &[u8]) -> Option<Socket> {
        let port = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let v4 = *bytes.first()? == libc::AF_INET as u8;
        let address = |at: usize| {
            let all: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
            let [a, b, c, d, ..] = all;
            Some(if v4 { IpAddr::from([a, b, c, d]) } else { Ipv6Addr::from(all).to_canonical() })
        };
        let info = attribute(bytes.get(MESSAGE..)?, INET_DIAG_INFO).unwrap_or_default();
        Some(Socket {
            state: *bytes.get(1)?,
            local: (address(8)?, port(4)?),
            remote: (address(24)?, port(6)?),
            cookie: number(bytes, 44, 8)?,
            receive_queue: number(bytes, 56, 4)?,
            send_queue: number(bytes, 60, 4)?,
            inode: number(bytes, 68, 4)?,
            numbers: NUMBERS.map(|(at, size)| number(info, at, size)),
        })
    }
}

/// The content of the first netlink attribute of a kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (number(bytes, 0, 2)? as usize, number(bytes, 2, 2)?);
        let content = bytes.get(4..length)?;
        if kind == i64::from(wanted) {
            return Some(content);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_testdata::{noise, Random};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_has_its_queues_and_its_counters() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let address = listener.local_addr().unwrap();
            let mut here = TcpStream::connect(address).unwrap();
            let (mut there, _) = listener.accept().unwrap();
            there.write_all(&[0; 100]).unwrap();
            here.read_exact(&mut [0; 100]).unwrap();
            here.write_all(&[0; 777]).unwrap(); // which the server has not read
            let mut diag = Diag::open().unwrap();
            let found = diag.of_port(address.port()).unwrap();
            let [socket] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!((socket.state(), socket.receive_queue, socket.send_queue), ("ESTABLISHED", 777, 0));
            assert_eq!(socket.remote, (address.ip(), here.local_addr().unwrap().port()));
            let [rtt, ..] = socket.numbers;
            assert!(rtt > Some(0), "{socket:?}");
            assert_eq!(socket.numbers[14..18], [Some(100), Some(0), Some(100), Some(777)]);
            let one = diag.one(there.local_addr().unwrap(), there.peer_addr().unwrap()).expect(host);
            assert_eq!((one.cookie, one.inode, one.receive_queue), (socket.cookie, socket.inode, 777));
            let nobody = "127.0.0.1:1".parse().unwrap();
            assert_eq!(diag.one(nobody, nobody), None);
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_is_no_socket_and_no_panic() {
        let mut whole = vec![0_u8; HEADER + MESSAGE + 4 + 232];
        let length = whole.len() as u32;
        whole[..4].copy_from_slice(&length.to_ne_bytes());
        whole[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        whole[HEADER] = libc::AF_INET as u8;
        whole[HEADER + MESSAGE..HEADER + MESSAGE + 2].copy_from_slice(&236_u16.to_ne_bytes());
        whole[HEADER + MESSAGE + 2..HEADER + MESSAGE + 4].copy_from_slice(&INET_DIAG_INFO.to_ne_bytes());
        for n in 0..=whole.len() {
            let mut found = Vec::new();
            assert!(read_answer(&whole[..n], &mut found).unwrap());
            assert_eq!(found.len(), usize::from(n == whole.len()));
        }
        let mut random = Random(12);
        for length in 0..2000 {
            let bytes = noise(&mut random, length % 400);
            let _ = read_answer(&bytes, &mut Vec::new());
            let _ = Socket::parse(&bytes);
        }
    }
}
