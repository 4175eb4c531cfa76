//! ICMP echo, which `ping` sends: by a datagram socket where the host lets everyone, else by a raw one with CAP_NET_RAW.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};

const GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";
/// Bytes behind the header of 8, as many as ping sends.
const PAYLOAD: usize = 56;

/// A socket for echoes to one address.
pub struct Pinger {
    fd: OwnedFd,
    to: IpAddr,
    raw: bool,
    id: u16,
    sequence: u16,
}

impl Pinger {
    /// Opens it. The fault says which right is missing.
    pub fn open(to: IpAddr) -> Outcome<Pinger> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_ICMP),
            IpAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        };
        for (kind, raw) in [(libc::SOCK_DGRAM, false), (libc::SOCK_RAW, true)] {
            // SAFETY: the call takes numbers; what it gives is checked before it is owned.
            let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
            if fd >= 0 {
                // SAFETY: it was opened just now and belongs to nobody else.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                return Ok(Pinger { fd, to, raw, id: std::process::id() as u16, sequence: 0 });
            }
        }
        let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
        let groups = groups.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = format!("needs CAP_NET_RAW, or a group within net.ipv4.ping_group_range, which is \"{groups}\"");
        Err(Fault::new("icmp", "EPERM", text))
    }

    /// One echo: its time.
    pub fn ping(&mut self, timeout: Duration) -> Outcome<i64> {
        self.sequence = self.sequence.wrapping_add(1);
        let packet = self.packet();
        let address = SocketAddr::new(self.to, 0);
        let began = now_ns();
        self.send(&packet, &address).map_err(|e| Fault::io("icmp", &e))?;
        let until = began + timeout.as_nanos() as i64;
        let mut buffer = [0; 2048];
        loop {
            let left = until - now_ns();
            if left <= 0 {
                return Err(Fault::new("icmp", "timeout", "no answer: ICMP may be dropped on the way"));
            }
            if let Some(n) = self.receive(&mut buffer, left).map_err(|e| Fault::io("icmp", &e))? {
                if self.is_answer(&buffer[..n]) {
                    return Ok(now_ns() - began);
                }
            }
        }
    }

    fn packet(&self) -> Vec<u8> {
        let kind = if self.to.is_ipv4() { 8 } else { 128 };
        let mut packet = vec![kind, 0, 0, 0];
        packet.extend_from_slice(&self.id.to_be_bytes());
        packet.extend_from_slice(&self.sequence.to_be_bytes());
        packet.resize(8 + PAYLOAD, 0x5a);
        let sum = checksum(&packet); // of ICMPv6 the kernel does it
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// An echo reply with our numbers. A datagram socket has an id of its own, and gets nothing of others.
    fn is_answer(&self, bytes: &[u8]) -> bool {
        let skip = match (self.raw, self.to) {
            (true, IpAddr::V4(_)) => bytes.first().map_or(0, |first| usize::from(first & 15) * 4),
            _ => 0,
        };
        let Some(echo) = bytes.get(skip..skip + 8) else { return false };
        let reply = if self.to.is_ipv4() { 0 } else { 129 };
        let ours = !self.raw || echo[4..6] == self.id.to_be_bytes();
        echo[0] == reply && ours && echo[6..8] == self.sequence.to_be_bytes()
    }

    fn send(&self, packet: &[u8], to: &SocketAddr) -> io::Result<()> {
        // SAFETY: all bytes zero is a valid value of these C structures; pointers and lengths are those of arrays and structures of ours.
        let n = unsafe {
            let fd = self.fd.as_raw_fd();
            match to {
                SocketAddr::V4(v4) => {
                    let mut raw: libc::sockaddr_in = mem::zeroed();
                    raw.sin_family = libc::AF_INET as u16;
                    raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                    let size = mem::size_of_val(&raw) as u32;
                    libc::sendto(fd, packet.as_ptr().cast(), packet.len(), 0, (&raw const raw).cast(), size)
                }
                SocketAddr::V6(v6) => {
                    let mut raw: libc::sockaddr_in6 = mem::zeroed();
                    raw.sin6_family = libc::AF_INET6 as u16;
                    raw.sin6_addr.s6_addr = v6.ip().octets();
                    let size = mem::size_of_val(&raw) as u32;
                    libc::sendto(fd, packet.as_ptr().cast(), packet.len(), 0, (&raw const raw).cast(), size)
                }
            }
        };
        if n >= 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn receive(&self, into: &mut [u8], left_ns: i64) -> io::Result<Option<usize>> {
        let wait = libc::timespec { tv_sec: left_ns / 1_000_000_000, tv_nsec: left_ns % 1_000_000_000 };
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, a timespec, no signal mask; then a buffer of ours and its length.
        let n = unsafe {
            if libc::ppoll(&mut poll, 1, &wait, std::ptr::null()) <= 0 {
                return Ok(None); // too late, or a signal: the caller looks at the time
            }
            libc::recv(self.fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                e => Err(e),
            },
        }
    }
}

/// The checksum of the internet protocols (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_packet_with_its_checksum_is_zero() {
        let fd = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let pinger = Pinger { fd, to: "127.0.0.1".parse().unwrap(), raw: true, id: 4711, sequence: 3 };
        let packet = pinger.packet();
        assert_eq!((checksum(&packet), packet.len()), (0, 64));
        let answer = |kind: u8| [&[0x45; 20][..], &[kind], &packet[1..]].concat();
        assert!(pinger.is_answer(&answer(0)) && !pinger.is_answer(&answer(8)) && !pinger.is_answer(&answer(0)[..25]));
    }
}
