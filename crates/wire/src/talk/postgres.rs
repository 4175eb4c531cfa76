//! The protocol of PostgreSQL, version 3: who has the turn, what is asked, which transactions end.
//!
//! Texts of statements, values and passwords are passed over by their length and never looked at.

use super::about::{About, Auth, Encryption};
use super::asked::{Asked, Step};
use super::frame::{Body, Frame, Lost, Message, Messages, MOST_KEPT};
use super::portals::Portals;
use super::sasl;
use super::trip::{Purpose, Trip};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const MAJOR_3: u32 = 3;
/// The longest first message, as the server limits it.
const MOST_STARTUP: u32 = 10_000;
const MOST_MESSAGE: u32 = 1 << 30;
/// What the server says of statements that it has run.
const DECLARED: &[u8] = b"DECLARE CURSOR";
const FETCHED: &[u8] = b"FETCH ";
/// A standby's report of how far it has come: the message, a kind, three positions, a time, and whether it wants an answer.
const STANDBY_STATUS: (u8, u64) = (b'r', 34);
const CLIENT_KINDS: &[u8] = b"BCDEFHPQSXcdfp";
const SERVER_KINDS: &[u8] = b"123ACDEGHIKNRSTVWZcdnstv";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was said, or encryption was refused.
    Start,
    /// The client asked for encryption; the answer is one byte.
    Encryption(Wanted),
    /// A first message was sent.
    Login,
    /// Queries.
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Tls,
    Gss,
}

/// What the next message of the client's login is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Proof {
    /// Nothing that could be read as a password.
    #[default]
    Unreadable,
    /// The password itself.
    Password,
    /// The name of a SASL mechanism, and what the mechanism sends first.
    SaslFirst,
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
    asked: Asked,
    portals: Portals,
    /// The server waits for the client although it owes it an answer.
    clients_turn: bool,
    flushed: bool,
    /// Messages were sent that only a Sync or Flush to come makes the server answer.
    unsynced: bool,
    in_transaction: bool,
    /// Both ends send when they like: replication.
    streaming: bool,
    /// A ReadyForQuery was seen.
    was_ready: bool,
    /// Statements were run in the present transaction.
    ran: bool,
    proof: Proof,
    /// More was asked than is followed.
    overfull: bool,
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
            asked: Asked::default(),
            portals: Portals::default(),
            clients_turn: false,
            flushed: false,
            unsynced: false,
            in_transaction: false,
            streaming: false,
            was_ready: false,
            ran: false,
            proof: Proof::Unreadable,
            overfull: false,
            encrypted: false,
        }
    }

    /// Whether what the client sends now begins a round trip. `answered`: the server has answered since the present one began.
    pub fn is_clients_turn(&self, answered: bool) -> bool {
        if self.client_lost || self.server_lost {
            return answered;
        }
        self.client.at_start() && (self.clients_turn || (self.asked.owed() == 0 && !self.flushed && !self.unsynced))
            || (self.flushed && answered)
    }

    /// Bytes of the client. `turn`: they begin a round trip.
    pub fn client(&mut self, bytes: &[u8], unseen: u32, turn: bool, trip: &mut Trip, about: &mut About) {
        if turn && self.client_lost && is_chain(bytes, true, false) {
            self.client_lost = false;
            self.client.reset();
            self.asked.forget();
        }
        if turn {
            self.clients_turn = false;
            self.flushed = false;
            self.unsynced = false;
            if self.server_lost {
                self.asked.forget();
            }
        }
        if self.client_lost {
            return;
        }
        let mut frame = std::mem::take(&mut self.client);
        let outcome = frame.feed(bytes, unseen, &mut Client { state: self, trip, about });
        self.client = frame;
        if outcome.is_err() || std::mem::take(&mut self.overfull) {
            self.client.reset();
            self.lose(about);
            self.client_lost = true;
        }
    }

    /// Bytes of the server. `turn`: the first since the client spoke.
    pub fn server(&mut self, ts: i64, mut bytes: &[u8], unseen: u32, turn: bool, trip: &mut Trip, about: &mut About) {
        if let (Phase::Encryption(wanted), Some((answer, rest))) = (self.phase, bytes.split_first()) {
            let encryption = if wanted == Wanted::Tls { &mut about.tls } else { &mut about.gss };
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
            if bytes.first() == Some(&b'E') && self.phase != Phase::Ready {
                about.let_in = Some(false); // as a server says it that could not even start a process for the client
            }
            self.lose(about);
            self.server_lost = true;
        }
    }

    /// The client sent whole messages, and the server answers none of them.
    pub fn is_idle(&self) -> bool {
        !self.client_lost && self.client.at_start() && self.asked.is_idle() && !self.flushed && !self.unsynced
    }

    /// Both ends send when they like, so there are no round trips.
    pub fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// Everything that was asked is answered.
    pub fn is_complete(&self) -> bool {
        !self.client_lost
            && !self.server_lost
            && self.asked.owed() == 0
            && !self.flushed
            && !self.unsynced
            && self.phase == Phase::Ready
            || self.clients_turn
    }

    fn lose(&mut self, about: &mut About) {
        about.lost_places += 1;
        self.flushed = false;
        self.unsynced = false;
        self.clients_turn = false;
        self.streaming = false;
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
                // Names of portals, the kind of what is copied, and the mechanism of a login. Of passwords and statements nothing.
                let keep = match kind {
                    b'B' | b'E' => super::portals::MOST_NAME,
                    b'd' => 1,
                    b'p' if self.state.proof == Proof::SaslFirst => MOST_KEPT,
                    _ => 0,
                };
                Ok(Body { length: u64::from(length - 4), keep })
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
                    let (wanted, encryption) = match code {
                        SSL_REQUEST => (Wanted::Tls, &mut self.about.tls),
                        _ => (Wanted::Gss, &mut self.about.gss),
                    };
                    *encryption = Encryption::Asked;
                    state.phase = Phase::Encryption(wanted);
                }
                CANCEL_REQUEST => {
                    is_for(Purpose::Cancel);
                    self.about.auth = Auth::by("cancel key");
                }
                _ => {
                    is_for(Purpose::Startup);
                    state.phase = Phase::Login;
                    let _ = state.asked.add(Step::Sync); // ReadyForQuery ends a login, and runs nothing
                    self.about.startup(m.body);
                }
            }
            return true;
        }
        let is_standby = m.body.first() == Some(&STANDBY_STATUS.0) && m.length == STANDBY_STATUS.1;
        let pipelined = u32::from(state.asked.owed() > 0 && state.phase == Phase::Ready);
        let mut fits = Ok(());
        match m.head.first().copied().unwrap_or(0) {
            b'Q' => {
                self.trip.pipelined += pipelined;
                self.trip.statements += 1;
                fits = state.asked.add(Step::Query);
                is_for(Purpose::Simple);
            }
            b'F' => {
                self.trip.statements += 1;
                fits = state.asked.add(Step::Query);
                is_for(Purpose::Command);
            }
            b'S' => {
                self.trip.pipelined += pipelined;
                // The server ignores it while it takes data: the client still has the turn.
                state.unsynced = state.asked.is_copying();
                state.flushed = false;
                fits = state.asked.add(Step::Sync);
                is_for(Purpose::Sync);
            }
            b'E' => {
                self.trip.statements += 1;
                state.unsynced = true;
                fits = state.asked.add(Step::Execute);
                let rows = m.tail.map_or(0, i32::from_be_bytes);
                let goes_on = state.portals.executed(m.body);
                self.trip.fetches += u32::from(rows > 0);
                self.trip.continued += u32::from(rows > 0 && goes_on);
                is_for(if rows > 0 { Purpose::Fetch } else { Purpose::Extended });
            }
            b'B' => {
                state.unsynced = true;
                state.portals.bound(m.body);
                is_for(Purpose::Prepare);
            }
            b'P' | b'D' | b'C' => {
                state.unsynced = true;
                is_for(Purpose::Prepare);
            }
            b'H' if !state.asked.is_copying() => (state.flushed, state.unsynced) = (true, false),
            b'd' if is_standby && state.asked.owed() == 0 && !state.asked.is_copying() => state.streaming = true,
            // What comes after the end of a COPY, the server drops.
            b'd' | b'c' | b'f' if state.was_ready && state.asked.is_idle() => {}
            b'd' | b'c' | b'f' => {
                // Only the end of the data is answered, also where the beginning of the COPY was not seen.
                state.unsynced |= state.asked.owed() == 0;
                state.asked.data();
                if m.head.first() != Some(&b'd') {
                    fits = state.asked.add(Step::CopyEnd);
                }
                is_for(Purpose::CopyIn);
            }
            b'X' => is_for(Purpose::Terminate),
            b'p' => {
                is_for(Purpose::Authentication);
                self.about.password_readable |= match std::mem::take(&mut state.proof) {
                    Proof::Unreadable => false,
                    Proof::Password => m.length > 1,
                    Proof::SaslFirst => {
                        let first = sasl::First::of(m.body);
                        if first.is_password_next() {
                            state.proof = Proof::Password;
                        }
                        if first.is_named() {
                            self.about.auth = Auth::by(&first.mechanism);
                        }
                        first.is_secret_readable()
                    }
                };
            }
            _ => {}
        }
        state.overfull |= fits.is_err();
        fits.is_ok()
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
            b'C' => DECLARED.len(),
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
                if state.asked.owed() == 0 {
                    // More was asked than was seen: everything up to here is answered.
                    (state.flushed, state.unsynced) = (false, false);
                }
                state.was_ready = true;
                state.streaming = false;
                state.in_transaction = status != b'I';
                self.trip.in_transaction = state.in_transaction;
                state.ran |= state.asked.ready();
                if status == b'I' && std::mem::take(&mut state.ran) {
                    self.trip.transactions += 1;
                }
            }
            b'R' => {
                let code = m.body.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
                state.clients_turn = true;
                state.proof = match code {
                    3 => Proof::Password,
                    10 => Proof::SaslFirst,
                    11 => state.proof,
                    _ => Proof::Unreadable,
                };
                match code {
                    0 => {
                        state.clients_turn = false;
                        self.about.accepted();
                    }
                    2 => self.about.auth = Auth::by("kerberos v5"),
                    3 => self.about.auth = Auth::by("cleartext"),
                    4 => self.about.auth = Auth::by("crypt"),
                    5 => self.about.auth = Auth::by("md5"),
                    6 => self.about.auth = Auth::by("scm credential"),
                    7 => self.about.auth = Auth::by("gss"),
                    9 => self.about.auth = Auth::by("sspi"),
                    // The first that the server offers, until the client has chosen.
                    10 => self.about.auth = Auth::by(&sasl::First::of(m.body.get(4..).unwrap_or(&[])).mechanism),
                    12 => state.clients_turn = false, // AuthenticationOk follows
                    8 | 11 => {}
                    _ => self.about.auth = Auth::by("other"),
                }
            }
            b'E' => {
                self.trip.errors += 1;
                state.asked.failed();
                self.about.error(m.body, state.phase != Phase::Ready);
            }
            b'C' => {
                state.asked.executed();
                self.trip.cursors += u32::from(m.body.starts_with(DECLARED));
                self.trip.cursor_fetches += u32::from(m.body.starts_with(FETCHED));
            }
            b'I' => state.asked.executed(),
            b's' => {
                state.asked.executed();
                self.trip.suspended += 1;
            }
            b'G' => {
                state.asked.copy_in();
                state.clients_turn = state.asked.is_copy_awaited();
                // Without a Query that the server still owes an end, a Sync has yet to come.
                (state.flushed, state.unsynced) = (false, state.unsynced || state.asked.owed() == 0);
                self.trip.purpose = self.trip.purpose.max(Purpose::CopyIn);
            }
            b'W' => {
                state.clients_turn = true;
                state.streaming = true;
                self.trip.purpose = self.trip.purpose.max(Purpose::Replication);
            }
            b'H' => self.trip.purpose = self.trip.purpose.max(Purpose::CopyOut),
            _ => {}
        }
        true
    }
}
