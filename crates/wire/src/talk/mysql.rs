//! The protocol of MySQL and MariaDB: packets with a length of three bytes and a number.
//!
//! Client and server take turns by the packet, so a round trip ends when the client speaks again. After the login the packets may be
//! compressed (`super::squeezed`).

use super::about::{name_of, About, Encryption};
use super::frame::{Body, Frame, Lost, Message, Messages, MOST_KEPT};
use super::mysql_login::{self as login, Login, Next};
use super::squeezed::{is_squeezed_command, Squeezed};
use super::trip::{Purpose, Trip};
use leadline_bytes::{Bytes, Endian, Truncated};
use leadline_mysql_protocol::packet::{AUTH_MORE_DATA, EOF, ERR, GOES_ON, LOCAL_INFILE, OK};
use leadline_mysql_protocol::{auth, command, field, packet, ErrorPacket};

const STATUS_IN_TRANS: u16 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Login,
    Proof,
    Ready,
    /// The client sends a file, up to an empty packet.
    File,
}

/// The state of a connection.
#[derive(Debug)]
pub struct MySql {
    phase: Phase,
    client: Frame,
    server: Frame,
    lost: bool,
    /// The present packet of the client, or the server, goes on with the one before.
    goes_on: [bool; 2],
    login: Login,
    /// How packets are compressed, of each direction.
    squeezed: Option<[Squeezed; 2]>,
    command: u8,
    /// No packet of the answer was seen yet.
    at_answer: bool,
    in_transaction: bool,
    worked: bool,
    /// The rest of the connection is encrypted.
    pub encrypted: bool,
}

/// Whether the first bytes of a server are a greeting of protocol 10.
pub fn is_greeting(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, 0, 0, 10, digit, ..] if digit.is_ascii_digit() && u16::from_le_bytes([*a, *b]) >= 32)
}

/// Whether the first bytes of a server are an error: it refuses the client before it greets.
pub fn is_refusal(bytes: &[u8]) -> bool {
    // Errors of the server have numbers from 1000.
    matches!(bytes, [a, b, 0, 0, ERR, low, high, _, ..]
        if u16::from_le_bytes([*a, *b]) as usize == bytes.len() - 4 && (1000..10_000).contains(&u16::from_le_bytes([*low, *high])))
}

/// Whether a segment is one command of a client: the whole of it, numbered zero.
pub fn is_command(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, c, 0, command::QUIT..=0x1F | command::STMT_BULK_EXECUTE, ..] if u32::from_le_bytes([*a, *b, *c, 0]) as usize == bytes.len() - 4)
}

impl MySql {
    /// From the greeting, or from the middle of a connection.
    pub fn new(from_start: bool) -> MySql {
        MySql {
            phase: if from_start { Phase::Greeting } else { Phase::Ready },
            client: Frame::default(),
            server: Frame::default(),
            lost: false,
            goes_on: [false; 2],
            login: Login::default(),
            squeezed: None,
            command: 0,
            at_answer: false,
            in_transaction: false,
            worked: false,
            encrypted: false,
        }
    }

    /// Bytes of the client. `turn`: they begin a round trip.
    pub fn client(&mut self, bytes: &[u8], unseen: u32, turn: bool, trip: &mut Trip, about: &mut About) {
        let is_command = if self.squeezed.is_some() { is_squeezed_command } else { is_command };
        if turn && self.lost && is_command(bytes) {
            self.lost = false;
            self.goes_on = [false; 2];
            self.client.reset();
            self.server.reset();
            self.squeezed.iter_mut().flatten().for_each(Squeezed::reset);
        }
        if self.lost {
            return;
        }
        self.at_answer = true;
        let (mut frame, mut squeezed) = (std::mem::take(&mut self.client), self.squeezed.take());
        let mut on = Client { state: self, trip, about };
        let outcome = match &mut squeezed {
            Some([client, _]) => client.feed(bytes, unseen, &mut |plain| frame.feed(plain, 0, &mut on).map(drop)),
            None => frame.feed(bytes, unseen, &mut on).map(drop),
        };
        self.client = frame;
        self.squeezed = squeezed;
        self.note(outcome.is_err(), about);
    }

    /// Bytes of the server.
    pub fn server(&mut self, ts: i64, bytes: &[u8], unseen: u32, trip: &mut Trip, about: &mut About) {
        if self.lost {
            return;
        }
        let (mut frame, mut squeezed) = (std::mem::take(&mut self.server), self.squeezed.take());
        let mut on = Server { ts, state: self, trip, about };
        let outcome = match &mut squeezed {
            Some([_, server]) => server.feed(bytes, unseen, &mut |plain| frame.feed(plain, 0, &mut on).map(drop)),
            None => frame.feed(bytes, unseen, &mut on).map(drop),
        };
        self.server = frame;
        if squeezed.is_some() {
            self.squeezed = squeezed; // else the login may just have ended
        }
        self.note(outcome.is_err(), about);
    }

    fn note(&mut self, lost: bool, about: &mut About) {
        if lost {
            self.lost = true;
            about.lost_places += 1;
        }
    }

    /// The client speaks again, or never: what the round trip was.
    pub fn finish(&mut self, trip: &mut Trip) {
        trip.in_transaction = self.in_transaction;
        if self.worked && !self.in_transaction {
            trip.transactions += 1;
            self.worked = false;
        }
    }
}

fn body_of(head: &[u8], keep: usize) -> Result<Body, Lost> {
    let (length, _) = packet::head(head.try_into().map_err(|_| Lost)?);
    Ok(Body { length: length.into(), keep })
}

struct Client<'a> {
    state: &'a mut MySql,
    trip: &'a mut Trip,
    about: &'a mut About,
}

impl Messages for Client<'_> {
    fn head_length(&self) -> usize {
        packet::HEAD
    }

    fn body(&mut self, head: &[u8]) -> Result<Body, Lost> {
        body_of(
            head,
            match self.state.phase {
                Phase::Login => MOST_KEPT,
                Phase::Ready => 1, // the command
                Phase::Proof => 1, // a request for a key, or no password; never one that is kept
                Phase::Greeting | Phase::File => 0,
            },
        )
    }

    fn message(&mut self, m: &Message<'_>) -> bool {
        let state = &mut *self.state;
        let mut is_for = |purpose: Purpose| self.trip.purpose = self.trip.purpose.max(purpose);
        if std::mem::replace(&mut state.goes_on[0], m.length == u64::from(GOES_ON)) {
            return true;
        }
        match state.phase {
            Phase::Greeting => {}
            Phase::Login => {
                if login::asks_for_tls(m.body, m.length) {
                    is_for(Purpose::Encryption);
                    self.about.tls = Encryption::Accepted;
                    state.encrypted = true;
                    return false;
                }
                is_for(Purpose::Startup);
                let _ = state.login.take(m.body, self.about); // what is behind the kept bytes stays unknown
                state.phase = Phase::Proof;
            }
            Phase::Proof => {
                is_for(Purpose::Authentication);
                state.login.proof(m.body.first().copied(), m.length, m.tail, self.about);
            }
            Phase::File => {
                is_for(Purpose::CopyIn);
                if m.length == 0 {
                    state.phase = Phase::Ready;
                }
            }
            Phase::Ready => {
                state.command = m.body.first().copied().unwrap_or(0);
                match state.command {
                    command::QUIT => is_for(Purpose::Terminate),
                    command::QUERY => {
                        state.worked = true;
                        self.trip.statements += 1;
                        is_for(Purpose::Simple);
                    }
                    command::STMT_EXECUTE | command::STMT_BULK_EXECUTE => {
                        state.worked = true;
                        self.trip.statements += 1;
                        is_for(Purpose::Extended);
                    }
                    command::STMT_PREPARE
                    | command::STMT_SEND_LONG_DATA
                    | command::STMT_CLOSE
                    | command::STMT_RESET => is_for(Purpose::Prepare),
                    command::STMT_FETCH => {
                        self.trip.fetches += 1;
                        is_for(Purpose::Fetch);
                    }
                    command::PING => is_for(Purpose::Sync),
                    // The client proves again who it is.
                    command::CHANGE_USER => {
                        is_for(Purpose::Command);
                        state.phase = Phase::Proof;
                    }
                    command::BINLOG_DUMP | command::BINLOG_DUMP_GTID => is_for(Purpose::Replication),
                    _ => is_for(Purpose::Command),
                }
            }
        }
        true
    }
}

struct Server<'a> {
    ts: i64,
    state: &'a mut MySql,
    trip: &'a mut Trip,
    about: &'a mut About,
}

impl Server<'_> {
    fn refused(&mut self, m: &Message<'_>) {
        self.trip.errors += 1;
        self.about.let_in = Some(false);
        if let Some(state) = ErrorPacket::parse(m.body).and_then(|error| error.sqlstate) {
            self.about.sqlstate = name_of(state);
        }
    }

    fn status(&mut self, m: &Message<'_>) -> Result<(), Truncated> {
        let mut body = Bytes::new(m.body, Endian::Little);
        if body.u8("header")? == EOF && m.length == 5 {
            body.u16("warnings")?;
        } else {
            field::lenenc(&mut body)?;
            field::lenenc(&mut body)?;
        }
        self.state.in_transaction = body.u16("status")? & STATUS_IN_TRANS != 0;
        Ok(())
    }
}

impl Messages for Server<'_> {
    fn head_length(&self) -> usize {
        packet::HEAD
    }

    fn body(&mut self, head: &[u8]) -> Result<Body, Lost> {
        body_of(head, if self.state.phase == Phase::Greeting { MOST_KEPT } else { 64 })
    }

    fn message(&mut self, m: &Message<'_>) -> bool {
        let kind = m.body.first().copied().unwrap_or(0);
        let state = &mut *self.state;
        if std::mem::replace(&mut state.goes_on[1], m.length == u64::from(GOES_ON)) {
            return true;
        }
        match state.phase {
            Phase::Greeting if kind == ERR => self.refused(m),
            Phase::Greeting => {
                state.login.greeted(m.body);
                state.phase = Phase::Login;
            }
            Phase::Login | Phase::Proof => match (kind, m.body) {
                (OK, _) => {
                    state.login.accepted(self.about);
                    self.about.ready(self.ts);
                    if state.phase == Phase::Proof && state.command != command::CHANGE_USER {
                        let codec = state.login.codecs.agreed();
                        state.squeezed = codec.map(|codec| [Squeezed::new(codec), Squeezed::new(codec)]);
                    }
                    state.phase = Phase::Ready;
                }
                (ERR, _) => self.refused(m),
                // Of one byte only: the proof of servers before 4.1.
                (EOF, [_, name @ ..]) => {
                    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
                    state.login.switched(if m.length == 1 { auth::OLD.as_bytes() } else { name }, self.about);
                }
                (AUTH_MORE_DATA, [_, auth::WANTS_PASSWORD, ..]) => state.login.next = Next::Password,
                _ => {}
            },
            Phase::File => {}
            Phase::Ready => {
                let first = std::mem::take(&mut state.at_answer);
                match kind {
                    ERR if first => self.trip.errors += 1,
                    LOCAL_INFILE if first && state.command == command::QUERY => state.phase = Phase::File,
                    OK if first && matches!(state.command, command::QUERY | command::STMT_EXECUTE) => {
                        let _ = self.status(m);
                    }
                    EOF if m.length < 64 => {
                        let _ = self.status(m);
                    }
                    _ => {}
                }
            }
        }
        true
    }
}
