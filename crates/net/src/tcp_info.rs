//! `TCP_INFO` of our own sockets: what the kernel knows of the connection.

use std::mem;

use serde_json::{json, Value};

/// The part of `struct tcp_info` (include/uapi/linux/tcp.h) that has been the same since Linux 4.10; older kernels give less of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    bytes: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last: [u32; 4],
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

/// What is kept of it. The times are smoothed by the kernel and seen from this end only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// The shortest round trip of the last minutes.
    pub min_rtt_us: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Bytes of a segment.
    pub mss: u32,
    /// Segments sent again, ever.
    pub retransmits: u32,
    /// Time with unacknowledged data.
    pub busy_us: u64,
    /// Of busy_us: the window of the receiver was full.
    pub rwnd_limited_us: u64,
    /// Of busy_us: our send buffer was full.
    pub sndbuf_limited_us: u64,
    /// Bytes in our send buffer that were not sent once.
    pub notsent_bytes: u32,
}

impl TcpInfo {
    /// Of a socket; None of one that is no TCP, or where the kernel is older than 4.10.
    pub fn of(fd: i32) -> Option<TcpInfo> {
        // SAFETY: numbers only, for which all bytes zero is valid.
        let mut raw: Raw = unsafe { mem::zeroed() };
        let mut length = mem::size_of::<Raw>() as u32;
        // SAFETY: the pointers are to a structure of ours and its length; the kernel writes no more than that.
        let outcome =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut raw).cast(), &mut length) };
        if outcome != 0 || (length as usize) < mem::size_of::<Raw>() {
            return None;
        }
        Some(TcpInfo {
            rtt_us: raw.rtt,
            min_rtt_us: raw.min_rtt,
            cwnd: raw.snd_cwnd,
            mss: raw.snd_mss,
            retransmits: raw.total_retrans,
            busy_us: raw.busy_time,
            rwnd_limited_us: raw.rwnd_limited,
            sndbuf_limited_us: raw.sndbuf_limited,
            notsent_bytes: raw.notsent_bytes,
        })
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "rtt_us": self.rtt_us, "min_rtt_us": self.min_rtt_us, "cwnd": self.cwnd, "mss": self.mss,
            "retransmits": self.retransmits, "busy_us": self.busy_us, "rwnd_limited_us": self.rwnd_limited_us,
            "sndbuf_limited_us": self.sndbuf_limited_us, "notsent_bytes": self.notsent_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_that_carried_a_byte_has_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        here.write_all(b"x").unwrap();
        there.read_exact(&mut [0]).unwrap();
        let info = TcpInfo::of(here.as_raw_fd()).expect("TCP");
        assert!(info.rtt_us > 0 && info.min_rtt_us > 0 && info.cwnd > 0 && info.mss > 500, "{info:?}");
        assert_eq!((info.retransmits, info.notsent_bytes), (0, 0));
    }

    #[test]
    fn what_is_no_tcp_has_none() {
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(TcpInfo::of(one.as_raw_fd()), None);
    }
}
