//! A session with a PostgreSQL server: the phases of its login timed apart, then single round trips.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leadline_protocol::frontend::{startup, Out, SSL_REQUEST};
use leadline_protocol::md5;
use leadline_protocol::scram::{Refused, Scram};
use serde_json::{json, Value};

use crate::address::{connect, resolve, Address, Place};
use crate::channel::Channel;
use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};
use crate::link::Link;
use crate::postgres::message::{error, head};
use crate::tls::{self, Check};

const STATEMENT: &str = "leadline_ping";

/// When TLS is used, with libpq's words; `allow` is taken as `prefer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl SslMode {
    /// Of libpq's name.
    pub fn parse(name: &str) -> Option<SslMode> {
        Some(match name {
            "disable" => SslMode::Disable,
            "allow" | "prefer" | "" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return None,
        })
    }
}

/// Who logs in where.
#[derive(Clone)]
pub struct Login {
    /// The server.
    pub place: Place,
    /// Role.
    pub user: String,
    /// Database.
    pub database: String,
    /// Never part of a message or an outcome.
    pub password: Option<String>,
    /// When TLS is used.
    pub ssl: SslMode,
    /// File with the authorities, for `verify-*`.
    pub root: Option<PathBuf>,
    /// For the look-up, the connection, and each answer of the server.
    pub timeout: Duration,
    /// SO_RCVBUF; None: as the system has it.
    pub receive_buffer: Option<u32>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({} as {})", self.place, self.user)
    }
}

/// What each part of a login took.
#[derive(Debug, Clone)]
pub struct Phases {
    /// Look-up of the name.
    pub resolve_ns: i64,
    /// SYN to SYN/ACK.
    pub connect_ns: i64,
    /// The question whether the server speaks TLS, and the handshake if it does; None: not asked.
    pub tls_ns: Option<i64>,
    /// From the start message to the first ReadyForQuery: authentication and the start of the session.
    pub login_ns: i64,
    /// Whether the rest is encrypted.
    pub encrypted: bool,
    /// trust, password, md5, scram-sha-256.
    pub method: &'static str,
    /// Where it connected.
    pub address: Address,
}

impl Phases {
    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "resolve_ns": self.resolve_ns, "connect_ns": self.connect_ns, "tls_ns": self.tls_ns, "login_ns": self.login_ns,
            "encrypted": self.encrypted, "method": self.method, "address": self.address.to_string(),
        })
    }
}

/// Asks a server that nobody logs in to whether it speaks TLS: the one round trip that needs no right. Its time, and the answer.
pub fn ask_for_tls(place: &Place, timeout: Duration) -> Outcome<(i64, bool)> {
    let (addresses, _) = resolve(place, timeout)?;
    let (socket, ..) = connect(&addresses, timeout, None)?;
    let mut link = Link::new(socket, timeout);
    link.phase = "tls";
    let began = now_ns();
    let yes = request_tls(&mut link)?;
    Ok((now_ns() - began, yes))
}

fn request_tls(link: &mut Link) -> Outcome<bool> {
    link.send(&SSL_REQUEST)?;
    match link.take(1)?[0] {
        b'S' => Ok(true),
        b'N' => Ok(false),
        _ => Err(Fault::protocol("tls", "the answer is not that of a PostgreSQL server")),
    }
}

fn refused(Refused(text): Refused) -> Fault {
    Fault::protocol("authenticate", text)
}

/// A session that is ready for a query.
pub struct Session {
    /// Its connection.
    pub link: Link,
    timeout: Duration,
}

impl Session {
    /// Logs in.
    pub fn open(login: &Login) -> Outcome<(Session, Phases)> {
        let (addresses, resolve_ns) = resolve(&login.place, login.timeout)?;
        let (socket, address, connect_ns) = connect(&addresses, login.timeout, login.receive_buffer)?;
        let mut session = Session { link: Link::new(socket, login.timeout), timeout: login.timeout };
        let (tls_ns, encrypted) = session.encrypt(login, &address)?;
        let began = now_ns();
        let method = session.authenticate(login)?;
        let login_ns = now_ns() - began;
        Ok((session, Phases { resolve_ns, connect_ns, tls_ns, login_ns, encrypted, method, address }))
    }

    fn encrypt(&mut self, login: &Login, address: &Address) -> Outcome<(Option<i64>, bool)> {
        if login.ssl == SslMode::Disable || matches!(address, Address::Unix(_)) {
            return Ok((None, false));
        }
        let link = &mut self.link;
        link.phase = "tls";
        link.allow(self.timeout);
        let began = now_ns();
        if !request_tls(link)? {
            if login.ssl != SslMode::Prefer {
                return Err(Fault::new("tls", "unsupported", "the server does not speak TLS"));
            }
            return Ok((Some(now_ns() - began), false));
        }
        let Place::Tcp(host, _) = &login.place else { return Ok((None, false)) };
        let root = login.root.clone().unwrap_or_default();
        let check = match login.ssl {
            SslMode::VerifyCa => Check::Authority(root),
            SslMode::VerifyFull => Check::Full(root),
            _ => Check::None,
        };
        link.start_tls(tls::client(host, &check)?)?;
        Ok((Some(now_ns() - began), true))
    }

    fn authenticate(&mut self, login: &Login) -> Outcome<&'static str> {
        self.link.phase = "authenticate";
        self.link.allow(self.timeout);
        let parameters =
            [("user", login.user.as_str()), ("database", &login.database), ("application_name", "leadline")];
        self.link.send(&startup(&parameters))?;
        let mut method = "trust";
        let mut scram = None;
        let password = || {
            login
                .password
                .as_deref()
                .ok_or_else(|| Fault::new("authenticate", "password", "the server wants a password"))
        };
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'E' => return Err(error("authenticate", &body)),
                b'R' => {}
                b'Z' => return Ok(method),
                _ => continue, // parameters, the key to cancel, notices
            }
            let Some((code, rest)) = body.split_first_chunk::<4>() else {
                return Err(Fault::protocol("authenticate", "a message is too short"));
            };
            let answer: Vec<u8> = match u32::from_be_bytes(*code) {
                0 => continue,
                3 => {
                    method = "password";
                    [password()?.as_bytes(), b"\0"].concat()
                }
                5 => {
                    method = "md5";
                    let inner = md5::hex(&[password()?.as_bytes(), login.user.as_bytes()]);
                    let salt = rest.get(..4).ok_or_else(|| Fault::protocol("authenticate", "the salt is missing"))?;
                    [b"md5", md5::hex(&[inner.as_bytes(), salt]).as_bytes(), b"\0"].concat()
                }
                10 => {
                    method = "scram-sha-256";
                    if !rest.split(|byte| *byte == 0).any(|name| name == b"SCRAM-SHA-256") {
                        return Err(Fault::new("authenticate", "unsupported", "the server offers no SCRAM-SHA-256"));
                    }
                    password()?;
                    let first = scram.insert(Scram::new().map_err(refused)?).first();
                    [b"SCRAM-SHA-256\0".as_slice(), &(first.len() as u32).to_be_bytes(), first.as_bytes()].concat()
                }
                11 => match scram.as_mut() {
                    Some(scram) => scram.last(rest, password()?).map_err(refused)?.into_bytes(),
                    None => return Err(Fault::protocol("authenticate", "SCRAM goes on before it began")),
                },
                12 => match scram.as_ref() {
                    Some(scram) => {
                        scram.check(rest).map_err(refused)?;
                        continue;
                    }
                    None => return Err(Fault::protocol("authenticate", "SCRAM ends before it began")),
                },
                code => {
                    let name = match code {
                        2 => "Kerberos V5",
                        7 | 8 => "GSSAPI",
                        9 => "SSPI",
                        _ => "a kind that is not known",
                    };
                    return Err(Fault::new(
                        "authenticate",
                        "unsupported",
                        format!("the server wants {name} (code {code})"),
                    ));
                }
            };
            self.link.send(&Out::default().message(b'p', &answer).0)?;
        }
    }

    /// The next message, whole.
    fn message(&mut self) -> Outcome<(u8, Vec<u8>)> {
        let (kind, length) = head(&mut self.link)?;
        Ok((kind, self.link.take(length)?.to_vec()))
    }

    /// Sends messages and reads the answer up to ReadyForQuery; the time between. `seen` gets the type and length of each message, whose
    /// body is passed over; if it says false, the exchange ends there, and the session is of no more use.
    pub(crate) fn exchange(
        &mut self,
        phase: &'static str,
        out: &[u8],
        seen: &mut dyn FnMut(u8, usize) -> bool,
    ) -> Outcome<i64> {
        self.link.phase = phase;
        self.link.allow(self.timeout);
        let began = now_ns();
        self.link.send(out)?;
        let mut failed = None;
        loop {
            let (kind, length) = head(&mut self.link)?;
            match kind {
                b'E' => failed = failed.or(Some(error(phase, self.link.take(length)?))),
                _ => self.link.skip(length)?,
            }
            if !seen(kind, length) {
                return Err(Fault::new(phase, "interrupted", "interrupted in the middle of an answer"));
            }
            match kind {
                b'Z' => break,
                // Of a long result, the time counts from the last sign of life.
                b'D' if phase == "fetch" => self.link.allow(self.timeout),
                b'G' => return Err(Fault::new(phase, "unsupported", "COPY FROM STDIN is not measured")),
                _ => {}
            }
        }
        failed.map_or_else(|| Ok(now_ns() - began), Err)
    }

    /// One empty round trip: Sync. It starts no statement and no transaction.
    pub fn ping(&mut self) -> Outcome<i64> {
        self.exchange("ping", &Out::default().sync().0, &mut |_, _| true)
    }

    /// Prepares the statement of `execute`.
    pub fn prepare(&mut self) -> Outcome<i64> {
        self.exchange("prepare", &Out::default().parse(STATEMENT, "SELECT 1").sync().0, &mut |_, _| true)
    }

    /// Executes `SELECT 1`, which was prepared, in one round trip.
    pub fn execute(&mut self) -> Outcome<i64> {
        self.exchange("execute", &Out::default().bind("", STATEMENT).execute("", 0).sync().0, &mut |_, _| true)
    }

    /// Begins a portal of a query in a transaction; `fetch` reads it.
    pub fn open_portal(&mut self, sql: &str) -> Outcome<i64> {
        let out = Out::default().parse("", "BEGIN").bind("", "").execute("", 0).parse("", sql).bind("c", "").sync();
        self.exchange("query", &out.0, &mut |_, _| true)
    }

    /// The next rows of the portal, at most so many (0: all of the rest), in one round trip: `seen` as for every exchange.
    pub(crate) fn fetch(&mut self, rows: u32, seen: &mut dyn FnMut(u8, usize) -> bool) -> Outcome<i64> {
        self.exchange("fetch", &Out::default().execute("c", rows).sync().0, seen)
    }

    /// A simple query, of which only the time is kept.
    pub fn query(&mut self, sql: &str) -> Outcome<i64> {
        self.exchange("query", &Out::default().query(sql.as_bytes()).0, &mut |_, _| true)
    }

    /// The connection itself, for a client that reads and writes it in its own way; None if it has failed.
    pub fn into_channel(self) -> Option<Channel> {
        self.link.into_channel()
    }

    /// Says good-bye; the server ends the session in its own time.
    pub fn close(mut self) {
        self.link.phase = "close";
        let _ = self.link.send(&Out::default().terminate().0); // it is over either way
    }
}
