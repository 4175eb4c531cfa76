//! The protocol of MySQL and MariaDB as a client: the login, COM_PING and one prepared statement.
//!
//! Passwords: mysql_native_password, and caching_sha2_password where the server has the password in its cache, or the connection is
//! encrypted.

use std::time::Duration;

use ring::digest;
use serde_json::{json, Value};

use crate::address::{connect, resolve, Address, Place};
use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};
use crate::link::Link;
use crate::postgres::{Login, SslMode};
use crate::tls::{self, Check};

const LONGEST: usize = 1 << 20;
const PROTOCOL_41: u32 = 1 << 9;
const SSL: u32 = 1 << 11;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
const CONNECT_WITH_DB: u32 = 1 << 3;
const UTF8: u8 = 45;

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

#[derive(Debug)]
struct Greeting {
    version: String,
    capabilities: u32,
    salt: Vec<u8>,
    plugin: String,
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
                version: greeting.version,
                method,
                address,
            },
        ))
    }

    fn flags(login: &Login, encrypted: bool) -> u32 {
        let database = if login.database.is_empty() { 0 } else { CONNECT_WITH_DB };
        PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH | database | if encrypted { SSL } else { 0 }
    }

    fn head(flags: u32) -> Vec<u8> {
        [flags.to_le_bytes().as_slice(), &(1_u32 << 24).to_le_bytes(), &[UTF8], &[0; 23]].concat()
    }

    fn encrypt(&mut self, login: &Login, greeting: &Greeting) -> Outcome<Option<i64>> {
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
        self.send(&Self::head(Self::flags(login, true)))?;
        self.link.start_tls(tls::client(host, &check)?)?;
        Ok(Some(now_ns() - began))
    }

    fn authenticate(&mut self, login: &Login, greeting: &Greeting, encrypted: bool) -> Outcome<String> {
        self.link.phase = "authenticate";
        self.link.allow(self.timeout);
        let password = login.password.clone().unwrap_or_default();
        let mut plugin = greeting.plugin.clone();
        let scrambled = scramble(&plugin, &password, &greeting.salt)?;
        let mut answer = Self::head(Self::flags(login, encrypted));
        answer.extend_from_slice(&[login.user.as_bytes(), b"\0", &[scrambled.len() as u8], &scrambled].concat());
        if !login.database.is_empty() {
            answer.extend_from_slice(&[login.database.as_bytes(), b"\0"].concat());
        }
        answer.extend_from_slice(&[plugin.as_bytes(), b"\0"].concat());
        self.send(&answer)?;
        loop {
            let packet = self.packet()?;
            match packet.split_first() {
                Some((0, _)) => return Ok(plugin),
                Some((0xff, rest)) => return Err(refused("authenticate", rest)),
                // Another plugin: its name, a zero, and a new salt.
                Some((0xfe, rest)) => {
                    let mut parts = rest.splitn(2, |byte| *byte == 0);
                    plugin = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                    let salt = parts.next().unwrap_or_default();
                    let scrambled = scramble(&plugin, &password, salt.strip_suffix(b"\0").unwrap_or(salt))?;
                    self.send(&scrambled)?;
                }
                Some((1, [3])) => {} // the password is in the server's cache; OK follows
                Some((1, [4])) if encrypted => self.send(&[password.as_bytes(), b"\0"].concat())?,
                Some((1, [4])) => {
                    let text = "the server wants the password itself, which is sent over TLS only";
                    return Err(Fault::new("authenticate", "unsupported", text));
                }
                _ => return Err(not_mysql("authenticate")),
            }
        }
    }

    /// One empty round trip: COM_PING.
    pub fn ping(&mut self) -> Outcome<i64> {
        self.command("ping", &[0x0e]).map(|(took, _)| took)
    }

    /// Prepares the statement of `execute`.
    pub fn prepare(&mut self) -> Outcome<i64> {
        let (mut took, answer) = self.command("prepare", b"\x16SELECT 1")?;
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
        let (_, first) = self.command("execute", &[[0x17].as_slice(), &id.to_le_bytes(), &[0, 1, 0, 0, 0]].concat())?;
        if first.first() != Some(&0) {
            // Columns up to a mark of their end, then rows up to another.
            for _ in 0..2 {
                while self.packet()?.first() != Some(&0xfe) {}
            }
        }
        Ok(now_ns() - began)
    }

    /// Says good-bye.
    pub fn close(mut self) {
        self.sequence = 0;
        let _ = self.send(&[1]); // it is over either way
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
            Some((0xff, rest)) => Err(refused(phase, rest)),
            Some(_) => Ok((took, answer)),
            None => Err(not_mysql(phase)),
        }
    }

    fn send(&mut self, body: &[u8]) -> Outcome<()> {
        let length = (body.len() as u32).to_le_bytes();
        let packet = [&length[..3], &[self.sequence], body].concat();
        self.sequence = self.sequence.wrapping_add(1);
        self.link.send(&packet)
    }

    fn packet(&mut self) -> Outcome<Vec<u8>> {
        let head = self.link.take(4)?;
        let (length, sequence) = (u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize, head[3]);
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

/// An error packet: number, SQLSTATE, message.
fn refused(phase: &'static str, rest: &[u8]) -> Fault {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match rest {
        [low, high, b'#', rest @ ..] if rest.len() >= 5 => {
            let number = u16::from_le_bytes([*low, *high]);
            Fault { phase, cause: text(&rest[..5]), text: format!("{} (error {number})", text(&rest[5..])) }
        }
        [low, high, rest @ ..] => {
            Fault { phase, cause: format!("error {}", u16::from_le_bytes([*low, *high])), text: text(rest) }
        }
        _ => not_mysql(phase),
    }
}

/// Version 10 of the greeting.
fn greeting(packet: &[u8]) -> Outcome<Greeting> {
    let bad = || not_mysql("greeting");
    let rest = match packet.split_first() {
        Some((10, rest)) => rest,
        Some((0xff, rest)) => return Err(refused("greeting", rest)), // such as: too many connections
        _ => return Err(bad()),
    };
    let end = rest.iter().position(|byte| *byte == 0).ok_or_else(bad)?;
    let version = String::from_utf8_lossy(&rest[..end]).into_owned();
    let rest = &rest[end + 1..];
    // thread id 4, salt 8, a zero, capabilities 2, charset 1, status 2, capabilities 2, length of the salt 1, zeros 10
    if rest.len() < 31 {
        return Err(bad());
    }
    let capabilities =
        u32::from(u16::from_le_bytes([rest[13], rest[14]])) | u32::from(u16::from_le_bytes([rest[18], rest[19]])) << 16;
    let length = usize::from(rest[20]).max(21) - 8;
    let second = rest.get(31..31 + length).ok_or_else(bad)?;
    let mut salt = rest[4..12].to_vec();
    salt.extend_from_slice(second.strip_suffix(b"\0").unwrap_or(second));
    let name = rest.get(31 + length..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    let plugin =
        if name.is_empty() { "mysql_native_password".into() } else { String::from_utf8_lossy(name).into_owned() };
    Ok(Greeting { version, capabilities, salt, plugin })
}

/// What proves the password to a server with this plugin.
fn scramble(plugin: &str, password: &str, salt: &[u8]) -> Outcome<Vec<u8>> {
    if password.is_empty() {
        return Ok(Vec::new());
    }
    let hash = |kind, parts: &[&[u8]]| digest::digest(kind, &parts.concat()).as_ref().to_vec();
    let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect();
    match plugin {
        "mysql_native_password" => {
            let kind = &digest::SHA1_FOR_LEGACY_USE_ONLY;
            let once = hash(kind, &[password.as_bytes()]);
            let twice = hash(kind, &[&once]);
            Ok(xor(&once, &hash(kind, &[salt, &twice])))
        }
        "caching_sha2_password" => {
            let kind = &digest::SHA256;
            let once = hash(kind, &[password.as_bytes()]);
            let twice = hash(kind, &[&once]);
            Ok(xor(&once, &hash(kind, &[&twice, salt])))
        }
        other => Err(Fault::new("authenticate", "unsupported", format!("the server wants the plugin {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_for_a_greeting_are_a_fault_and_no_panic() {
        let whole = [
            b"\x0a8.0.36\0".as_slice(),
            &[1, 0, 0, 0],
            b"12345678",
            &[0, 0xff, 0xff, 45, 2, 0, 0xff, 0xdf, 21],
            &[0; 10],
            b"abcdefghijkl\0",
            b"caching_sha2_password\0",
        ]
        .concat();
        let found = greeting(&whole).unwrap();
        assert_eq!((found.version.as_str(), found.plugin.as_str()), ("8.0.36", "caching_sha2_password"));
        assert_eq!(found.salt, b"12345678abcdefghijkl");
        assert_ne!(found.capabilities & SSL, 0);
        (0..whole.len()).for_each(|n| drop(greeting(&whole[..n])));
        assert!(greeting(b"HTTP/1.1 400").is_err());
        let full = greeting(b"\xff\x10\x04Too many connections").unwrap_err();
        assert_eq!((full.cause.as_str(), full.text.as_str()), ("error 1040", "Too many connections"));
    }

    #[test]
    fn a_password_is_proven_and_not_sent() {
        let salt = b"12345678abcdefghijkl";
        for (plugin, length) in [("mysql_native_password", 20), ("caching_sha2_password", 32)] {
            let proof = scramble(plugin, "secret", salt).unwrap();
            assert_eq!(proof.len(), length);
            assert!(!proof.windows(6).any(|part| part == b"secret"));
        }
        assert_eq!(scramble("dialog", "x", salt).unwrap_err().cause, "unsupported");
    }
}
