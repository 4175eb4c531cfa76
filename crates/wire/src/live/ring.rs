//! AF_PACKET with TPACKET_V3: blocks of memory that the kernel fills with packets and hands over whole.

use std::ffi::{c_int, c_void, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{fence, AtomicU32, Ordering};

use super::filter::{tcp_ports, MOST_PORTS};
use crate::filter::Program;
use crate::packet::{place_of, Link, Packet};
use leadline_bytes::{Bytes, Endian, Truncated};
use leadline_errors::{Error, Kind, Result};

const BLOCK: usize = 1 << 20;
const FRAME: usize = 2048;
/// A block that is not full is handed over after this time.
const RETIRE_MS: u32 = 10;
const TPACKET_V3: c_int = 2;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const OUTGOING: u8 = 4;
const STATUS_USER: u32 = 1;
const STATUS_VLAN: u32 = 1 << 4;
/// Place of the status in a block.
const STATUS_AT: usize = 8;
/// The address behind the header of a packet.
const ADDRESS_AT: usize = 48;
const ETHERNET: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];

/// What to capture.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Name of an interface, or `any`.
    pub interface: String,
    /// Ports of TCP; none for every packet.
    pub ports: Vec<u16>,
    /// What the kernel passes instead, from the IP header on; which ports is looked at later then.
    pub filter: Option<Program>,
    /// Bytes of each packet.
    pub snaplen: u32,
    /// Memory of the ring.
    pub ring_bytes: usize,
}

/// A socket and its ring.
pub struct Ring {
    socket: OwnedFd,
    memory: *mut u8,
    blocks: usize,
    next: usize,
    loopback: i32,
    /// Packets that the kernel had no room for.
    pub lost: u64,
    /// Packets of blocks that could not be read; there should be none.
    pub unreadable: u64,
}

// SAFETY: the ring is used by one thread at a time; the memory belongs to the socket and goes with it.
unsafe impl Send for Ring {}
// SAFETY: who shares a ring can only wait with it; the memory is read through `&mut`.
unsafe impl Sync for Ring {}

fn failed(what: &str, e: &io::Error) -> Error {
    let error = Error::new(Kind::Unsupported, format!("{what}: {e}"));
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::new(Kind::Rights, "cannot capture packets")
            .detail(format!("{what}: {e}; this needs the capability CAP_NET_RAW"))
            .hint(
                "run as root, or: setcap cap_net_raw+ep on the Python that runs leadline; \
                 a file of tcpdump can be read with --pcap FILE",
            ),
        Some(libc::ENOMEM) => error.hint("a smaller ring needs less memory: leadline net packets --ring SIZE"),
        Some(libc::ENETDOWN) => error.hint("the interface is down: ip link"),
        _ => error,
    }
}

fn index_of(name: &str) -> Option<i32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    i32::try_from(index).ok().filter(|index| *index > 0)
}

fn interfaces() -> String {
    let names = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.push("any".into());
    names.join(", ")
}

fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a value that is there.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[repr(C)]
struct Request {
    block_size: u32,
    block_nr: u32,
    frame_size: u32,
    frame_nr: u32,
    retire_blk_tov: u32,
    sizeof_priv: u32,
    feature_req_word: u32,
}

impl Ring {
    /// Opens the ring; packets come from now on.
    ///
    /// # Errors
    /// No such interface, no right, no memory.
    pub fn open(wanted: &Wanted) -> Result<Ring> {
        let index = match wanted.interface.as_str() {
            "any" => 0,
            name => index_of(name).ok_or_else(|| {
                Error::new(Kind::NotFound, format!("no network interface {name}"))
                    .hint(format!("interfaces: {}", interfaces()))
            })?,
        };
        if wanted.ports.len() > MOST_PORTS {
            return Err(Error::new(Kind::Usage, format!("at most {MOST_PORTS} ports can be captured")));
        }
        // SAFETY: no memory is involved. Without a protocol nothing comes before bind.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(failed("a packet socket cannot be opened", &io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let loopback = index_of("lo").unwrap_or(-1);
        let ring = |e: io::Error| failed("a ring for packets cannot be had", &e);
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V3).map_err(ring)?;
        if wanted.filter.is_some() || !wanted.ports.is_empty() || wanted.snaplen < u32::MAX {
            Self::filter(&socket, wanted).map_err(|e| failed("the filter was refused", &e))?;
        }
        if index == loopback {
            // Each packet of the loopback goes out and comes in. Kernels before 4.20 do not know the option: see `is_double`.
            let _ = set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32);
        }
        let blocks = (wanted.ring_bytes / BLOCK).clamp(2, 4096);
        let request = Request {
            block_size: BLOCK as u32,
            block_nr: blocks as u32,
            frame_size: FRAME as u32,
            frame_nr: (BLOCK / FRAME * blocks) as u32,
            retire_blk_tov: RETIRE_MS,
            sizeof_priv: 0,
            feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(ring)?;
        // SAFETY: a new mapping of the length that was asked for above.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK * blocks,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(ring(io::Error::last_os_error()));
        }
        let made = Ring { socket, memory: memory.cast(), blocks, next: 0, loopback, lost: 0, unreadable: 0 };
        // SAFETY: zeros are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is of this type and length.
        let rc = unsafe { libc::bind(made.socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) };
        if rc != 0 {
            let what = format!("packets of {} cannot be captured", wanted.interface);
            return Err(failed(&what, &io::Error::last_os_error()));
        }
        Ok(made)
    }

    fn filter(socket: &OwnedFd, wanted: &Wanted) -> io::Result<()> {
        let mut program = match &wanted.filter {
            Some(program) => program.instructions().to_vec(),
            None if wanted.ports.is_empty() => vec![libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: wanted.snaplen }],
            None => tcp_ports(&wanted.ports, wanted.snaplen),
        };
        let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &whole)
    }

    /// Hands over every packet that has come; `ts` is CLOCK_REALTIME. Does not wait. Gives the number of packets.
    pub fn drain(&mut self, on: &mut impl FnMut(&Packet<'_>)) -> u64 {
        let mut taken = 0;
        for _ in 0..self.blocks {
            // SAFETY: the block lies in the mapping, and its status is a word that is aligned.
            let status = unsafe { &*self.memory.add(self.next * BLOCK + STATUS_AT).cast::<AtomicU32>() };
            if status.load(Ordering::Acquire) & STATUS_USER == 0 {
                break;
            }
            // SAFETY: the kernel does not touch a block that it handed over; the slice ends before the block is given back.
            let block = unsafe { std::slice::from_raw_parts(self.memory.add(self.next * BLOCK), BLOCK) };
            let (seen, said) = each_packet(block, self.loopback, on);
            taken += seen;
            self.unreadable += said - seen.min(said);
            fence(Ordering::SeqCst);
            status.store(0, Ordering::Release);
            self.next = (self.next + 1) % self.blocks;
        }
        taken
    }

    /// Waits until the kernel has handed over the block that it was filling.
    pub fn wait_for_last(&self) {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which is there.
        unsafe { libc::poll(&mut poll, 1, 3 * RETIRE_MS as c_int) };
    }

    /// Adds to `lost` what the kernel had no room for since the last call.
    pub fn count_lost(&mut self) {
        let mut counts = [0u32; 3];
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        let rc = unsafe {
            let place: *mut c_void = counts.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, place, &mut length)
        };
        if rc == 0 {
            self.lost += u64::from(counts[1]);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        unsafe { libc::munmap(self.memory.cast(), BLOCK * self.blocks) };
    }
}

/// Packets of a block that could be read, and how many it says it has.
fn each_packet(block: &[u8], loopback: i32, on: &mut impl FnMut(&Packet<'_>)) -> (u64, u64) {
    let word = |at: usize| block.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    let (count, mut at) = (word(12), word(16) as usize);
    let mut seen = 0;
    for _ in 0..count {
        let Some(bytes) = block.get(at..) else { break };
        let Ok((step, packet)) = packet(bytes, loopback) else { break };
        seen += 1;
        if let Some(packet) = packet {
            on(&packet);
        }
        if step == 0 {
            break;
        }
        at += step;
    }
    (seen, u64::from(count))
}

#[cfg(target_endian = "little")]
const NATIVE: Endian = Endian::Little;
#[cfg(target_endian = "big")]
const NATIVE: Endian = Endian::Big;

/// The way to the next packet, and this one; none when it is to be passed over.
fn packet(bytes: &[u8], loopback: i32) -> std::result::Result<(usize, Option<Packet<'_>>), Truncated> {
    let mut head = Bytes::new(bytes, NATIVE);
    let step = head.u32("tp_next_offset")? as usize;
    let (sec, nsec) = (head.u32("tp_sec")?, head.u32("tp_nsec")?);
    let (captured, length, status) = (head.u32("tp_snaplen")?, head.u32("tp_len")?, head.u32("tp_status")?);
    head.u16("tp_mac")?;
    let net = head.u16("tp_net")?;
    let mut address = Bytes::new(bytes.get(ADDRESS_AT..).unwrap_or(&[]), NATIVE);
    address.u16("sll_family")?;
    let protocol = u16::from_be(address.u16("sll_protocol")?);
    let (interface, kind, way) = (address.i32("sll_ifindex")?, address.u16("sll_hatype")?, address.u8("sll_pkttype")?);
    // The same packet comes in next.
    let is_double = way == OUTGOING && interface == loopback;
    let mut body = Bytes::new(bytes, NATIVE);
    body.take("headers", net.into())?;
    let data = body.take("packet", captured as usize)?;
    let is_ip = matches!(i32::from(protocol), libc::ETH_P_IP | libc::ETH_P_IPV6);
    let header = if ETHERNET.contains(&kind) { 14 } else { 0 } + if status & STATUS_VLAN != 0 { 4 } else { 0 };
    let packet = Packet {
        ts: i64::from(sec) * 1_000_000_000 + i64::from(nsec),
        wire_len: length + header,
        link: Link::Raw,
        place: place_of(interface as u32, way),
        data: if is_ip { data } else { &[0] },
    };
    Ok((step, (!is_double).then_some(packet)))
}
