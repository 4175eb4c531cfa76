//! IP packets that came in parts, put together again.

use std::collections::{HashMap, VecDeque};

/// Parts that wait for others, and bytes of them. Linux keeps 4 MB of each network namespace.
const MOST_OPEN: usize = 4096;
const MOST_BYTES: usize = 16 << 20;
/// Parts of one packet; over the least MTU of IPv4 that is in use (576) there are 120.
const MOST_PARTS: usize = 512;
/// What is not whole then never will be: a receiver gives up as early (RFC 791; Linux waits 30 s).
const KEEP_NS: i64 = 30_000_000_000;
/// Parts of a packet that was whole already are copies of its parts for so long; later the number belongs to another packet.
const COPY_NS: i64 = 100_000_000;

/// What parts of one packet have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Of {
    #[allow(missing_docs)]
    pub from: [u8; 16],
    #[allow(missing_docs)]
    pub to: [u8; 16],
    /// Identification: 16 bits of IPv4, 32 of IPv6.
    pub id: u32,
    /// What the packet carries: TCP, or a tunnel.
    pub protocol: u8,
    /// Version of IP.
    pub is_six: bool,
    /// Where it was seen, as [`crate::packet::Packet::place`].
    pub place: u32,
}

/// A part of an IP packet.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    #[allow(missing_docs)]
    pub of: Of,
    /// Where its data begins in that of the packet.
    pub at: usize,
    /// Bytes of its data, whether captured or not.
    pub length: usize,
    /// Whether others follow it.
    pub more: bool,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Tunnels around it.
    pub(crate) depth: u8,
}

/// What a part brought.
#[derive(Debug)]
pub(crate) enum Put {
    /// Others are missing.
    Waits,
    /// The packet, from its IP header on, and its bytes on the wire.
    Whole(Vec<u8>, u32),
    /// The part was there before.
    Copy,
    /// It contradicts itself or others: a receiver drops all of the packet, and so does this.
    Bad,
}

/// A packet of which parts are missing, that will not be whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alone {
    pub ts: i64,
    pub parts: u64,
    pub wire: u32,
}

#[derive(Debug, Default)]
struct Open {
    since: i64,
    /// Where each begins, its length, and what was captured of it.
    parts: Vec<(usize, usize, Vec<u8>)>,
    /// Bytes of the whole, once the last part is there.
    total: Option<usize>,
    wire: u32,
    /// When the last part came; its parts are gone then.
    done: Option<i64>,
}

impl Open {
    fn is_whole(&self) -> bool {
        let there: usize = self.parts.iter().map(|(_, length, _)| length).sum();
        self.total == Some(there) // no two overlap
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(|(.., data)| data.len()).sum()
    }

    fn alone(&self) -> Option<Alone> {
        (!self.parts.is_empty()).then_some(Alone { ts: self.since, parts: self.parts.len() as u64, wire: self.wire })
    }
}

/// Packets of which not all parts have come.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    open: HashMap<Of, Open>,
    order: VecDeque<(i64, Of)>,
    bytes: usize,
    /// What was given up since it was taken away.
    pub given_up: Vec<Alone>,
}

impl Fragments {
    /// Takes a part.
    pub fn put(&mut self, ts: i64, wire: u32, f: &Fragment<'_>) -> Put {
        self.make_room(ts);
        let end = f.at + f.length;
        if end > 0xFFFF || f.length == 0 || f.more && !f.length.is_multiple_of(8) {
            return Put::Bad;
        }
        match self.open.get(&f.of).and_then(|open| open.done) {
            Some(done) if ts.saturating_sub(done) <= COPY_NS => return Put::Copy,
            Some(_) => drop(self.open.remove(&f.of)),
            None => {}
        }
        let open = self.open.entry(f.of).or_insert_with(|| {
            self.order.push_back((ts, f.of));
            Open { since: ts, ..Open::default() }
        });
        if open.parts.iter().any(|(at, length, _)| (*at, *length) == (f.at, f.length)) {
            return Put::Copy;
        }
        let overlaps = open.parts.iter().any(|(at, length, _)| f.at < at + length && *at < end);
        let ends = open.parts.iter().map(|(at, length, _)| at + length).max().unwrap_or(0);
        let contradicts = match (f.more, open.total) {
            (true, Some(total)) => end > total,
            (true, None) => false,
            (false, total) => total.is_some() || ends > end,
        };
        if overlaps || contradicts || open.parts.len() == MOST_PARTS {
            self.give_up(&f.of);
            return Put::Bad;
        }
        if !f.more {
            open.total = Some(end);
        }
        open.parts.push((f.at, f.length, f.data[..f.data.len().min(f.length)].to_vec()));
        open.wire = open.wire.saturating_add(wire);
        self.bytes += f.data.len().min(f.length);
        if !open.is_whole() {
            return Put::Waits;
        }
        open.done = Some(ts);
        self.bytes -= open.bytes();
        let wire = open.wire;
        Put::Whole(joined(&f.of, std::mem::take(&mut open.parts)), wire)
    }

    /// Gives up what waits.
    pub fn finish(&mut self) {
        self.order.clear();
        let open = std::mem::take(&mut self.open);
        self.given_up.extend(open.values().filter_map(Open::alone));
        self.given_up.sort_unstable_by_key(|alone| alone.ts);
        self.bytes = 0;
    }

    fn make_room(&mut self, ts: i64) {
        while let Some(&(since, of)) = self.order.front() {
            let is_old = ts.saturating_sub(since) > KEEP_NS;
            if !is_old && self.order.len() < MOST_OPEN && self.bytes <= MOST_BYTES {
                return;
            }
            self.order.pop_front();
            if self.open.get(&of).is_some_and(|open| open.since == since) {
                self.give_up(&of);
            }
        }
    }

    fn give_up(&mut self, of: &Of) {
        if let Some(open) = self.open.remove(of) {
            self.bytes -= open.bytes();
            self.given_up.extend(open.alone());
        }
    }
}

/// The packet as it was before: a header without options, and the data up to the first byte that was not captured.
fn joined(of: &Of, mut parts: Vec<(usize, usize, Vec<u8>)>) -> Vec<u8> {
    parts.sort_unstable_by_key(|(at, ..)| *at);
    let total: usize = parts.iter().map(|(_, length, _)| length).sum();
    let mut packet = Vec::with_capacity(total + 40);
    if of.is_six {
        packet.extend([0x60, 0, 0, 0]);
        packet.extend((total as u16).to_be_bytes());
        packet.extend([of.protocol, 64]);
        packet.extend(of.from);
        packet.extend(of.to);
    } else {
        packet.extend([0x45, 0]);
        packet.extend((total as u16).saturating_add(20).to_be_bytes());
        packet.extend((of.id as u16).to_be_bytes());
        packet.extend([0, 0, 64, of.protocol, 0, 0]);
        packet.extend(&of.from[12..]);
        packet.extend(&of.to[12..]);
    }
    for (_, length, data) in parts {
        packet.extend(&data);
        if data.len() < length {
            break;
        }
    }
    packet
}
