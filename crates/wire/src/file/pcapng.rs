//! pcapng: blocks, each with its length at both ends (draft-ietf-opsawg-pcapng).
//!
//! Blocks with keys of encrypted sessions are passed over like every block that is not needed here.

use super::{invalid, Found, Step, MOST};
use crate::packet::Link;
use leadline_bytes::{Bytes, Endian, Truncated};
use leadline_errors::Result;

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// A block around a packet: type, two lengths and what the packet's header has.
const OVERHEAD: usize = 4096;
const MOST_INTERFACES: usize = 1 << 16;
/// Times beyond this (the year 2116) are damage, and sums of them do not fit.
const LAST: i64 = 1 << 62;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const ISB_IFDROP: u16 = 5;

#[derive(Clone)]
pub(super) struct Interface {
    link: u32,
    snaplen: u32,
    /// Units of time in a second.
    units: u128,
    offset_s: i64,
    dropped: u64,
}

impl Interface {
    fn ns(&self, ts: u64) -> i64 {
        let ns = match self.units {
            1_000_000 => i64::try_from(ts).ok().and_then(|ts| ts.checked_mul(1000)),
            1_000_000_000 => i64::try_from(ts).ok(),
            units => i64::try_from(u128::from(ts) * 1_000_000_000 / units).ok(),
        };
        ns.unwrap_or(LAST).saturating_add(self.offset_s.saturating_mul(1_000_000_000)).clamp(0, LAST)
    }
}

#[derive(Clone, Default)]
pub(super) struct PcapNg {
    endian: Option<Endian>,
    pub(super) interfaces: Vec<Interface>,
    last_ts: i64,
    /// Of earlier sections.
    dropped: u64,
    pub(super) without_time: u64,
    pub(super) sections: u64,
    /// Packets of link types that are not read, and the first of these.
    pub(super) unknown: u64,
    pub(super) unknown_link: Option<u32>,
    /// The last step passed over a block that is not needed.
    pub(super) skipped: bool,
}

fn short(e: Truncated) -> leadline_errors::Error {
    invalid(format!("a block is too short: {e}"))
}

impl PcapNg {
    pub(super) fn begins(head: &[u8]) -> bool {
        head.starts_with(&SECTION.to_be_bytes())
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped + self.interfaces.iter().map(|i| i.dropped).sum::<u64>()
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step> {
        self.skipped = false;
        let Some(head) = bytes.get(..12) else { return Ok(Step::More(12)) };
        if PcapNg::begins(head) {
            self.endian = Some(match head[8..] {
                [0x1A, 0x2B, 0x3C, 0x4D] => Endian::Big,
                [0x4D, 0x3C, 0x2B, 0x1A] => Endian::Little,
                _ => return Err(invalid("a section without its byte order".into())),
            });
            self.dropped = self.dropped();
            self.interfaces.clear();
            self.sections += 1;
        }
        let Some(endian) = self.endian else { return Err(invalid("a block before the first section".into())) };
        let mut block = Bytes::new(bytes, endian);
        let kind = block.u32("block type").map_err(short)?;
        let length = block.u32("block length").map_err(short)? as usize;
        if !(12..=MOST + OVERHEAD).contains(&length) || !length.is_multiple_of(4) {
            return Err(invalid(format!("a block of {length} bytes")));
        }
        let Some(body) = bytes.get(8..length - 4) else { return Ok(Step::More(length)) };
        let Some(again) = bytes.get(length - 4..length) else { return Ok(Step::More(length)) };
        if Bytes::new(again, endian).u32("block length").map_err(short)? as usize != length {
            return Err(invalid("a block whose two lengths differ".into()));
        }
        let body = Bytes::new(body, endian);
        let found = match kind {
            INTERFACE => {
                self.interface(body).map_err(short)?;
                None
            }
            PACKET | OLD_PACKET => self.packet(body, kind == OLD_PACKET)?,
            SIMPLE_PACKET => Some(self.simple(body)?),
            STATISTICS => {
                self.statistics(body).map_err(short)?;
                None
            }
            _ => {
                self.skipped = kind != SECTION;
                None
            }
        };
        Ok(match found {
            Some(found) => Step::Packet(length, Found { from: found.from + 8, to: found.to + 8, ..found }),
            None => Step::Skip(length),
        })
    }

    fn interface(&mut self, mut body: Bytes<'_>) -> std::result::Result<(), Truncated> {
        let link = u32::from(body.u16("linktype")?);
        body.u16("reserved")?;
        let snaplen = body.u32("snaplen")?;
        let mut made = Interface { link, snaplen, units: 1_000_000, offset_s: 0, dropped: 0 };
        each_option(body, |code, mut value| {
            match code {
                IF_TSRESOL => {
                    let resolution = value.u8("if_tsresol")?;
                    let power = u32::from(resolution & 0x7F);
                    made.units = if resolution & 0x80 != 0 { 1 << power.min(120) } else { 10u128.pow(power.min(36)) };
                }
                IF_TSOFFSET => made.offset_s = value.i64("if_tsoffset")?,
                _ => {}
            }
            Ok(())
        })?;
        if self.interfaces.len() < MOST_INTERFACES {
            self.interfaces.push(made);
        }
        Ok(())
    }

    fn of(&self, number: u32) -> Result<&Interface> {
        self.interfaces
            .get(number as usize)
            .ok_or_else(|| invalid(format!("a packet of interface {number}, which the file does not describe")))
    }

    /// Of a packet; of an unknown kind it is counted.
    fn link(&mut self, number: u32) -> Result<Link> {
        let number = self.of(number)?.link;
        Ok(Link::of(number).unwrap_or_else(|| {
            self.unknown += 1;
            self.unknown_link.get_or_insert(number);
            Link::Unknown
        }))
    }

    /// None for a packet of an interface that is not described while others are: its link type and unit of time are not known.
    fn packet(&mut self, mut body: Bytes<'_>, old: bool) -> Result<Option<Found>> {
        let mut head = || {
            let number = if old { u32::from(body.u16("interface")?) } else { body.u32("interface")? };
            if old {
                body.u16("drops")?;
            }
            let (high, low) = (body.u32("timestamp")?, body.u32("timestamp")?);
            Ok((number, u64::from(high) << 32 | u64::from(low), body.u32("captured length")?, body.u32("length")?))
        };
        let (number, ts, captured, wire_len) = head().map_err(short)?;
        if number as usize >= self.interfaces.len() && !self.interfaces.is_empty() {
            self.skipped = true;
            return Ok(None);
        }
        let link = self.link(number)?;
        let from = body.done();
        body.take("packet", captured as usize).map_err(short)?;
        self.last_ts = self.of(number)?.ns(ts);
        Ok(Some(Found {
            ts: self.last_ts,
            wire_len: wire_len.max(captured),
            link,
            place: number.wrapping_add(1),
            from,
            to: from + captured as usize,
        }))
    }

    fn simple(&mut self, mut body: Bytes<'_>) -> Result<Found> {
        let wire_len = body.u32("length").map_err(short)?;
        let link = self.link(0)?;
        let snaplen = match self.of(0)?.snaplen {
            0 => u32::MAX,
            some => some,
        };
        let captured = (wire_len.min(snaplen) as usize).min(body.left());
        self.without_time += 1;
        Ok(Found { ts: self.last_ts, wire_len, link, place: 1, from: 4, to: 4 + captured })
    }

    fn statistics(&mut self, mut body: Bytes<'_>) -> std::result::Result<(), Truncated> {
        let number = body.u32("interface")? as usize;
        body.take("timestamp", 8)?;
        let Some(interface) = self.interfaces.get_mut(number) else { return Ok(()) };
        each_option(body, |code, mut value| {
            if code == ISB_IFDROP {
                interface.dropped = value.u64("isb_ifdrop")?;
            }
            Ok(())
        })
    }
}

fn each_option(
    mut body: Bytes<'_>,
    mut on: impl FnMut(u16, Bytes<'_>) -> std::result::Result<(), Truncated>,
) -> std::result::Result<(), Truncated> {
    while body.left() >= 4 {
        let (code, length) = (body.u16("option")?, body.u16("option length")?);
        if code == 0 {
            break;
        }
        let value = body.part("option", length.into())?;
        body.align(4);
        on(code, value)?;
    }
    Ok(())
}
