//! The protocol of MySQL and MariaDB: packets with a length of three bytes and a number.
//!
//! Client and server take turns by the packet, so a round trip ends when the client speaks again.

use super::about::{name_of, About, Auth, Encryption};
use super::frame::{Body, Frame, Lost, Message, Messages, MOST_KEPT};
use super::trip::{Purpose, Trip};
use leadline_bytes::{Bytes, Endian, Truncated};

const CLIENT_CONNECT_WITH_DB: u32 = 0x8;
const CLIENT_SSL: u32 = 0x800;
const CLIENT_SECURE_CONNECTION: u32 = 0x8000;
const CLIENT_PLUGIN_AUTH: u32 = 0x8_0000;
const CLIENT_LENENC_AUTH: u32 = 0x20_0000;
const STATUS_IN_TRANS: u16 = 1;
/// A login packet that asks for TLS ends after its fixed part.
const SSL_REQUEST: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Login,
    Proof,
    Ready,
}

/// The state of a connection.
#[derive(Debug)]
pub struct MySql {
    phase: Phase,
    client: Frame,
    server: Frame,
    lost: bool,
    /// The password itself comes next, unless a key is asked for.
    clear_next: bool,
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

/// Whether a segment is one command of a client: the whole of it, numbered zero.
pub fn is_command(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, c, 0, 1..=0x1F, ..] if u32::from_le_bytes([*a, *b, *c, 0]) as usize == bytes.len() - 4)
}

impl MySql {
    /// From the greeting, or from the middle of a connection.
    pub fn new(from_start: bool) -> MySql {
        MySql {
            phase: if from_start { Phase::Greeting } else { Phase::Ready },
            client: Frame::default(),
            server: Frame::default(),
            lost: false,
            clear_next: false,
            command: 0,
            at_answer: false,
            in_transaction: false,
            worked: false,
            encrypted: false,
        }
    }

    /// Bytes of the client. `turn`: they begin a round trip.
    pub fn client(&mut self, bytes: &[u8], unseen: u32, turn: bool, trip: &mut Trip, about: &mut About) {
        if turn && self.lost && is_command(bytes) {
            self.lost = false;
            self.client.reset();
            self.server.reset();
        }
        if self.lost {
            return;
        }
        self.at_answer = true;
        let mut frame = std::mem::take(&mut self.client);
        let outcome = frame.feed(bytes, unseen, &mut Client { state: self, trip, about });
        self.client = frame;
        self.note(outcome.is_err(), about);
    }

    /// Bytes of the server.
    pub fn server(&mut self, ts: i64, bytes: &[u8], unseen: u32, trip: &mut Trip, about: &mut About) {
        if self.lost {
            return;
        }
        let mut frame = std::mem::take(&mut self.server);
        let outcome = frame.feed(bytes, unseen, &mut Server { ts, state: self, trip, about });
        self.server = frame;
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

    fn plugin(&mut self, name: &[u8], about: &mut About) {
        self.clear_next = false;
        about.auth = match name {
            b"mysql_native_password" => Auth::Sha1,
            b"caching_sha2_password" | b"sha256_password" => Auth::Sha256,
            b"mysql_clear_password" | b"dialog" => {
                self.clear_next = true;
                Auth::Cleartext
            }
            b"auth_gssapi_client" | b"authentication_kerberos_client" => Auth::Gss,
            _ => Auth::Other,
        };
    }

    fn login(&mut self, m: &Message<'_>, about: &mut About) -> Result<(), Truncated> {
        let mut body = Bytes::new(m.body, Endian::Little);
        let flags = body.u32("capabilities")?;
        body.take("packet size and character set", 28)?;
        about.user = name_of(until_zero(&mut body));
        let length = if flags & CLIENT_LENENC_AUTH != 0 {
            lenenc(&mut body)? as usize
        } else if flags & CLIENT_SECURE_CONNECTION != 0 {
            body.u8("length")?.into()
        } else {
            until_zero(&mut body).len()
        };
        if flags & (CLIENT_LENENC_AUTH | CLIENT_SECURE_CONNECTION) != 0 {
            body.take("proof", length)?;
        }
        if flags & CLIENT_CONNECT_WITH_DB != 0 {
            about.database = name_of(until_zero(&mut body));
        }
        if flags & CLIENT_PLUGIN_AUTH != 0 {
            self.plugin(until_zero(&mut body), about);
            if std::mem::take(&mut self.clear_next) && length > 1 {
                about.password_readable = true;
            }
        }
        Ok(())
    }
}

fn until_zero<'a>(bytes: &mut Bytes<'a>) -> &'a [u8] {
    let length = bytes.rest().iter().position(|byte| *byte == 0).unwrap_or(bytes.left());
    let text = bytes.take("text", length).unwrap_or(&[]);
    let _ = bytes.u8("end");
    text
}

fn lenenc(bytes: &mut Bytes<'_>) -> Result<u64, Truncated> {
    Ok(match bytes.u8("length")? {
        0xFC => bytes.u16("length")?.into(),
        0xFD => {
            let [a, b, c] = bytes.array("length")?;
            u32::from_le_bytes([a, b, c, 0]).into()
        }
        0xFE => bytes.u64("length")?,
        short => short.into(),
    })
}

fn packet(head: &[u8], keep: usize) -> Result<Body, Lost> {
    let [a, b, c, _] = *head else { return Err(Lost) };
    Ok(Body { length: u32::from_le_bytes([a, b, c, 0]).into(), keep })
}

struct Client<'a> {
    state: &'a mut MySql,
    trip: &'a mut Trip,
    about: &'a mut About,
}

impl Messages for Client<'_> {
    fn head_length(&self) -> usize {
        4
    }

    fn body(&mut self, head: &[u8]) -> Result<Body, Lost> {
        packet(
            head,
            match self.state.phase {
                Phase::Login => MOST_KEPT,
                Phase::Ready => 1, // the command
                Phase::Proof | Phase::Greeting => 0,
            },
        )
    }

    fn message(&mut self, m: &Message<'_>) -> bool {
        let state = &mut *self.state;
        let mut is_for = |purpose: Purpose| self.trip.purpose = self.trip.purpose.max(purpose);
        match state.phase {
            Phase::Greeting => {}
            Phase::Login => {
                let flags = m.body.first_chunk::<4>().map_or(0, |flags| u32::from_le_bytes(*flags));
                if flags & CLIENT_SSL != 0 && m.length == SSL_REQUEST {
                    is_for(Purpose::Encryption);
                    self.about.tls = Encryption::Accepted;
                    state.encrypted = true;
                    return false;
                }
                is_for(Purpose::Startup);
                let _ = state.login(m, self.about); // what is behind the kept bytes stays unknown
                state.phase = Phase::Proof;
            }
            Phase::Proof => {
                is_for(Purpose::Authentication);
                // One byte asks for the server's key, and what follows is encrypted with it.
                if std::mem::take(&mut state.clear_next) && m.length > 1 {
                    self.about.password_readable = true;
                }
            }
            Phase::Ready => {
                state.command = m.body.first().copied().unwrap_or(0);
                match state.command {
                    0x01 => is_for(Purpose::Terminate),
                    0x03 => {
                        state.worked = true;
                        self.trip.statements += 1;
                        is_for(Purpose::Simple);
                    }
                    0x17 => {
                        state.worked = true;
                        self.trip.statements += 1;
                        is_for(Purpose::Extended);
                    }
                    0x16 | 0x18 | 0x19 | 0x1A => is_for(Purpose::Prepare),
                    0x1C => {
                        self.trip.fetches += 1;
                        is_for(Purpose::Fetch);
                    }
                    0x0E => is_for(Purpose::Sync),
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
    fn status(&mut self, m: &Message<'_>) -> Result<(), Truncated> {
        let mut body = Bytes::new(m.body, Endian::Little);
        if body.u8("header")? == 0xFE && m.length == 5 {
            body.u16("warnings")?;
        } else {
            lenenc(&mut body)?;
            lenenc(&mut body)?;
        }
        self.state.in_transaction = body.u16("status")? & STATUS_IN_TRANS != 0;
        Ok(())
    }
}

impl Messages for Server<'_> {
    fn head_length(&self) -> usize {
        4
    }

    fn body(&mut self, head: &[u8]) -> Result<Body, Lost> {
        packet(head, 64)
    }

    fn message(&mut self, m: &Message<'_>) -> bool {
        let kind = m.body.first().copied().unwrap_or(0);
        let state = &mut *self.state;
        match state.phase {
            Phase::Greeting => state.phase = Phase::Login,
            Phase::Login | Phase::Proof => match (kind, m.body) {
                (0, _) => {
                    self.about.accepted();
                    self.about.ready(self.ts);
                    state.phase = Phase::Ready;
                }
                (0xFF, _) => {
                    self.trip.errors += 1;
                    self.about.let_in = Some(false);
                    if let Some([b'#', state @ ..]) = m.body.get(3..9) {
                        self.about.sqlstate = name_of(state);
                    }
                }
                (0xFE, [_, name @ ..]) => {
                    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
                    state.plugin(name, self.about);
                }
                (1, [_, 4, ..]) => state.clear_next = true,
                _ => {}
            },
            Phase::Ready => {
                let first = std::mem::take(&mut state.at_answer);
                match kind {
                    0xFF if first => self.trip.errors += 1,
                    0 if first && matches!(state.command, 0x03 | 0x17) => {
                        let _ = self.status(m);
                    }
                    0xFE if m.length < 64 => {
                        let _ = self.status(m);
                    }
                    _ => {}
                }
            }
        }
        true
    }
}
