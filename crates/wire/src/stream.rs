//! One direction of a connection: its bytes in order, and what was sent again, came out of order or was never seen.
//!
//! Terms. A segment is `sent again` if all of its data was seen before. It is `out of order` if it fills a hole in front of data that was
//! seen before: the packets changed places, or the first copy was lost in front of the place of the capture. A hole is a `gap` when the
//! other end acknowledges data behind it: the packet was there, but the capture has it not. Keep-alives count as none of these, and
//! neither does a FIN that is sent again alone: it is no data.

use crate::packet::{flag, Segment};

/// Data ahead of a hole that is kept until the hole is filled.
const MOST_AHEAD_BYTES: usize = 1 << 20;
const MOST_AHEAD: usize = 256;
/// A jump beyond this is no hole but another connection, or damage.
const MOST_HOLE: u32 = 1 << 28;

/// Counts of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sent {
    pub packets: u64,
    pub wire_bytes: u64,
    pub payload_bytes: u64,
    pub segments: u64,
    pub retransmits: u64,
    pub out_of_order: u64,
    /// Of these, segments that came later than packets change places: the first copy was lost in front of the place of the capture.
    pub late: u64,
    pub keepalives: u64,
    /// Holes, and their bytes.
    pub gaps: u64,
    pub gap_bytes: u64,
    /// Segments of which the capture has only the first bytes.
    pub cut: u64,
    /// Times that the receiver of the other direction closed its window.
    pub zero_windows: u64,
    pub mss: u16,
}

/// What a segment brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brought {
    /// Data was sent again, or the SYN.
    pub again: bool,
    /// It filled a hole: since then what is behind the hole has waited.
    pub hole_since: Option<i64>,
}

/// Bytes of the stream, in order: those that were captured, and how many follow that were not.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// When the segment was seen.
    pub ts: i64,
    #[allow(missing_docs)]
    pub bytes: &'a [u8],
    /// Bytes behind these that the capture has not.
    pub unseen: u32,
}

struct EarlySegment {
    seq: u32,
    ts: i64,
    bytes: Vec<u8>,
    unseen: u32,
}

/// One direction.
#[derive(Default)]
pub struct Stream {
    /// Sequence number of the next byte; none before the first packet.
    next: Option<u32>,
    ahead: Vec<EarlySegment>,
    ahead_bytes: usize,
    /// The window of this end is closed.
    closed_window: bool,
    /// Counts.
    pub sent: Sent,
}

/// How far `a` is behind `b` in the circle of sequence numbers; negative when it is before.
fn from_to(b: u32, a: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

impl Stream {
    /// Sequence number of the next byte.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Takes a segment of this direction and hands over what is now in order.
    pub fn take(&mut self, ts: i64, wire_len: u32, s: &Segment<'_>, on: &mut impl FnMut(Piece<'_>)) -> Brought {
        self.sent.packets += 1;
        self.sent.wire_bytes += u64::from(wire_len);
        self.sent.payload_bytes += u64::from(s.payload_len);
        self.sent.mss = self.sent.mss.max(s.mss);
        let closed = s.window == 0 && s.flags & (flag::RST | flag::SYN) == 0;
        self.sent.zero_windows += u64::from(closed && !self.closed_window);
        self.closed_window = closed;
        if s.flags & flag::RST != 0 {
            return Brought::default(); // what it carries is no data
        }
        let unseen = s.payload_len - s.payload.len() as u32;
        self.sent.cut += u64::from(unseen > 0);
        self.sent.segments += u64::from(s.payload_len > 0);
        // SYN and FIN take a number each.
        let seq = if s.flags & flag::SYN != 0 { s.seq.wrapping_add(1) } else { s.seq };
        let length = i64::from(s.payload_len);
        let marks = i64::from(s.flags & flag::FIN != 0);
        let Some(next) = self.next else {
            self.next = Some(seq.wrapping_add((length + marks) as u32));
            if length > 0 {
                on(Piece { ts, bytes: s.payload, unseen });
            }
            return Brought::default();
        };
        let at = from_to(next, seq);
        if s.flags & flag::SYN != 0 {
            let again = at <= 0;
            self.sent.retransmits += u64::from(again);
            return Brought { again, hole_since: None };
        }
        if at == -1 && length <= 1 && marks == 0 {
            self.sent.keepalives += 1;
            return Brought::default();
        }
        if length + marks == 0 {
            return Brought::default();
        }
        if at < 0 {
            self.sent.retransmits += u64::from(length > 0);
            let new = at + length + marks;
            if new > 0 {
                // The first part was seen, the rest is new.
                let old = (-at) as usize;
                let bytes = s.payload.get(old..).unwrap_or(&[]);
                let data = (length - (-at)).max(0) as u32;
                self.next = Some(next.wrapping_add(new as u32));
                if data > 0 {
                    on(Piece { ts, bytes, unseen: data.saturating_sub(bytes.len() as u32) });
                }
                self.drain(on);
            }
            return Brought { again: length > 0, hole_since: None };
        }
        if at > 0 {
            let known = length > 0 && self.ahead.iter().any(|a| a.seq == seq);
            if known {
                self.sent.retransmits += 1;
            } else if length > 0 {
                self.keep(ts, seq, s.payload, unseen, on);
            }
            return Brought { again: known, hole_since: None };
        }
        let hole_since = self.ahead.iter().map(|ahead| ahead.ts).min().filter(|_| length > 0);
        self.sent.out_of_order += u64::from(hole_since.is_some());
        self.next = Some(next.wrapping_add((length + marks) as u32));
        if length > 0 {
            on(Piece { ts, bytes: s.payload, unseen });
        }
        self.drain(on);
        Brought { again: false, hole_since }
    }

    /// The other end acknowledges everything before `ack`: what was not seen of it never comes.
    pub fn acknowledged(&mut self, ts: i64, ack: u32, on: &mut impl FnMut(Piece<'_>)) {
        while let Some(next) = self.next {
            let first = self.ahead.iter().map(|a| from_to(next, a.seq)).min();
            let hole = first.unwrap_or(i64::MAX).min(from_to(next, ack));
            if hole <= 0 {
                return;
            }
            self.skip(ts, hole as u32, on);
        }
    }

    fn skip(&mut self, ts: i64, hole: u32, on: &mut impl FnMut(Piece<'_>)) {
        self.sent.gaps += 1;
        self.sent.gap_bytes += u64::from(hole);
        self.next = self.next.map(|next| next.wrapping_add(hole));
        on(Piece { ts, bytes: &[], unseen: hole });
        self.drain(on);
    }

    fn keep(&mut self, ts: i64, seq: u32, bytes: &[u8], unseen: u32, on: &mut impl FnMut(Piece<'_>)) {
        let Some(next) = self.next else { return };
        if seq.wrapping_sub(next) > MOST_HOLE {
            self.ahead.clear();
            self.ahead_bytes = 0;
            self.next = Some(seq); // the same ports used again without the beginning having been seen
            self.sent.gaps += 1;
            on(Piece { ts, bytes: &[], unseen: u32::MAX });
            self.next = Some(seq.wrapping_add(bytes.len() as u32 + unseen));
            on(Piece { ts, bytes, unseen });
            return;
        }
        self.ahead_bytes += bytes.len();
        self.ahead.push(EarlySegment { seq, ts, bytes: bytes.to_vec(), unseen });
        while self.ahead.len() > MOST_AHEAD || self.ahead_bytes > MOST_AHEAD_BYTES {
            let Some(next) = self.next else { return };
            let Some(hole) = self.ahead.iter().map(|a| from_to(next, a.seq)).min() else { return };
            self.skip(ts, hole.max(0) as u32, on);
        }
    }

    /// Hands over what was kept and is next now.
    fn drain(&mut self, on: &mut impl FnMut(Piece<'_>)) {
        while let Some(next) = self.next {
            let Some(place) = self.ahead.iter().position(|a| from_to(next, a.seq) <= 0) else { return };
            let ahead = self.ahead.swap_remove(place);
            self.ahead_bytes -= ahead.bytes.len();
            let old = from_to(ahead.seq, next).max(0);
            let length = ahead.bytes.len() as i64 + i64::from(ahead.unseen);
            if old >= length {
                continue;
            }
            let bytes = ahead.bytes.get(old as usize..).unwrap_or(&[]);
            let unseen = (length - old) as u32 - bytes.len() as u32;
            self.next = Some(next.wrapping_add((length - old) as u32));
            on(Piece { ts: ahead.ts, bytes, unseen });
        }
    }
}
