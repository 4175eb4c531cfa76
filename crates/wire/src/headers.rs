//! The headers in front of TCP: link layer, VLAN, MPLS, PPPoE, IPv4 and IPv6, with the tunnels around them.

use leadline_bytes::{Bytes, Endian, Result};

use crate::fragments::{Fragment, Of};
use crate::packet::{flag, place_of, Content, End, Link, Packet, Segment};
use crate::tunnel::{inside, Inside, IN_IP};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const VLAN: [u16; 3] = [0x8100, 0x88A8, 0x9100];
/// Tags of switches that are longer: VN-Tag, Cisco's metadata, E-Tag of 802.1BR; and their bytes.
const LONG_TAGS: [(u16, usize); 3] = [(0x8926, 4), (0x8909, 6), (0x893F, 6)];
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE: u16 = 0x8864;
/// Tags that one frame may have; two are in use.
const MOST_TAGS: usize = 4;
/// Labels that one packet may have.
const MOST_LABELS: usize = 16;
/// Tunnels in tunnels that are followed. An overlay network within a VPN has two.
const MOST_TUNNELS: u8 = 4;

/// Reads the headers of a packet.
pub fn content<'a>(packet: &Packet<'a>) -> Content<'a> {
    let place = if packet.link == Link::Cooked2 { cooked_place(packet.data) } else { packet.place };
    seen_at(place, link(packet.link, Bytes::new(packet.data, Endian::Big)))
}

/// Reads what parts made: an IP packet in so many tunnels.
pub(crate) fn joined(packet: &[u8], place: u32, depth: u8) -> Content<'_> {
    seen_at(place, ip(Bytes::new(packet, Endian::Big), depth))
}

fn seen_at(place: u32, content: Result<Content<'_>>) -> Content<'_> {
    let mut content = content.unwrap_or(Content::Cut);
    match &mut content {
        Content::Tcp(segment) => segment.place = place,
        Content::Fragment(fragment) => fragment.of.place = place,
        _ => {}
    }
    content
}

/// Interface and direction of a cooked header of version 2.
fn cooked_place(data: &[u8]) -> u32 {
    match data {
        [_, _, _, _, a, b, c, d, _, _, way, ..] => place_of(u32::from_be_bytes([*a, *b, *c, *d]), *way),
        _ => 0,
    }
}

fn link(link: Link, mut bytes: Bytes<'_>) -> Result<Content<'_>> {
    match link {
        Link::Ethernet => ethernet(bytes, 0),
        Link::Cooked => {
            bytes.take("cooked header", 14)?;
            let kind = bytes.u16("protocol")?;
            ether_type(kind, bytes, 0)
        }
        Link::Cooked2 => {
            let kind = bytes.u16("protocol")?;
            bytes.take("cooked header", 18)?;
            ether_type(kind, bytes, 0)
        }
        Link::Null => {
            bytes.take("address family", 4)?;
            ip(bytes, 0)
        }
        Link::Raw => ip(bytes, 0),
        Link::Unknown => Ok(Content::Other),
    }
}

fn ethernet(mut bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    bytes.take("addresses", 12)?;
    let kind = bytes.u16("ethertype")?;
    ether_type(kind, bytes, depth)
}

/// What follows an ethertype. `depth`: tunnels around it.
fn ether_type(mut kind: u16, mut bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    for _ in 0..MOST_TAGS {
        let long = LONG_TAGS.iter().find(|(tag, _)| *tag == kind).map(|(_, length)| *length);
        let Some(length) = long.or(VLAN.contains(&kind).then_some(2)) else { break };
        bytes.take("tag", length)?;
        kind = bytes.u16("ethertype")?;
    }
    match kind {
        IPV4 | IPV6 => ip(bytes, depth),
        PPPOE => {
            bytes.take("PPPoE header", 6)?;
            match bytes.u16("PPP protocol")? {
                0x21 | 0x57 => ip(bytes, depth),
                _ => Ok(Content::Other),
            }
        }
        kind if MPLS.contains(&kind) => {
            for _ in 0..MOST_LABELS {
                if bytes.u32("MPLS label")? & 0x100 != 0 {
                    return labelled(bytes, depth);
                }
            }
            Ok(Content::Other)
        }
        _ => Ok(Content::Other),
    }
}

/// What follows the last MPLS label says no header: IP by its version, else a frame, with a control word of zeros in front or without.
fn labelled(bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    match bytes.rest() {
        [first, ..] if matches!(first >> 4, 4 | 6) => ip(bytes, depth),
        [0, 0, _, _, ..] => {
            let mut frame = bytes;
            frame.take("control word", 4)?;
            ethernet(frame, depth)
        }
        _ => ethernet(bytes, depth),
    }
}

fn ip(bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    match bytes.rest().first() {
        None => Ok(Content::Cut),
        Some(first) => match first >> 4 {
            4 => ipv4(bytes, depth),
            6 => ipv6(bytes, depth),
            _ => Ok(Content::Other),
        },
    }
}

const TCP: u8 = 6;
/// Headers of IPv6: hop-by-hop, routing, destination options, mobility, authentication, fragment.
const EXTENSIONS: [u8; 6] = [0, 43, 60, 135, 51, 44];

/// What IP says of a segment.
struct Outer {
    from: [u8; 16],
    to: [u8; 16],
    id: u16,
    /// Bytes that follow, whether captured or not; what follows these is padding.
    body: usize,
}

fn ipv4(mut bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    let head: [u8; 20] = bytes.array("IPv4 header")?;
    let length = usize::from(head[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let part = u16::from_be_bytes([head[6], head[7]]) & 0x3FFF;
    if length < 20 {
        return Ok(Content::Bad);
    }
    if head[9] != TCP && !IN_IP.contains(&head[9]) {
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
    let (from, to, id) = (end(12), end(16), u16::from_be_bytes([head[4], head[5]]));
    if part != 0 {
        let of = Of { from, to, id: id.into(), protocol: head[9], is_six: false, place: 0 };
        return Ok(fragment(of, part << 3, part & 0x2000 != 0, body, bytes, depth));
    }
    if head[9] != TCP {
        return tunnelled(head[9], bytes, depth);
    }
    tcp(bytes, &Outer { from, to, id, body })
}

fn ipv6(mut bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    let head: [u8; 40] = bytes.array("IPv6 header")?;
    let [mut from, mut to] = [[0; 16]; 2];
    from.copy_from_slice(&head[8..24]);
    to.copy_from_slice(&head[24..40]);
    let total = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let mut body = if total == 0 { bytes.left() } else { total };
    let mut next = head[6];
    while EXTENSIONS.contains(&next) {
        if next == 44 {
            let [kind, _, a, b, id @ ..]: [u8; 8] = bytes.array("fragment header")?;
            let Some(left) = body.checked_sub(8) else { return Ok(Content::Bad) };
            let part = u16::from_be_bytes([a, b]);
            // The whole in one "part" (RFC 6946) is no part.
            if part & 0xFFF9 == 0 {
                (next, body) = (kind, left);
                continue;
            }
            let of = Of { from, to, id: u32::from_be_bytes(id), protocol: kind, is_six: true, place: 0 };
            return Ok(fragment(of, part & 0xFFF8, part & 1 != 0, left, bytes, depth));
        }
        let [kind, length]: [u8; 2] = bytes.array("extension header")?;
        let length = if next == 51 { (usize::from(length) + 2) * 4 } else { (usize::from(length) + 1) * 8 };
        bytes.take("extension header", length - 2)?;
        let Some(left) = body.checked_sub(length) else { return Ok(Content::Bad) };
        (next, body) = (kind, left);
    }
    match next {
        TCP => tcp(bytes, &Outer { from, to, id: 0, body }),
        next if IN_IP.contains(&next) => tunnelled(next, bytes, depth),
        _ => Ok(Content::Other),
    }
}

/// A part of a packet that carries TCP, a tunnel or further headers of IPv6. `at`: where it begins; `length`: of its data.
fn fragment(of: Of, at: u16, more: bool, length: usize, bytes: Bytes<'_>, depth: u8) -> Content<'_> {
    let is_header = of.is_six && EXTENSIONS.contains(&of.protocol);
    if of.protocol != TCP && !IN_IP.contains(&of.protocol) && !is_header {
        return Content::Other;
    }
    Content::Fragment(Fragment { of, at: at.into(), length, more, data: bytes.rest(), depth })
}

fn tunnelled(protocol: u8, bytes: Bytes<'_>, depth: u8) -> Result<Content<'_>> {
    if depth >= MOST_TUNNELS {
        return Ok(Content::Other);
    }
    match inside(protocol, bytes)? {
        Inside::Frame(bytes) => ethernet(bytes, depth + 1),
        Inside::Ip(bytes) => ip(bytes, depth + 1),
        Inside::Kind(kind, bytes) => ether_type(kind, bytes, depth + 1),
        Inside::Nothing => Ok(Content::Other),
    }
}

fn tcp<'a>(mut bytes: Bytes<'a>, ip: &Outer) -> Result<Content<'a>> {
    let head: [u8; 20] = bytes.array("TCP header")?;
    let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let long = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::from(head[12] >> 4) * 4;
    let (Some(options), Some(payload_len)) = (length.checked_sub(20), ip.body.checked_sub(length)) else {
        return Ok(Content::Bad);
    };
    let options = bytes.take("TCP options", options)?;
    let payload = bytes.rest();
    let mss = if head[13] & flag::SYN != 0 { option(options, 2) } else { None };
    let stamps = option(options, 8).and_then(|value| Some((value.first_chunk::<4>()?, value.last_chunk::<4>()?)));
    Ok(Content::Tcp(Segment {
        from: End { addr: ip.from, port: short(0) },
        to: End { addr: ip.to, port: short(2) },
        place: 0,
        id: ip.id,
        seq: long(4),
        ack: long(8),
        flags: head[13],
        window: short(14),
        mss: mss.and_then(<[u8]>::first_chunk::<2>).map_or(0, |mss| u16::from_be_bytes(*mss)),
        stamps: stamps.map(|(own, echo)| (u32::from_be_bytes(*own), u32::from_be_bytes(*echo))),
        payload: &payload[..payload.len().min(payload_len)],
        payload_len: payload_len as u32,
    }))
}

/// The value of an option of TCP.
fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        options = match options {
            [1, rest @ ..] => rest,
            [0, ..] | [] | [_] => return None,
            [kind, length, ..] => {
                let length = usize::from(*length).max(2);
                if *kind == wanted {
                    return options.get(2..length);
                }
                options.get(length..)?
            }
        };
    }
}
