//! One packet as it was captured, and the headers in front of TCP: link layer, IPv4 and IPv6.

use leadline_bytes::{Bytes, Endian, Result};

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
    /// A part of an IP packet: its ports are in another packet.
    Fragment,
    /// Not IP, or not TCP.
    Other,
    /// Its headers were not all captured.
    Cut,
    /// Its headers contradict themselves.
    Bad,
}

impl<'a> Packet<'a> {
    /// Reads the headers.
    pub fn content(&self) -> Content<'a> {
        link(self.link, Bytes::new(self.data, Endian::Big)).unwrap_or(Content::Cut)
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const VLAN: [u16; 3] = [0x8100, 0x88A8, 0x9100];
/// Tags that one frame may have; two are in use.
const MOST_TAGS: usize = 4;

fn link(link: Link, mut bytes: Bytes<'_>) -> Result<Content<'_>> {
    match link {
        Link::Ethernet => {
            bytes.take("addresses", 12)?;
            let kind = bytes.u16("ethertype")?;
            tagged(kind, bytes)
        }
        Link::Cooked => {
            bytes.take("cooked header", 14)?;
            let kind = bytes.u16("protocol")?;
            tagged(kind, bytes)
        }
        Link::Cooked2 => {
            let kind = bytes.u16("protocol")?;
            bytes.take("cooked header", 18)?;
            tagged(kind, bytes)
        }
        Link::Null => {
            bytes.take("address family", 4)?;
            ip(bytes)
        }
        Link::Raw => ip(bytes),
    }
}

fn tagged(mut kind: u16, mut bytes: Bytes<'_>) -> Result<Content<'_>> {
    for _ in 0..MOST_TAGS {
        if !VLAN.contains(&kind) {
            break;
        }
        bytes.u16("tag")?;
        kind = bytes.u16("ethertype")?;
    }
    match kind {
        IPV4 | IPV6 => ip(bytes),
        _ => Ok(Content::Other),
    }
}

fn ip(bytes: Bytes<'_>) -> Result<Content<'_>> {
    match bytes.rest().first() {
        None => Ok(Content::Cut),
        Some(first) => match first >> 4 {
            4 => ipv4(bytes),
            6 => ipv6(bytes),
            _ => Ok(Content::Other),
        },
    }
}

const TCP: u8 = 6;

fn ipv4(mut bytes: Bytes<'_>) -> Result<Content<'_>> {
    let head: [u8; 20] = bytes.array("IPv4 header")?;
    let length = usize::from(head[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3FFF;
    if fragment != 0 {
        return Ok(Content::Fragment);
    }
    if length < 20 {
        return Ok(Content::Bad);
    }
    if head[9] != TCP {
        return Ok(Content::Other);
    }
    bytes.take("IPv4 options", length - 20)?;
    // A packet that the card is to cut into segments may have no length yet.
    let body = if total == 0 { Some(bytes.left()) } else { total.checked_sub(length) };
    let Some(body) = body else { return Ok(Content::Bad) };
    let end = |at: usize| {
        let mut addr = [0; 16];
        addr[10..12].fill(0xFF);
        addr[12..].copy_from_slice(&head[at..at + 4]);
        addr
    };
    tcp(bytes, body, end(12), end(16))
}

fn ipv6(mut bytes: Bytes<'_>) -> Result<Content<'_>> {
    let head: [u8; 40] = bytes.array("IPv6 header")?;
    let [mut from, mut to] = [[0; 16]; 2];
    from.copy_from_slice(&head[8..24]);
    to.copy_from_slice(&head[24..40]);
    let total = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let mut body = if total == 0 { bytes.left() } else { total };
    let mut next = head[6];
    // Hop-by-hop, routing, destination options, mobility, authentication.
    while let 0 | 43 | 60 | 135 | 51 | 44 = next {
        if next == 44 {
            return Ok(Content::Fragment);
        }
        let [kind, length]: [u8; 2] = bytes.array("extension header")?;
        let length = if next == 51 { (usize::from(length) + 2) * 4 } else { (usize::from(length) + 1) * 8 };
        bytes.take("extension header", length - 2)?;
        let Some(left) = body.checked_sub(length) else { return Ok(Content::Bad) };
        (next, body) = (kind, left);
    }
    if next == TCP {
        tcp(bytes, body, from, to)
    } else {
        Ok(Content::Other)
    }
}

/// `body`: bytes that IP says follow, whether captured or not; what follows these is padding.
fn tcp(mut bytes: Bytes<'_>, body: usize, from: [u8; 16], to: [u8; 16]) -> Result<Content<'_>> {
    let head: [u8; 20] = bytes.array("TCP header")?;
    let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let long = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::from(head[12] >> 4) * 4;
    let (Some(options), Some(payload_len)) = (length.checked_sub(20), body.checked_sub(length)) else {
        return Ok(Content::Bad);
    };
    let options = bytes.take("TCP options", options)?;
    let payload = bytes.rest();
    Ok(Content::Tcp(Segment {
        from: End { addr: from, port: short(0) },
        to: End { addr: to, port: short(2) },
        seq: long(4),
        ack: long(8),
        flags: head[13],
        window: short(14),
        mss: if head[13] & flag::SYN != 0 { mss(options) } else { 0 },
        payload: &payload[..payload.len().min(payload_len)],
        payload_len: payload_len as u32,
    }))
}

fn mss(mut options: &[u8]) -> u16 {
    loop {
        options = match options {
            [1, rest @ ..] => rest,
            [2, 4, high, low, ..] => return u16::from_be_bytes([*high, *low]),
            [0, ..] | [] | [_] => return 0,
            [_, length, ..] => options.get(usize::from(*length).max(2)..).unwrap_or(&[]),
        };
    }
}
