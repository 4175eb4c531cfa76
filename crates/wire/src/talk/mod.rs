//! What two ends say to each other: round trips, and what the protocol tells of them.

pub mod about;
mod asked;
pub mod frame;
mod hello;
pub mod mysql;
mod mysql_login;
mod portals;
pub mod postgres;
mod sasl;
mod squeezed;
pub mod trip;

use crate::stream::Piece;
use about::{About, Encryption};
use mysql::MySql;
use postgres::Postgres;
use trip::{Purpose, Trip};

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Client,
    Server,
}

/// What is spoken.
#[derive(Debug)]
enum Speech {
    /// Not enough was heard; the first piece of the client was looked at or not.
    Unknown {
        heard: bool,
    },
    Postgres(Box<Postgres>),
    MySql(Box<MySql>),
    /// Encrypted: only sizes and times. `of`: what it was before.
    Tls {
        of: &'static str,
    },
}

/// A conversation over one connection.
pub struct Talk {
    speech: Speech,
    /// Whether the beginning of the connection was seen.
    from_start: bool,
    trip: Option<Trip>,
    last_answer: Option<i64>,
    /// Since the client spoke last, the server has answered.
    answered: bool,
    /// Bytes of the server that nobody asked for.
    pub unasked_bytes: u64,
    /// What was learned.
    pub about: About,
}

impl Talk {
    /// `from_start`: the connection was seen to be made.
    pub fn new(from_start: bool) -> Talk {
        Talk {
            speech: Speech::Unknown { heard: false },
            from_start,
            trip: None,
            last_answer: None,
            answered: false,
            unasked_bytes: 0,
            about: About::default(),
        }
    }

    /// What is spoken, as the tables name it.
    pub fn protocol(&self) -> &'static str {
        match &self.speech {
            Speech::Unknown { .. } => "unknown",
            Speech::Postgres(_) => "postgresql",
            Speech::MySql(_) => "mysql",
            Speech::Tls { of } => of,
        }
    }

    /// Messages are read: statements, rows and transactions are counted.
    pub fn is_read(&self) -> bool {
        matches!(self.speech, Speech::Postgres(_) | Speech::MySql(_))
    }

    fn recognise(&mut self, side: Side, bytes: &[u8]) {
        if !matches!(self.speech, Speech::Unknown { .. }) || bytes.is_empty() {
            return;
        }
        if hello::is_handshake(bytes) || (!self.from_start && hello::is_data(bytes)) {
            // Without a request before it, as with sslnegotiation=direct: the client names the protocol.
            let asked = self.from_start && side == Side::Client;
            self.about.tls = if asked { Encryption::Asked } else { Encryption::Accepted };
            self.speech = Speech::Tls { of: if hello::is_for_postgres(bytes) { "postgresql" } else { "tls" } };
        } else if side == Side::Client && postgres::is_startup(bytes) {
            self.speech = Speech::Postgres(Box::new(Postgres::new(true)));
        } else if side == Side::Server && (mysql::is_greeting(bytes) || self.from_start && mysql::is_refusal(bytes)) {
            self.speech = Speech::MySql(Box::new(MySql::new(true)));
        } else if side == Side::Client && !self.from_start && postgres::is_chain(bytes, true, true) {
            self.speech = Speech::Postgres(Box::new(Postgres::new(false)));
        } else if side == Side::Client && !self.from_start && mysql::is_command(bytes) {
            self.speech = Speech::MySql(Box::new(MySql::new(false)));
        } else if side == Side::Client {
            self.speech = Speech::Unknown { heard: true };
        }
    }

    /// Takes bytes in the order of the stream. `on` gets round trips that have ended.
    pub fn take(&mut self, side: Side, piece: Piece<'_>, on: &mut impl FnMut(Trip)) {
        let length = piece.bytes.len() as u64 + u64::from(piece.unseen);
        // In the middle of a connection, each request may be the first that can be recognised.
        if !matches!(self.speech, Speech::Unknown { heard: true }) || (!self.from_start && self.answered) {
            self.recognise(side, piece.bytes);
        }
        if matches!(self.speech, Speech::Tls { .. }) && self.about.tls == Encryption::Asked && side == Side::Server {
            let accepted = hello::is_handshake(piece.bytes);
            self.about.tls = if accepted { Encryption::Accepted } else { Encryption::Refused };
        }
        match side {
            Side::Client => self.client(piece, length, on),
            Side::Server => self.server(piece, length, on),
        }
        self.look_for_encryption();
    }

    fn look_for_encryption(&mut self) {
        let of = match &self.speech {
            Speech::Postgres(state) if state.encrypted => "postgresql",
            Speech::MySql(state) if state.encrypted => "mysql",
            _ => return,
        };
        self.speech = Speech::Tls { of };
    }

    fn client(&mut self, piece: Piece<'_>, length: u64, on: &mut impl FnMut(Trip)) {
        let turn = match &mut self.speech {
            Speech::Postgres(state) if state.is_streaming() => {
                return state.client(piece.bytes, piece.unseen, false, &mut Trip::default(), &mut self.about);
            }
            _ if self.trip.is_none() => true,
            Speech::Postgres(state) => state.is_clients_turn(self.answered),
            _ => self.answered,
        };
        if turn {
            self.finish(on);
            self.trip = Some(Trip::begin(piece.ts, self.last_answer));
        }
        let Some(trip) = &mut self.trip else { return };
        trip.ask(piece.ts, length);
        self.answered = false;
        match &mut self.speech {
            Speech::Postgres(state) => state.client(piece.bytes, piece.unseen, turn, trip, &mut self.about),
            Speech::MySql(state) => state.client(piece.bytes, piece.unseen, turn, trip, &mut self.about),
            _ => {}
        }
        // What is not answered is no request: the end of a COPY that has ended, or a report of a standby.
        let is_none = matches!(&self.speech, Speech::Postgres(state) if state.is_idle() || state.is_streaming());
        self.trip.take_if(|trip| is_none && trip.purpose == Purpose::Unknown);
    }

    fn server(&mut self, piece: Piece<'_>, length: u64, on: &mut impl FnMut(Trip)) {
        let first = !std::mem::replace(&mut self.answered, true);
        let mut nobody = Trip::default();
        let trip = match &mut self.trip {
            Some(trip) => {
                trip.answer(piece.ts, length);
                self.last_answer = trip.last;
                trip
            }
            None => {
                self.unasked_bytes += length;
                &mut nobody
            }
        };
        let complete = match &mut self.speech {
            Speech::Postgres(state) => {
                state.server(piece.ts, piece.bytes, piece.unseen, first, trip, &mut self.about);
                state.is_complete()
            }
            Speech::MySql(state) => {
                state.server(piece.ts, piece.bytes, piece.unseen, trip, &mut self.about);
                false
            }
            _ => false,
        };
        if complete {
            self.finish(on);
        }
    }

    /// A segment of the present round trip was sent again.
    pub fn sent_again(&mut self) {
        if let Some(trip) = &mut self.trip {
            trip.retransmits += 1;
        }
    }

    /// Data of the present round trip was held back.
    pub fn held(&mut self, ns: i64) {
        if let Some(trip) = &mut self.trip {
            trip.held_ns = trip.held_ns.saturating_add(ns);
        }
    }

    /// Ends the present round trip, as at the end of the connection.
    pub fn finish(&mut self, on: &mut impl FnMut(Trip)) {
        if let Some(mut trip) = self.trip.take() {
            if let Speech::MySql(state) = &mut self.speech {
                state.finish(&mut trip);
            }
            on(trip);
        }
    }
}
