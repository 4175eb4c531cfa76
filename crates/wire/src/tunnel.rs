//! Packets in packets: IP in IP, GRE and ERSPAN, VXLAN and Geneve. What is inside is read as if it had come without the tunnel.

use leadline_bytes::{Bytes, Result};

/// What a tunnel carries.
pub(crate) enum Inside<'a> {
    /// A frame of Ethernet.
    Frame(Bytes<'a>),
    Ip(Bytes<'a>),
    /// What an ethertype says.
    Kind(u16, Bytes<'a>),
    /// No packet, or none that can be read.
    Nothing,
}

/// Protocol numbers of IP that carry a packet, and UDP.
pub(crate) const IN_IP: [u8; 5] = [IPV4_IN_IP, IPV6_IN_IP, GRE, MPLS_IN_IP, UDP];
const IPV4_IN_IP: u8 = 4;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const MPLS_IN_IP: u8 = 137;
/// Ports of UDP: VXLAN by RFC 7348 and by Linux before it, VXLAN-GPE, Geneve.
const VXLAN: [u16; 2] = [4789, 8472];
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
const BRIDGED: u16 = 0x6558;
const MPLS: u16 = 0x8847;
const ERSPAN: [u16; 2] = [0x88BE, 0x22EB];

/// What is in a packet of one of [`IN_IP`].
pub(crate) fn inside(protocol: u8, mut bytes: Bytes<'_>) -> Result<Inside<'_>> {
    match protocol {
        IPV4_IN_IP | IPV6_IN_IP => Ok(Inside::Ip(bytes)),
        GRE => gre(bytes),
        MPLS_IN_IP => Ok(Inside::Kind(MPLS, bytes)),
        _ => {
            let head: [u8; 8] = bytes.array("UDP header")?;
            udp(u16::from_be_bytes([head[2], head[3]]), bytes)
        }
    }
}

/// GRE by RFC 2784 and 2890: which of checksum, key and number follow says the first byte. A version of 1 is that of PPTP.
fn gre(mut bytes: Bytes<'_>) -> Result<Inside<'_>> {
    let (flags, kind) = (bytes.u16("GRE flags")?, bytes.u16("GRE protocol")?);
    if flags & 0x4007 != 0 {
        return Ok(Inside::Nothing); // with a route, or another version
    }
    let numbered = flags & 0x1000 != 0;
    for (bit, name) in [(0x8000, "GRE checksum"), (0x2000, "GRE key"), (0x1000, "GRE number")] {
        if flags & bit != 0 {
            bytes.u32(name)?;
        }
    }
    match kind {
        BRIDGED => Ok(Inside::Frame(bytes)),
        // Type 1 has no number and no header of its own, type 2 has 8 bytes, type 3 has 12 and may have 8 more.
        kind if kind == ERSPAN[0] && !numbered => Ok(Inside::Frame(bytes)),
        kind if kind == ERSPAN[0] => {
            bytes.take("ERSPAN header", 8)?;
            Ok(Inside::Frame(bytes))
        }
        kind if kind == ERSPAN[1] => {
            let head: [u8; 12] = bytes.array("ERSPAN header")?;
            bytes.take("ERSPAN subheader", if head[11] & 1 != 0 { 8 } else { 0 })?;
            Ok(Inside::Frame(bytes))
        }
        kind => Ok(Inside::Kind(kind, bytes)),
    }
}

fn udp(port: u16, mut bytes: Bytes<'_>) -> Result<Inside<'_>> {
    if VXLAN.contains(&port) || port == VXLAN_GPE {
        // With a flag that says there is a network number. Others use the port for something else.
        let Ok(head) = bytes.array::<8>("VXLAN header") else { return Ok(Inside::Nothing) };
        return match (head[0] & 0x0C, head[3]) {
            (0x08, _) => Ok(Inside::Frame(bytes)),
            (0x0C, 1 | 2) if port == VXLAN_GPE => Ok(Inside::Ip(bytes)),
            (0x0C, 3) if port == VXLAN_GPE => Ok(Inside::Frame(bytes)),
            _ => Ok(Inside::Nothing),
        };
    }
    if port == GENEVE {
        let Ok(head) = bytes.array::<8>("Geneve header") else { return Ok(Inside::Nothing) };
        if head[0] >> 6 != 0 {
            return Ok(Inside::Nothing);
        }
        bytes.take("Geneve options", usize::from(head[0] & 0x3F) * 4)?;
        let kind = u16::from_be_bytes([head[2], head[3]]);
        return if kind == BRIDGED { Ok(Inside::Frame(bytes)) } else { Ok(Inside::Kind(kind, bytes)) };
    }
    Ok(Inside::Nothing)
}
