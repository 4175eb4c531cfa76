//! The protocol of MySQL and MariaDB as a client: the login, COM_PING and one prepared statement.
//!
//! Passwords: mysql_native_password, and caching_sha2_password where the server has the password in its cache, or the connection is
//! encrypted.

use std::time::Duration;

use leadline_mysql_protocol::capability::SSL;
use leadline_mysql_protocol::packet::{AUTH_MORE_DATA, EOF, ERR, HEAD, OK};
use leadline_mysql_protocol::{auth, command, packet, ErrorPacket, Greeting};
use serde_json::{json, Value};

use crate::address::{connect, resolve, Address, Place};
use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};
use crate::link::Link;
use crate::postgres::{Login, SslMode};
use crate::tls::{self, Check};

const LONGEST: usize = 1 << 20;

/// What each part of a login took.
#[derive(Debug, Clone)]
pub struct Phases {
    /// Look-up of the name.
    pub resolve_ns: i64,
    /// SYN to SYN/ACK.
    pub connect_ns: i64,
    /// From there to the server's greeting, with which it begins.
    pub greeting_ns: i64,
    /// The handshake; None: not encrypted.
    pub tls_ns: Option<i64>,
    /// From our answer to the server's OK.
    pub login_ns: i64,
    version: String,
    method: String,
    address: Address,
}

impl Phases {
    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "version": self.version, "method": self.method, "encrypted": self.tls_ns.is_some(), "address": self.address.to_string(),
        })
    }
}

/// A session that is ready for a command.
pub struct Session {
    link: Link,
    timeout: Duration,
    sequence: u8,
    statement: Option<u32>,
}

impl Session {
    /// Logs in.
    pub fn open(login: &Login) -> Outcome<(Session, Phases)> {
        let (addresses, resolve_ns) = resolve(&login.place, login.timeout)?;
        let (socket, address, connect_ns) = connect(&addresses, login.timeout, None)?;
        let link = Link::new(socket, login.timeout);
        let mut session = Session { link, timeout: login.timeout, sequence: 0, statement: None };
        session.link.phase = "greeting";
        let began = now_ns();
        let packet = session.packet()?;
        let greeting_ns = now_ns() - began;
        let greeting = greeting(&packet)?;
        let tls_ns = session.encrypt(login, &greeting)?;
        let began = now_ns();
        let method = session.authenticate(login, &greeting, tls_ns.is_some())?;
        let login_ns = now_ns() - began;
        Ok((
            session,
            Phases {
                resolve_ns,
                connect_ns,
                greeting_ns,
                tls_ns,
                login_ns,
                version: String::from_utf8_lossy(greeting.version).into_owned(),
                method,
                address,
            },
        ))
    }

    fn encrypt(&mut self, login: &Login, greeting: &Greeting<'_>) -> Outcome<Option<i64>> {
        let Place::Tcp(host, _) = &login.place else { return Ok(None) };
        if login.ssl == SslMode::Disable {
            return Ok(None);
        }
        if greeting.capabilities & SSL == 0 {
            return match login.ssl {
                SslMode::Prefer => Ok(None),
                _ => Err(Fault::new("tls", "unsupported", "the server does not speak TLS")),
            };
        }
        let root = login.root.clone().unwrap_or_default();
        let check = match login.ssl {
            SslMode::VerifyCa => Check::Authority(root),
            SslMode::VerifyFull => Check::Full(root),
            _ => Check::None,
        };
        self.link.phase = "tls";
        let began = now_ns();
        self.send(&leadline_mysql_protocol::request_tls(&login.database))?;
        self.link.start_tls(tls::client(host, &check)?)?;
        Ok(Some(now_ns() - began))
    }

    fn authenticate(&mut self, login: &Login, greeting: &Greeting<'_>, encrypted: bool) -> Outcome<String> {
        self.link.phase = "authenticate";
        self.link.allow(self.timeout);
        let password = login.password.clone().unwrap_or_default();
        let mut plugin = match greeting.plugin {
            [] => auth::NATIVE.to_owned(),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        let salt = greeting.salt.as_deref().ok_or_else(|| not_mysql("greeting"))?;
        let proven = proof(&plugin, &password, salt)?;
        self.send(&leadline_mysql_protocol::login(&login.user, &login.database, &plugin, &proven, encrypted))?;
        loop {
            let packet = self.packet()?;
            match packet.split_first() {
                Some((&OK, _)) => return Ok(plugin),
                Some((&ERR, _)) => return Err(refused("authenticate", &packet)),
                // Another plugin: its name, a zero, and a new salt.
                Some((&EOF, rest)) => {
                    let mut parts = rest.splitn(2, |byte| *byte == 0);
                    plugin = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                    let salt = parts.next().unwrap_or_default();
                    let proven = proof(&plugin, &password, salt.strip_suffix(b"\0").unwrap_or(salt))?;
                    self.send(&proven)?;
                }
                Some((&AUTH_MORE_DATA, [auth::IS_CACHED])) => {} // the password is in the server's cache; OK follows
                Some((&AUTH_MORE_DATA, [auth::WANTS_PASSWORD])) if encrypted => {
                    self.send(&[password.as_bytes(), b"\0"].concat())?
                }
                Some((&AUTH_MORE_DATA, [auth::WANTS_PASSWORD])) => {
                    let text = "the server wants the password itself, which is sent over TLS only";
                    return Err(Fault::new("authenticate", "unsupported", text));
                }
                _ => return Err(not_mysql("authenticate")),
            }
        }
    }

    /// One empty round trip: COM_PING.
    pub fn ping(&mut self) -> Outcome<i64> {
        self.command("ping", &[command::PING]).map(|(took, _)| took)
    }

    /// Prepares the statement of `execute`.
    pub fn prepare(&mut self) -> Outcome<i64> {
        let (mut took, answer) =
            self.command("prepare", &[&[command::STMT_PREPARE], b"SELECT 1".as_slice()].concat())?;
        let id = answer
            .get(1..5)
            .and_then(|id| id.try_into().ok())
            .map(u32::from_le_bytes)
            .ok_or_else(|| not_mysql("prepare"))?;
        let columns = answer.get(5..7).map_or(0, |n| u16::from_le_bytes([n[0], n[1]]));
        let began = now_ns();
        // A definition of each column, and the mark of their end.
        for _ in 0..if columns == 0 { 0 } else { usize::from(columns) + 1 } {
            self.packet()?;
        }
        took += now_ns() - began;
        self.statement = Some(id);
        Ok(took)
    }

    /// Executes `SELECT 1`, which was prepared, in one round trip.
    pub fn execute(&mut self) -> Outcome<i64> {
        let id = self.statement.ok_or_else(|| Fault::protocol("execute", "nothing was prepared"))?;
        let began = now_ns();
        let (_, first) = self
            .command("execute", &[[command::STMT_EXECUTE].as_slice(), &id.to_le_bytes(), &[0, 1, 0, 0, 0]].concat())?;
        if first.first() != Some(&OK) {
            // Columns up to a mark of their end, then rows up to another.
            for _ in 0..2 {
                while self.packet()?.first() != Some(&EOF) {}
            }
        }
        Ok(now_ns() - began)
    }

    /// Says good-bye.
    pub fn close(mut self) {
        self.sequence = 0;
        let _ = self.send(&[command::QUIT]); // it is over either way
    }

    fn command(&mut self, phase: &'static str, body: &[u8]) -> Outcome<(i64, Vec<u8>)> {
        self.link.phase = phase;
        self.link.allow(self.timeout);
        self.sequence = 0;
        let began = now_ns();
        self.send(body)?;
        let answer = self.packet()?;
        let took = now_ns() - began;
        match answer.split_first() {
            Some((&ERR, _)) => Err(refused(phase, &answer)),
            Some(_) => Ok((took, answer)),
            None => Err(not_mysql(phase)),
        }
    }

    fn send(&mut self, body: &[u8]) -> Outcome<()> {
        let packet = packet::packet(self.sequence, body);
        self.sequence = self.sequence.wrapping_add(1);
        self.link.send(&packet)
    }

    fn packet(&mut self) -> Outcome<Vec<u8>> {
        let head = self.link.take(HEAD)?;
        let (length, sequence) = packet::head([head[0], head[1], head[2], head[3]]);
        let length = length as usize;
        if length == 0 || length > LONGEST {
            return Err(not_mysql(self.link.phase));
        }
        self.sequence = sequence.wrapping_add(1);
        Ok(self.link.take(length)?.to_vec())
    }
}

fn not_mysql(phase: &'static str) -> Fault {
    Fault::protocol(phase, "the answer is not that of a MySQL server")
}

/// What the server says against something.
fn refused(phase: &'static str, body: &[u8]) -> Fault {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(error) = ErrorPacket::parse(body) else { return not_mysql(phase) };
    let (number, message) = (error.number, text(error.message));
    match error.sqlstate {
        Some(state) => Fault { phase, cause: text(state), text: format!("{message} (error {number})") },
        None => Fault { phase, cause: format!("error {number}"), text: message },
    }
}

/// Version 10 of the greeting.
fn greeting(packet: &[u8]) -> Outcome<Greeting<'_>> {
    match packet.first() {
        Some(&ERR) => Err(refused("greeting", packet)), // such as: too many connections
        _ if !Greeting::is_known(packet) => Err(not_mysql("greeting")),
        _ => {
            let found = Greeting::parse(packet).ok().filter(|greeting| greeting.salt.is_some());
            found.ok_or_else(|| not_mysql("greeting"))
        }
    }
}

/// What proves the password to a server with this plugin.
fn proof(plugin: &str, password: &str, salt: &[u8]) -> Outcome<Vec<u8>> {
    let unknown = || Fault::new("authenticate", "unsupported", format!("the server wants the plugin {plugin}"));
    auth::proof(plugin, password, salt).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_refuses_says_why() {
        assert!(greeting(b"HTTP/1.1 400").is_err());
        let full = greeting(b"\xff\x10\x04Too many connections").unwrap_err();
        assert_eq!((full.cause.as_str(), full.text.as_str()), ("error 1040", "Too many connections"));
        let denied = refused("authenticate", b"\xff\x15\x04#28000Access denied");
        assert_eq!((denied.cause.as_str(), denied.text.as_str()), ("28000", "Access denied (error 1045)"));
        assert_eq!(refused("ping", b"\xff\x10").cause, not_mysql("ping").cause);
        assert_eq!(proof("dialog", "x", b"12345678").unwrap_err().cause, "unsupported");
    }
}
