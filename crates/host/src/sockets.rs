//! TCP connections of one server as the kernel sees them: rows of `tcp_sample`, by sock_diag, which needs no right.
//!
//! Source: include/uapi/linux/inet_diag.h, sock_diag.h and tcp.h of the kernel.

use leadline_clockwork::{OpenTables, OwnedRow, Work};
use leadline_errors::{Error, Kind};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const HEADER: usize = 16; // struct nlmsghdr
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
const WANTED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// Room for what the kernel gives at once.
const ROOM: usize = 64 << 10;
/// Where in `struct tcp_info` each number is and how many bytes it has, in the order of the columns. What an older kernel does not
/// have gives null.
const NUMBERS: [(usize, usize); 22] = [
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
];

/// Connections to one port of a server and its children.
#[derive(Debug)]
pub struct SocketsProbe {
    asks: OwnedFd,
    port: u16,
    owners: Owners,
    buffer: Vec<u8>,
}

impl SocketsProbe {
    /// `pid`: the server, whose children serve its connections. An error where the kernel does not tell of sockets.
    pub fn open(pid: u32, port: u16) -> Result<Self, Error> {
        // SAFETY: the call takes numbers; what it gives is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, NETLINK_SOCK_DIAG) };
        if fd < 0 {
            return Err(refused(&io::Error::last_os_error()));
        }
        // SAFETY: it was opened just now and belongs to nobody else.
        let asks = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut probe = SocketsProbe { asks, port, owners: Owners::new(pid), buffer: vec![0; ROOM] };
        probe.sockets().map_err(|e| refused(&e))?;
        Ok(probe)
    }

    /// Whether it may be seen which process has which connection: of processes of other users, only with the right to trace them.
    pub fn sees_owners(&self) -> bool {
        std::fs::read_dir(format!("/proc/{}/fd", self.owners.server)).is_ok()
    }

    /// The connections there are.
    fn sockets(&mut self) -> io::Result<Vec<Socket>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = request(family as u8, self.port);
            let fd = self.asks.as_raw_fd();
            // SAFETY: pointer and length are those of an array of ours.
            if unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
            loop {
                // SAFETY: as above; the kernel answers at once.
                let n = unsafe { libc::recv(fd, self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0) };
                let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
                if !read_answer(self.buffer.get(..n).unwrap_or_default(), &mut found)? {
                    break;
                }
            }
        }
        Ok(found)
    }
}

impl Work for SocketsProbe {
    fn beat(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        let sockets = self.sockets().map_err(|e| refused(&e))?;
        self.owners.find(&sockets);
        let rows: Vec<OwnedRow> = sockets.iter().map(|s| s.row(ts, self.owners.pid_of(s.inode))).collect();
        tables.write_rows("tcp_sample", rows.iter().map(OwnedRow::row))?;
        Ok(())
    }
}

fn refused(e: &io::Error) -> Error {
    Error::new(Kind::Unsupported, "the kernel does not tell of TCP connections (sock_diag)")
        .detail(e.to_string())
        .hint("load the modules inet_diag and tcp_diag, or leave out the probe sockets")
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`: every connection of this own port, with its `struct tcp_info`.
fn request(family: u8, port: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + 56);
    out.extend_from_slice(&((HEADER + 56) as u32).to_ne_bytes());
    out.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0]);
    out.extend_from_slice(&WANTED.to_ne_bytes());
    out.extend_from_slice(&port.to_be_bytes());
    out.extend_from_slice(&[0; 46]); // any other end, any interface, any cookie
    out
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

#[derive(Debug, Clone, PartialEq, Eq)]
struct Socket {
    state: u8,
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    receive_queue: i64,
    send_queue: i64,
    inode: i64,
    cookie: i64,
    numbers: [Option<i64>; NUMBERS.len()],
}

impl Socket {
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

    fn row(&self, ts: i64, pid: Option<i64>) -> OwnedRow {
        let mut row = OwnedRow::default();
        row.int(ts).int(self.cookie).maybe(pid);
        row.text(self.local.0.to_string()).int(self.local.1).text(self.remote.0.to_string()).int(self.remote.1);
        row.text(*STATES.get(usize::from(self.state).wrapping_sub(1)).unwrap_or(&"?"));
        row.int(self.receive_queue).int(self.send_queue);
        for number in self.numbers {
            row.maybe(number);
        }
        row
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

/// Which process has which socket open: the server or a child of it.
#[derive(Debug)]
struct Owners {
    server: u32,
    pids: HashMap<i64, i64>,
    /// Children that had no connection when they were looked at, such as a checkpointer: they will not get one.
    without: HashSet<u32>,
}

impl Owners {
    fn new(server: u32) -> Self {
        Owners { server, pids: HashMap::new(), without: HashSet::new() }
    }

    /// None: of a process that may not be looked into, or of none.
    fn pid_of(&self, inode: i64) -> Option<i64> {
        self.pids.get(&inode).copied()
    }

    /// Looks for the owners of sockets that were not there before.
    fn find(&mut self, sockets: &[Socket]) {
        let there: HashSet<i64> = sockets.iter().map(|s| s.inode).collect();
        self.pids.retain(|inode, _| there.contains(inode));
        let mut wanted: HashSet<i64> = there.into_iter().filter(|inode| !self.pids.contains_key(inode)).collect();
        if wanted.is_empty() {
            return;
        }
        let children = children_of(self.server);
        self.without.retain(|pid| children.contains(pid));
        // The youngest first: a new connection is served by a new process.
        for pid in children.into_iter().rev().chain([self.server]) {
            if wanted.is_empty() {
                break;
            }
            if self.without.contains(&pid) {
                continue;
            }
            let open = sockets_of(pid);
            if open.is_empty() && pid != self.server {
                self.without.insert(pid);
            }
            for inode in open {
                if wanted.remove(&inode) {
                    self.pids.insert(inode, own_pid(pid));
                }
            }
        }
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The inodes of the sockets that a process has open.
fn sockets_of(pid: u32) -> Vec<i64> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// The pid by which a process in a container calls itself.
fn own_pid(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok());
    inner.unwrap_or(i64::from(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_noise::{noise, Random};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_has_its_owner_its_queues_and_its_counters() {
        for host in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((host, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let mut here = TcpStream::connect(address).unwrap();
            let (mut there, _) = listener.accept().unwrap();
            there.write_all(&[0; 100]).unwrap();
            here.read_exact(&mut [0; 100]).unwrap();
            here.write_all(&[0; 777]).unwrap(); // which the server has not read
            let mut probe = SocketsProbe::open(std::process::id(), address.port()).unwrap();
            let found = probe.sockets().unwrap();
            let [socket] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!((socket.state, socket.receive_queue, socket.send_queue), (1, 777, 0));
            assert_eq!(socket.remote, (address.ip(), here.local_addr().unwrap().port()));
            let [rtt, ..] = socket.numbers;
            assert!(rtt > Some(0), "{socket:?}");
            assert_eq!(socket.numbers[14..18], [Some(100), Some(0), Some(100), Some(777)]);
            probe.owners.find(&found);
            assert_eq!(probe.owners.pid_of(socket.inode), Some(i64::from(std::process::id())));
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
