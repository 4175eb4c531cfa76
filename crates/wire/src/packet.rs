//! One packet as it was captured, and what it turns out to be.

use crate::fragments::Fragment;

/// What a captured packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Ethernet, with any VLAN tags.
    Ethernet,
    /// Linux cooked, as `-i any` wrote it for long.
    Cooked,
    /// Linux cooked version 2, as `-i any` writes it today.
    Cooked2,
    /// IP at once.
    Raw,
    /// An address family in four bytes, in the byte order of one machine or another.
    Null,
    /// Of another kind: such packets are counted and passed over.
    Unknown,
}

impl Link {
    /// Of the number in a file (tcpdump.org/linktypes.html).
    pub fn of(number: u32) -> Option<Link> {
        match number {
            1 => Some(Link::Ethernet),
            113 => Some(Link::Cooked),
            276 => Some(Link::Cooked2),
            12 | 14 | 101 | 228 | 229 => Some(Link::Raw),
            0 | 108 => Some(Link::Null),
            _ => None,
        }
    }

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Link::Ethernet => "Ethernet",
            Link::Cooked => "Linux cooked",
            Link::Cooked2 => "Linux cooked version 2",
            Link::Raw => "raw IP",
            Link::Null => "loopback",
            Link::Unknown => "unknown",
        }
    }

    /// Names of those that are read, for messages.
    pub const KNOWN: &'static str =
        "Ethernet (1), Linux cooked (113, 276), raw IP (12, 14, 101, 228, 229), loopback (0, 108)";
}

/// A packet from a file or an interface.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// When it was seen, in ns; of a file since 1970.
    pub ts: i64,
    /// Bytes it had on the wire, with the header of the link.
    pub wire_len: u32,
    /// How `data` begins.
    pub link: Link,
    /// Where it was seen: a number for each interface and, where known, direction; 0 when that is not known.
    pub place: u32,
    /// The bytes that were captured: all, or the first of them.
    pub data: &'a [u8],
}

/// One end of a connection. IPv4 addresses are mapped into IPv6 (`::ffff:a.b.c.d`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// Address.
    pub addr: [u8; 16],
    /// Port.
    pub port: u16,
}

impl End {
    /// The address as text.
    pub fn addr_text(&self) -> String {
        let addr = std::net::Ipv6Addr::from(self.addr);
        addr.to_ipv4_mapped().map_or_else(|| addr.to_string(), |v4| v4.to_string())
    }
}

/// Flags of a TCP header.
pub mod flag {
    #![allow(missing_docs)]
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const ACK: u8 = 16;
}

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Sender and receiver.
    pub from: End,
    #[allow(missing_docs)]
    pub to: End,
    /// Where it was seen, as [`Packet::place`].
    pub place: u32,
    /// Identification of the IPv4 header; 0 of IPv6.
    pub id: u16,
    /// Sequence number of its first byte.
    pub seq: u32,
    /// The next byte that the sender expects, if the flag says so.
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Window as the header has it, without its scale.
    pub window: u16,
    /// Largest segment that the sender takes; 0 when it does not say.
    pub mss: u16,
    /// The time stamp option: the sender's time, and that of the other end which it repeats.
    pub stamps: Option<(u32, u32)>,
    /// The captured part of the data.
    pub payload: &'a [u8],
    /// Bytes of data it had on the wire.
    pub payload_len: u32,
}

/// What a packet turned out to be.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// A TCP segment with all of its header.
    Tcp(Segment<'a>),
    /// A part of an IP packet: its ports may be in another.
    Fragment(Fragment<'a>),
    /// Not IP, or not TCP.
    Other,
    /// Its headers were not all captured.
    Cut,
    /// Its headers contradict themselves.
    Bad,
}

/// A number for an interface and a direction (`sll_pkttype`).
pub fn place_of(interface: u32, way: u8) -> u32 {
    interface.wrapping_shl(3) | u32::from(way & 7)
}
