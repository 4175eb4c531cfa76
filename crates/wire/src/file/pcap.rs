//! pcap: one header, then packets with 16 bytes in front of each (draft-ietf-opsawg-pcap).

use super::{invalid, unknown_link, Found, Step, MOST};
use crate::packet::Link;
use leadline_bytes::{Bytes, Endian};
use leadline_errors::Result;

/// Bytes of the file's header.
pub(super) const HEADER: usize = 24;
const RECORD: usize = 16;
/// Link types have 28 bits; the others say how long a checksum behind each packet is.
const LINK_BITS: u32 = 0x0FFF_FFFF;

#[derive(Clone)]
pub(super) struct Pcap {
    endian: Endian,
    /// Nanoseconds of the smaller unit of time.
    unit_ns: i64,
    link: Link,
}

impl Pcap {
    /// Reads the header; none when the file is of another format.
    pub(super) fn begin(head: &[u8]) -> Result<Option<Pcap>> {
        let (endian, unit_ns) = match head {
            [0xA1, 0xB2, 0xC3, 0xD4, ..] => (Endian::Big, 1000),
            [0xD4, 0xC3, 0xB2, 0xA1, ..] => (Endian::Little, 1000),
            [0xA1, 0xB2, 0x3C, 0x4D, ..] => (Endian::Big, 1),
            [0x4D, 0x3C, 0xB2, 0xA1, ..] => (Endian::Little, 1),
            _ => return Ok(None),
        };
        let mut bytes = Bytes::new(head, endian);
        let mut link = || {
            bytes.take("magic, version, zone, accuracy and snaplen", 20)?;
            bytes.u32("network")
        };
        let number = link().map_err(|e| invalid(format!("the header of the file is not whole: {e}")))? & LINK_BITS;
        let link = Link::of(number).ok_or_else(|| unknown_link(number))?;
        Ok(Some(Pcap { endian, unit_ns, link }))
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step> {
        let mut head = Bytes::new(bytes, self.endian);
        let mut word = |name| head.u32(name);
        let read =
            (|| Ok::<_, leadline_bytes::Truncated>((word("sec")?, word("frac")?, word("caplen")?, word("len")?)))();
        let Ok((sec, frac, captured, wire_len)) = read else { return Ok(Step::More(RECORD)) };
        let captured = captured as usize;
        if captured > MOST {
            return Err(invalid(format!("a packet of {captured} bytes")));
        }
        let to = RECORD + captured;
        if bytes.len() < to {
            return Ok(Step::More(to));
        }
        let ts = i64::from(sec) * 1_000_000_000 + i64::from(frac) * self.unit_ns;
        let wire_len = wire_len.max(captured as u32);
        Ok(Step::Packet(to, Found { ts, wire_len, link: self.link, place: 0, from: RECORD, to }))
    }
}
