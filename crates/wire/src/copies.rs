//! Copies: the same packet seen again, at another interface, at a port that mirrors both ways, or under the address it was translated to.
//!
//! A segment that is sent again is another packet: it has a number of its own (identification of IPv4), and a time stamp of TCP that is
//! later if a millisecond has passed. A copy has those of the first. Where neither tells, as with IPv6, a copy is seen within two
//! milliseconds, at another interface or before the other end has said anything: what is sent again so early is sent because of what the
//! other end said.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::packet::Segment;

/// Packets between a packet and its copy. The kernel hands packets of a card up in lists of 64, a queue holds 300.
const MOST: usize = 4096;
/// A copy with the same number comes within this time; the shortest timer of Linux that sends data again without a hint waits 200 ms.
const NUMBERED_NS: i64 = 100_000_000;
/// A copy that has no number comes within this time.
const UNNUMBERED_NS: i64 = 2_000_000;

/// What is known of the connection of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its number; 0 for one that is not known yet.
    pub connection: i64,
    /// Packets that its other end has sent so far.
    pub others: u64,
    /// The identification of the packet that the same end sent before.
    pub last_id: Option<u16>,
}

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    #[allow(missing_docs)]
    New,
    /// A copy within its connection.
    Copy,
    /// A copy with other addresses or ports, of the connection with this number.
    Translated(i64),
}

#[derive(Clone, Copy)]
struct Seen {
    ts: i64,
    place: u32,
    known: Known,
}

/// Prints are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| mix(hash ^ u64::from(*byte)));
    }
    fn write_u64(&mut self, print: u64) {
        self.0 = print;
    }
}

/// The packets seen last.
#[derive(Default)]
pub struct Copies {
    seen: HashMap<u64, Seen, BuildHasherDefault<AsItIs>>,
    order: VecDeque<u64>,
}

/// splitmix64
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// What a copy has in common with the first, whatever happened to its addresses.
fn print(s: &Segment<'_>) -> u64 {
    let two = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    let (own, echo) = s.stamps.unwrap_or_default();
    let small = u64::from(s.id) << 32 | u64::from(s.window) << 16 | u64::from(s.flags) << 8;
    let hash = mix(mix(two(s.seq, s.ack)) ^ two(own, echo));
    mix(mix(hash ^ small) ^ u64::from(s.payload_len))
}

impl Copies {
    /// Whether the packet was seen before. It is remembered when it was not.
    pub fn look(&mut self, ts: i64, s: &Segment<'_>, known: Known) -> Is {
        let print = print(s);
        if let Some(first) = self.seen.get(&print) {
            if is_copy(first, ts, s, known) {
                let same = first.known.connection == known.connection && known.connection != 0;
                return if same { Is::Copy } else { Is::Translated(first.known.connection) };
            }
        }
        if self.order.len() == MOST {
            if let Some(old) = self.order.pop_front() {
                self.seen.remove(&old);
            }
        }
        // Of packets that look the same the last one counts, and goes when the first of them would.
        if self.seen.insert(print, Seen { ts, place: s.place, known }).is_none() {
            self.order.push_back(print);
        }
        Is::New
    }

    /// Says the connection of a packet that was new.
    pub fn belongs_to(&mut self, s: &Segment<'_>, connection: i64) {
        if let Some(seen) = self.seen.get_mut(&print(s)) {
            seen.known.connection = connection;
        }
    }
}

/// Data of one end that came last, to recognise it where a card or the kernel cut it into segments or joined them on its way.
#[derive(Debug, Default)]
pub struct Parts(VecDeque<Part>);

#[derive(Debug)]
struct Part {
    ts: i64,
    seq: u32,
    length: u32,
    ack: u32,
    id: u16,
    stamps: Option<(u32, u32)>,
}

const MOST_PARTS: usize = 8;

impl Parts {
    /// Data that was new.
    pub fn remember(&mut self, ts: i64, s: &Segment<'_>) {
        if self.0.len() == MOST_PARTS {
            self.0.pop_front();
        }
        let part = Part { ts, seq: s.seq, length: s.payload_len, ack: s.ack, id: s.id, stamps: s.stamps };
        self.0.push_back(part);
    }

    /// Whether these are bytes of one of them. Each packet that a segment is cut into has the next number.
    pub fn have(&self, ts: i64, s: &Segment<'_>) -> bool {
        self.0.iter().any(|part| {
            let into = s.seq.wrapping_sub(part.seq);
            let is_within = into < part.length && into + s.payload_len <= part.length;
            let is_around = into == 0 && s.payload_len > part.length;
            let numbers = u32::from(s.id.wrapping_sub(part.id));
            (is_within || is_around)
                && s.payload_len != part.length
                && s.id != 0
                && s.stamps.is_some()
                && (s.stamps, s.ack) == (part.stamps, part.ack)
                && numbers <= into / s.payload_len.max(1)
                && ts.saturating_sub(part.ts).saturating_abs() <= NUMBERED_NS
        })
    }
}

fn is_copy(first: &Seen, ts: i64, s: &Segment<'_>, known: Known) -> bool {
    let age = ts.saturating_sub(first.ts).saturating_abs();
    // A sender that gives every packet the same number tells nothing by it.
    let is_numbered = s.id != 0 && first.known.last_id != Some(s.id);
    let elsewhere = first.place != 0 && s.place != 0 && first.place != s.place;
    if first.known.connection == known.connection && known.connection != 0 {
        return is_numbered && age <= NUMBERED_NS
            || age <= UNNUMBERED_NS && (elsewhere || first.known.others == known.others);
    }
    // Under other addresses the time stamps have to say it too.
    first.known.connection != 0
        && s.stamps.is_some()
        && age <= NUMBERED_NS
        && (is_numbered || elsewhere && age <= UNNUMBERED_NS)
}
