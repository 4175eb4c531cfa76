//! The protocol of PostgreSQL, version 3: who has the turn, what is asked, which transactions end.
//!
//! Texts of statements, values and passwords are passed over by their length and never looked at.

use std::collections::VecDeque;

use super::about::{About, Auth, Encryption};
use super::frame::{Body, Frame, Lost, Message, Messages};
use super::trip::{Purpose, Trip};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const MAJOR_3: u32 = 3;
/// The longest first message, as the server limits it.
const MOST_STARTUP: u32 = 10_000;
const MOST_MESSAGE: u32 = 1 << 30;
/// Requests of one pipeline that are followed; of the others it is not known whether they run statements.
const MOST_UNITS: usize = 1 << 16;
const CLIENT_KINDS: &[u8] = b"BCDEFHPQSXcdfp";
const SERVER_KINDS: &[u8] = b"123ACDEGHIKNRSTVWZcdnstv";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was said, or encryption was refused.
    Start,
    /// The client asked for encryption; the answer is one byte.
    Asked(Asked),
    /// A first message was sent.
    Login,
    /// Queries.
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Tls,
    Gss,
}

/// The state of a connection.
#[derive(Debug)]
pub struct Postgres {
    phase: Phase,
    client: Frame,
    server: Frame,
    /// A direction cannot be read at present.
    client_lost: bool,
    server_lost: bool,
    /// Query and Sync that wait for ReadyForQuery.
    pending: u32,
    /// The server waits for the client although it owes it an answer.
    clients_turn: bool,
    flushed: bool,
    /// Messages were sent that only a Sync or Flush to come makes the server answer.
    unsynced: bool,
    in_transaction: bool,
    /// Statements were sent since the last Query or Sync.
    worked: bool,
    /// Of each Query and Sync that waits, whether it has statements to run.
    units: VecDeque<bool>,
    /// Statements were run in the present transaction.
    ran: bool,
    asked_password: bool,
    /// The rest of the connection is encrypted.
    pub encrypted: bool,
}

/// Whether bytes begin as a client's first message does.
pub fn is_startup(bytes: &[u8]) -> bool {
    let [a, b, c, d, e, f, g, h, ..] = bytes else { return false };
    let (length, code) = (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]));
    match code {
        SSL_REQUEST | GSS_REQUEST => length == 8,
        CANCEL_REQUEST => (16..=MOST_STARTUP).contains(&length),
        _ => code >> 16 == MAJOR_3 && (9..=MOST_STARTUP).contains(&length),
    }
}

/// Whether bytes of a segment are a chain of messages: kinds and lengths that fit, and `whole` also the end.
pub fn is_chain(mut bytes: &[u8], from_client: bool, whole: bool) -> bool {
    let kinds = if from_client { CLIENT_KINDS } else { SERVER_KINDS };
    let mut seen = false;
    loop {
        let [kind, a, b, c, d, rest @ ..] = bytes else { return seen && (bytes.is_empty() || !whole) };
        let length = u32::from_be_bytes([*a, *b, *c, *d]);
        if !kinds.contains(kind) || !(4..=MOST_MESSAGE).contains(&length) {
            return false;
        }
        seen = true;
        match rest.get(length as usize - 4..) {
            Some(rest) => bytes = rest,
            None => return !whole,
        }
    }
}

impl Postgres {
    /// From the first byte of a connection, or from the middle of one.
    pub fn new(from_start: bool) -> Postgres {
        Postgres {
            phase: if from_start { Phase::Start } else { Phase::Ready },
            client: Frame::default(),
            server: Frame::default(),
            client_lost: !from_start,
            server_lost: !from_start,
            pending: 0,
            clients_turn: false,
            flushed: false,
            unsynced: false,
            in_transaction: false,
            worked: false,
            units: VecDeque::new(),
            ran: false,
            asked_password: false,
            encrypted: false,
        }
    }

    /// Whether what the client sends now begins a round trip. `answered`: the server has answered since the present one began.
    pub fn is_clients_turn(&self, answered: bool) -> bool {
        if self.client_lost || self.server_lost {
            return answered;
        }
        self.client.at_start() && (self.clients_turn || (self.pending == 0 && !self.flushed && !self.unsynced))
            || (self.flushed && answered)
    }

    /// Bytes of the client. `turn`: they begin a round trip.
    pub fn client(&mut self, bytes: &[u8], unseen: u32, turn: bool, trip: &mut Trip, about: &mut About) {
        if turn && self.client_lost && is_chain(bytes, true, false) {
            self.client_lost = false;
            self.client.reset();
            self.pending = 0;
            self.units.clear();
        }
        if turn {
            self.clients_turn = false;
            self.flushed = false;
            self.unsynced = false;
            if self.server_lost {
                self.pending = 0;
                self.units.clear();
            }
        }
        if self.client_lost {
            return;
        }
        let mut frame = std::mem::take(&mut self.client);
        let outcome = frame.feed(bytes, unseen, &mut Client { state: self, trip, about });
        self.client = frame;
        if outcome.is_err() {
            self.lose(about);
            self.client_lost = true;
        }
    }

    /// Bytes of the server. `turn`: the first since the client spoke.
    pub fn server(&mut self, ts: i64, mut bytes: &[u8], unseen: u32, turn: bool, trip: &mut Trip, about: &mut About) {
        if let (Phase::Asked(asked), Some((answer, rest))) = (self.phase, bytes.split_first()) {
            let encryption = if asked == Asked::Tls { &mut about.tls } else { &mut about.gss };
            self.phase = Phase::Start;
            self.clients_turn = true;
            match answer {
                b'S' | b'G' => {
                    *encryption = Encryption::Accepted;
                    self.encrypted = true;
                    return;
                }
                b'N' => {
                    *encryption = Encryption::Refused;
                    bytes = rest;
                    if bytes.is_empty() {
                        return;
                    }
                }
                _ => *encryption = Encryption::Refused, // an error message of a server that knows no such request
            }
        }
        if turn && self.server_lost && !self.client_lost && is_chain(bytes, false, false) {
            self.server_lost = false;
            self.server.reset();
        }
        if self.server_lost {
            return;
        }
        let mut frame = std::mem::take(&mut self.server);
        let outcome = frame.feed(bytes, unseen, &mut Server { ts, state: self, trip, about });
        self.server = frame;
        if outcome.is_err() {
            self.lose(about);
            self.server_lost = true;
        }
    }

    /// Everything that was asked is answered.
    pub fn is_complete(&self) -> bool {
        !self.client_lost
            && !self.server_lost
            && self.pending == 0
            && !self.flushed
            && !self.unsynced
            && self.phase == Phase::Ready
            || self.clients_turn
    }

    /// A Query or Sync was sent.
    fn wait(&mut self) {
        self.pending += 1;
        let worked = std::mem::take(&mut self.worked);
        if self.units.len() < MOST_UNITS {
            self.units.push_back(worked);
        }
    }

    fn lose(&mut self, about: &mut About) {
        about.lost_places += 1;
        self.flushed = false;
        self.unsynced = false;
        self.clients_turn = false;
    }
}

struct Client<'a> {
    state: &'a mut Postgres,
    trip: &'a mut Trip,
    about: &'a mut About,
}

impl Client<'_> {
    fn is_first(&self) -> bool {
        self.state.phase == Phase::Start
    }
}

impl Messages for Client<'_> {
    fn head_length(&self) -> usize {
        if self.is_first() {
            8
        } else {
            5
        }
    }

    fn body(&mut self, head: &[u8]) -> Result<Body, Lost> {
        match *head {
            [a, b, c, d, ..] if self.is_first() => {
                if !is_startup(head) {
                    return Err(Lost);
                }
                let length = u32::from_be_bytes([a, b, c, d]);
                // A key of CancelRequest is a secret: none of it is kept.
                let keep = if head[4..] == CANCEL_REQUEST.to_be_bytes() { 0 } else { super::frame::MOST_KEPT };
                Ok(Body { length: u64::from(length - 8), keep })
            }
            [kind, a, b, c, d] => {
                let length = u32::from_be_bytes([a, b, c, d]);
                if !CLIENT_KINDS.contains(&kind) || !(4..=MOST_MESSAGE).contains(&length) {
                    return Err(Lost);
                }
                Ok(Body { length: u64::from(length - 4), keep: 0 })
            }
            _ => Err(Lost),
        }
    }

    fn message(&mut self, m: &Message<'_>) -> bool {
        let state = &mut *self.state;
        let mut is_for = |purpose: Purpose| self.trip.purpose = self.trip.purpose.max(purpose);
        if state.phase == Phase::Start {
            let code = m.head.last_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
            match code {
                SSL_REQUEST | GSS_REQUEST => {
                    is_for(Purpose::Encryption);
                    state.phase = Phase::Asked(if code == SSL_REQUEST { Asked::Tls } else { Asked::Gss });
                }
                CANCEL_REQUEST => is_for(Purpose::Cancel),
                _ => {
                    is_for(Purpose::Startup);
                    state.phase = Phase::Login;
                    state.pending = 1;
                    self.about.startup(m.body);
                }
            }
            return true;
        }
        let open = state.pending > 0 && state.phase == Phase::Ready;
        match m.head.first().copied().unwrap_or(0) {
            b'Q' => {
                self.trip.pipelined += u32::from(open);
                self.trip.statements += 1;
                state.worked = true;
                state.wait();
                is_for(Purpose::Simple);
            }
            b'F' => {
                self.trip.statements += 1;
                state.worked = true;
                state.wait();
                is_for(Purpose::Command);
            }
            b'S' => {
                self.trip.pipelined += u32::from(open);
                state.wait();
                (state.flushed, state.unsynced) = (false, false);
                is_for(Purpose::Sync);
            }
            b'E' => {
                self.trip.statements += 1;
                (state.worked, state.unsynced) = (true, true);
                let rows = m.tail.map_or(0, i32::from_be_bytes);
                self.trip.fetches += u32::from(rows > 0);
                is_for(if rows > 0 { Purpose::Fetch } else { Purpose::Extended });
            }
            b'P' | b'B' | b'D' | b'C' => {
                state.unsynced = true;
                is_for(Purpose::Prepare);
            }
            b'H' => (state.flushed, state.unsynced) = (true, false),
            b'd' | b'c' | b'f' => is_for(Purpose::CopyIn),
            b'X' => is_for(Purpose::Terminate),
            b'p' => {
                is_for(Purpose::Authentication);
                if state.asked_password && m.length > 1 {
                    self.about.password_readable = true;
                }
                state.asked_password = false;
            }
            _ => {}
        }
        true
    }
}

struct Server<'a> {
    ts: i64,
    state: &'a mut Postgres,
    trip: &'a mut Trip,
    about: &'a mut About,
}

impl Messages for Server<'_> {
    fn head_length(&self) -> usize {
        5
    }

    fn body(&mut self, head: &[u8]) -> Result<Body, Lost> {
        let [kind, a, b, c, d] = *head else { return Err(Lost) };
        let length = u32::from_be_bytes([a, b, c, d]);
        if !SERVER_KINDS.contains(&kind) || !(4..=MOST_MESSAGE).contains(&length) {
            return Err(Lost);
        }
        let keep = match kind {
            b'R' => 64,
            b'Z' => 1,
            b'E' => 256,
            _ => 0,
        };
        Ok(Body { length: u64::from(length - 4), keep })
    }

    fn message(&mut self, m: &Message<'_>) -> bool {
        let state = &mut *self.state;
        match m.head.first().copied().unwrap_or(0) {
            b'D' => self.trip.rows += 1,
            b'Z' => {
                let status = m.body.first().copied().unwrap_or(b'I');
                if state.phase != Phase::Ready {
                    state.phase = Phase::Ready;
                    self.about.ready(self.ts);
                }
                state.pending = state.pending.saturating_sub(1);
                state.in_transaction = status != b'I';
                self.trip.in_transaction = state.in_transaction;
                state.ran |= state.units.pop_front().unwrap_or(false);
                if status == b'I' && std::mem::take(&mut state.ran) {
                    self.trip.transactions += 1;
                }
            }
            b'R' => {
                let code = m.body.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
                state.clients_turn = true;
                match code {
                    0 => {
                        state.clients_turn = false;
                        self.about.accepted();
                    }
                    2 | 6 => self.about.auth = Auth::Other,
                    3 => {
                        self.about.auth = Auth::Cleartext;
                        state.asked_password = true;
                    }
                    5 => self.about.auth = Auth::Md5,
                    7 | 9 => self.about.auth = Auth::Gss,
                    10 => {
                        let bound = m.body.windows(18).any(|w| w == b"SCRAM-SHA-256-PLUS");
                        self.about.auth = if bound { Auth::ScramPlus } else { Auth::Scram };
                    }
                    12 => state.clients_turn = false, // AuthenticationOk follows
                    _ => {}
                }
            }
            b'E' => {
                self.trip.errors += 1;
                self.about.error(m.body, state.phase != Phase::Ready);
            }
            b's' => self.trip.suspended += 1,
            b'G' | b'W' => {
                state.clients_turn = true;
                self.trip.purpose = self.trip.purpose.max(Purpose::CopyIn);
            }
            b'H' => self.trip.purpose = self.trip.purpose.max(Purpose::CopyOut),
            _ => {}
        }
        true
    }
}
