//! One TCP connection: its two streams, how it was made and ended, and the conversation over it.

use crate::packet::{flag, End, Segment};
use crate::stream::Stream;
use crate::talk::trip::Trip;
use crate::talk::{Side, Talk};

/// An acknowledgement that came later than this was delayed by a timer (TCP_DELACK_MIN is 40 ms), not by the way.
const LATE_ACK_NS: i64 = 20_000_000;
/// Data that follows such an acknowledgement within this time had waited for it.
const AT_ONCE_NS: i64 = 5_000_000;

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
    pub suspended: u64,
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
        self.syn.and(self.talk.about.ready_ts).map(|ready| ready - self.from)
    }

    /// Data that waited for an acknowledgement, both ways: how often and how long.
    pub fn held(&self) -> (u64, i64) {
        (self.acks[0].held + self.acks[1].held, self.acks[0].held_ns.saturating_add(self.acks[1].held_ns))
    }

    /// Takes a packet that `side` sent.
    pub fn take(&mut self, ts: i64, wire_len: u32, s: &Segment<'_>, side: Side, on: &mut impl FnMut(Trip)) {
        self.to = self.to.max(ts);
        self.handshake(ts, s, side);
        let (mine, other) = (place(side), 1 - place(side));
        let theirs = if side == Side::Client { Side::Server } else { Side::Client };
        let (talk, streams, trips) = (&mut self.talk, &mut self.streams, &mut self.trips);
        let mut ended = |trip: Trip| {
            trips.add(&trip);
            on(trip);
        };
        if s.flags & flag::ACK != 0 && s.flags & flag::RST == 0 {
            streams[other].acknowledged(ts, s.ack, &mut |piece| talk.take(theirs, piece, &mut ended));
        }
        let next = streams[mine].next();
        let brought = streams[mine].take(ts, wire_len, s, &mut |piece| talk.take(side, piece, &mut ended));
        if brought.again {
            talk.sent_again();
        }
        if let Some(ns) = self.time_acks(ts, s, mine, brought.again, next) {
            self.talk.held(ns);
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
        self.suspended += u64::from(trip.suspended);
        self.rows += trip.rows;
        self.transactions += u64::from(trip.transactions);
        self.errors += u64::from(trip.errors);
        self.pipelined += u64::from(trip.pipelined);
        self.answer_ns = self.answer_ns.saturating_add((first - trip.request_last).max(0));
        self.transfer_ns = self.transfer_ns.saturating_add((last - first).max(0));
        self.client_ns = self.client_ns.saturating_add(trip.client_gap.unwrap_or(0));
    }
}
