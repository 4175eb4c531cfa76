//! One TCP connection: its two streams, how it was made and ended, and the conversation over it.

use crate::copies::{Known as Before, Parts};
use crate::packet::{flag, End, Segment};
use crate::stream::{Brought, Piece, Stream};
use crate::talk::trip::Trip;
use crate::talk::{Side, Talk};
use crate::waits::Waits;

/// An acknowledgement that came later than this was delayed by a timer (TCP_DELACK_MIN is 40 ms), not by the way.
const LATE_ACK_NS: i64 = 20_000_000;
/// Data that follows such an acknowledgement within this time had waited for it.
const AT_ONCE_NS: i64 = 5_000_000;
/// A hole that is filled within this time, or within a round trip, was made by packets that changed places (as tshark has it).
const CHANGED_PLACES_NS: i64 = 3_000_000;
/// Of the transactions: if messages were lost in more places, what is counted in them is too little to be told.
const MOST_LOST: f64 = 0.01;

/// How it was told which end is the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Known {
    Syn,
    Port,
    Guess,
}

impl Known {
    /// As the tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Known::Syn => "handshake",
            Known::Port => "port",
            Known::Guess => "guess",
        }
    }
}

/// Times of acknowledgements of what one end sends.
#[derive(Debug, Default)]
struct Acks {
    /// Data that waits for its acknowledgement: its end, and when it was sent.
    timed: Option<(u32, i64)>,
    least_ns: Option<i64>,
    /// An acknowledgement without data that came late: when, and how late.
    late: Option<(i64, i64)>,
    held: u64,
    held_ns: i64,
}

/// Sums of the round trips of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Trips {
    pub setup: u64,
    pub answered: u64,
    pub unanswered: u64,
    pub statements: u64,
    pub fetches: u64,
    pub continued: u64,
    pub suspended: u64,
    pub cursors: u64,
    pub cursor_fetches: u64,
    pub rows: u64,
    pub transactions: u64,
    pub errors: u64,
    pub pipelined: u64,
    pub answer_ns: i64,
    pub transfer_ns: i64,
    pub client_ns: i64,
}

/// A connection.
pub struct Connection {
    /// Its number, from 1.
    pub id: i64,
    #[allow(missing_docs)]
    pub client: End,
    #[allow(missing_docs)]
    pub server: End,
    /// How that is known.
    pub known: Known,
    /// What the client sends, and what the server sends.
    pub streams: [Stream; 2],
    /// What they say.
    pub talk: Talk,
    /// Its first and last packet.
    pub from: i64,
    #[allow(missing_docs)]
    pub to: i64,
    syn: Option<(i64, u32)>,
    syn_again: bool,
    syn_ack: bool,
    /// From SYN to the acknowledgement of its answer: a whole round trip, wherever the capture was made.
    pub handshake_ns: Option<i64>,
    fins: [bool; 2],
    /// Who reset it.
    pub reset: Option<Side>,
    acks: [Acks; 2],
    waits: Waits,
    /// Of each end the identification of its last packet, and its last data.
    last_ids: [Option<u16>; 2],
    parts: [Parts; 2],
    /// Packets of each end that were copies of others.
    pub copies: [u64; 2],
    /// Places where messages could not be read any more because segments were not captured whole.
    pub cut_messages: u64,
    /// Sums.
    pub trips: Trips,
}

fn place(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

impl Connection {
    /// From its first packet.
    pub fn new(id: i64, client: End, server: End, known: Known, ts: i64, from_start: bool) -> Connection {
        Connection {
            id,
            client,
            server,
            known,
            streams: Default::default(),
            talk: Talk::new(from_start),
            from: ts,
            to: ts,
            syn: None,
            syn_again: false,
            syn_ack: false,
            handshake_ns: None,
            fins: [false; 2],
            reset: None,
            acks: Default::default(),
            waits: Waits::default(),
            last_ids: [None; 2],
            parts: Default::default(),
            copies: [0; 2],
            cut_messages: 0,
            trips: Trips::default(),
        }
    }

    /// Whether a SYN with this number begins another connection between the same ports.
    pub fn is_other(&self, s: &Segment<'_>) -> bool {
        s.flags & (flag::SYN | flag::ACK) == flag::SYN && self.syn.is_none_or(|(_, seq)| seq != s.seq)
    }

    /// Both ends have closed it, or one has reset it.
    pub fn is_closed(&self) -> bool {
        self.reset.is_some() || self.fins == [true; 2]
    }

    /// How it ended, as the tables name it.
    pub fn end_name(&self) -> &'static str {
        match (self.reset, self.fins) {
            (Some(Side::Server), _) if self.handshake_ns.is_none() && self.syn.is_some() && !self.syn_ack => "refused",
            (Some(Side::Client), _) => "reset by client",
            (Some(Side::Server), _) => "reset by server",
            (None, [true, true]) => "closed",
            (None, [true, false]) => "half closed by client",
            (None, [false, true]) => "half closed by server",
            (None, [false, false]) if self.syn.is_some() && !self.syn_ack => "no answer",
            (None, [false, false]) => "open",
        }
    }

    /// Whether its first packet was that of the handshake.
    pub fn is_from_start(&self) -> bool {
        self.syn.is_some()
    }

    /// The shortest times in which data was acknowledged, both ways together: the round trip is at most that.
    pub fn least_ack_ns(&self) -> Option<i64> {
        Some(self.acks[0].least_ns?.saturating_add(self.acks[1].least_ns?))
    }

    /// From the first packet to the first moment at which the server was ready for a query.
    pub fn connect_ns(&self) -> Option<i64> {
        self.syn.and(self.talk.about.ready_ts).map(|ready| (ready - self.from).max(0))
    }

    /// Data that waited for an acknowledgement, both ways: how often and how long.
    pub fn held(&self) -> (u64, i64) {
        (self.acks[0].held + self.acks[1].held, self.acks[0].held_ns.saturating_add(self.acks[1].held_ns))
    }

    /// Time for which data waited that was sent again, from its first sending to its acknowledgement.
    pub fn again_ns(&self) -> i64 {
        self.waits.ns
    }

    /// Whether what messages say was counted well enough: they can be read, and hardly any was lost.
    pub fn is_counted(&self) -> bool {
        let lost = self.talk.about.lost_places as f64;
        self.talk.is_read() && lost <= MOST_LOST * self.trips.transactions.max(self.trips.answered) as f64
    }

    /// What tells whether the next packet of a side is a copy.
    pub fn before(&self, side: Side) -> Before {
        let others = self.streams[1 - place(side)].sent.packets;
        Before { connection: self.id, others, last_id: self.last_ids[place(side)] }
    }

    /// Whether its data was seen before as a part of a larger segment, or in smaller ones, that a card or the kernel cut or joined.
    pub fn is_part(&self, ts: i64, s: &Segment<'_>, side: Side) -> bool {
        let end = s.seq.wrapping_add(s.payload_len);
        let next = self.streams[place(side)].next();
        s.payload_len > 0
            && next.is_some_and(|next| next.wrapping_sub(end) as i32 >= 0)
            && self.parts[place(side)].have(ts, s)
    }

    /// A copy of a packet that `side` sent.
    pub fn copied(&mut self, side: Side) {
        self.copies[place(side)] += 1;
    }

    /// Takes a packet that `side` sent.
    pub fn take(&mut self, ts: i64, wire_len: u32, s: &Segment<'_>, side: Side, on: &mut impl FnMut(Trip)) {
        // Where a stream has packets out of the order of time, no time of an answer is negative.
        let ts = ts.max(self.to);
        self.to = ts;
        self.handshake(ts, s, side);
        let (mine, other) = (place(side), 1 - place(side));
        let theirs = if side == Side::Client { Side::Server } else { Side::Client };
        let (talk, streams, trips) = (&mut self.talk, &mut self.streams, &mut self.trips);
        let cut_messages = &mut self.cut_messages;
        let mut ended = |trip: Trip| {
            trips.add(&trip);
            on(trip);
        };
        let mut heard = |side: Side, was_cut: bool, piece: Piece<'_>| {
            let lost = talk.about.lost_places;
            let has_unseen = piece.unseen > 0;
            talk.take(side, piece, &mut ended);
            if was_cut && has_unseen {
                *cut_messages += talk.about.lost_places - lost;
            }
        };
        if s.flags & flag::ACK != 0 && s.flags & flag::RST == 0 {
            let was_cut = streams[other].sent.cut > 0;
            streams[other].acknowledged(ts, s.ack, &mut |piece| heard(theirs, was_cut, piece));
            self.waits.acknowledged(other, ts, s.ack);
        }
        let next = streams[mine].next();
        let was_cut = streams[mine].sent.cut > 0 || s.payload.len() < s.payload_len as usize;
        let brought = streams[mine].take(ts, wire_len, s, &mut |piece| heard(side, was_cut, piece));
        if brought.again {
            self.talk.sent_again();
        }
        self.time_losses(ts, s, mine, brought);
        if let Some(ns) = self.time_acks(ts, s, mine, brought.again, next) {
            self.talk.held(ns);
        }
        self.last_ids[mine] = Some(s.id);
        if s.payload_len > 0 && !brought.again {
            self.parts[mine].remember(ts, s);
        }
        self.fins[mine] |= s.flags & flag::FIN != 0;
        if s.flags & flag::RST != 0 {
            self.reset.get_or_insert(side);
        }
    }

    /// Ends the conversation.
    pub fn finish(&mut self, on: &mut impl FnMut(Trip)) {
        let trips = &mut self.trips;
        self.talk.finish(&mut |trip| {
            trips.add(&trip);
            on(trip);
        });
        self.waits.finish();
        self.parts = Default::default();
    }

    /// Since when data waits that was sent again, or whose first copy was lost in front of the place of the capture.
    fn time_losses(&mut self, ts: i64, s: &Segment<'_>, mine: usize, brought: Brought) {
        let is_syn = s.flags & flag::SYN != 0;
        if s.flags & flag::RST != 0 || !is_syn && s.payload_len == 0 {
            return;
        }
        let end = s.seq.wrapping_add(s.payload_len).wrapping_add(u32::from(is_syn));
        if brought.again {
            let has_answers = is_syn || self.streams[1 - mine].sent.packets > 0;
            self.waits.sent_again(mine, ts, s.seq, end, has_answers);
        } else if let Some(since) = brought.hole_since {
            if ts.saturating_sub(since) > self.handshake_ns.unwrap_or(0).max(CHANGED_PLACES_NS) {
                self.streams[mine].sent.late += 1;
                self.waits.lost(mine, since, ts, end);
            }
        }
        self.waits.sent(mine, ts, end);
    }

    fn handshake(&mut self, ts: i64, s: &Segment<'_>, side: Side) {
        match (side, s.flags & flag::SYN != 0) {
            (Side::Client, true) => match &mut self.syn {
                None => self.syn = Some((ts, s.seq)),
                Some(_) => self.syn_again = true,
            },
            (Side::Server, true) => self.syn_ack = true,
            (Side::Client, false) if self.syn_ack && self.handshake_ns.is_none() && s.flags & flag::RST == 0 => {
                if let (Some((began, _)), false) = (self.syn, self.syn_again) {
                    self.handshake_ns = Some((ts - began).max(0));
                }
            }
            _ => {}
        }
    }

    /// How long data of this segment had been held back, if it had.
    fn time_acks(&mut self, ts: i64, s: &Segment<'_>, mine: usize, again: bool, next: Option<u32>) -> Option<i64> {
        let has_data = s.payload_len > 0;
        let other = 1 - mine;
        if s.flags & flag::ACK != 0 {
            let acks = &mut self.acks[other];
            if let Some((end, sent)) = acks.timed {
                if s.ack.wrapping_sub(end) as i32 >= 0 {
                    let took = (ts - sent).max(0);
                    acks.timed = None;
                    acks.least_ns = Some(acks.least_ns.map_or(took, |least| least.min(took)));
                    acks.late = (!has_data && took >= LATE_ACK_NS).then_some((ts, took));
                }
            }
            if has_data {
                acks.late = None;
            }
        }
        if !has_data {
            return None;
        }
        let acks = &mut self.acks[mine];
        let late = acks.late.take();
        if again {
            acks.timed = None; // which copy is acknowledged is not known
        } else if acks.timed.is_none() && next.is_none_or(|next| next == s.seq) {
            acks.timed = Some((s.seq.wrapping_add(s.payload_len), ts));
        }
        let (at, took) = late.filter(|(at, _)| !again && ts - at <= AT_ONCE_NS)?;
        debug_assert!(at <= ts || took >= 0);
        acks.held += 1;
        acks.held_ns = acks.held_ns.saturating_add(took);
        Some(took)
    }
}

impl Trips {
    fn add(&mut self, trip: &Trip) {
        let (Some(first), Some(last)) = (trip.first, trip.last) else {
            self.unanswered += u64::from(!trip.purpose.is_setup());
            return;
        };
        if trip.purpose.is_setup() {
            self.setup += 1;
            return;
        }
        self.answered += 1;
        self.statements += u64::from(trip.statements);
        self.fetches += u64::from(trip.fetches);
        self.continued += u64::from(trip.continued);
        self.suspended += u64::from(trip.suspended);
        self.cursors += u64::from(trip.cursors);
        self.cursor_fetches += u64::from(trip.cursor_fetches);
        self.rows += trip.rows;
        self.transactions += u64::from(trip.transactions);
        self.errors += u64::from(trip.errors);
        self.pipelined += u64::from(trip.pipelined);
        self.answer_ns = self.answer_ns.saturating_add((first - trip.request_last).max(0));
        self.transfer_ns = self.transfer_ns.saturating_add((last - first).max(0));
        self.client_ns = self.client_ns.saturating_add(trip.client_gap.unwrap_or(0));
    }
}
