//! What ended an exchange over the network: in which phase, by which cause, in the words of the system or the server.

use std::io;

use leadline_errors::{Error, Kind};
use serde_json::{json, Value};

/// A failed exchange. Faults of one cause and phase belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What was being done: resolve, connect, tls, authenticate, query, ...
    pub phase: &'static str,
    /// The name of an errno, an SQLSTATE, or one of: timeout, closed, dns, protocol, tls, unsupported, password.
    pub cause: String,
    /// One line. Never holds a password.
    pub text: String,
}

/// Result with it.
pub type Outcome<T> = Result<T, Fault>;

impl Fault {
    /// With a cause of our own.
    pub fn new(phase: &'static str, cause: &str, text: impl Into<String>) -> Fault {
        Fault { phase, cause: cause.to_owned(), text: text.into() }
    }

    /// What the system said.
    pub fn io(phase: &'static str, e: &io::Error) -> Fault {
        let said = e.to_string();
        let text = said.split(" (os error").next().unwrap_or_default().to_owned(); // the cause names it
        let cause = match (e.raw_os_error(), e.kind()) {
            (Some(libc::EAGAIN), _) | (None, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                "timeout".to_owned()
            }
            (Some(code), _) => errno_name(code),
            (None, io::ErrorKind::UnexpectedEof) => "closed".to_owned(),
            (None, io::ErrorKind::InvalidData) => "protocol".to_owned(),
            (None, kind) => kind.to_string(),
        };
        Fault { phase, cause, text }
    }

    /// The other end closed the connection.
    pub fn closed(phase: &'static str) -> Fault {
        Fault::new(phase, "closed", "the server closed the connection")
    }

    /// Bytes that are not of the protocol.
    pub fn protocol(phase: &'static str, text: impl Into<String>) -> Fault {
        Fault::new(phase, "protocol", text)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({ "phase": self.phase, "cause": self.cause, "text": self.text })
    }

    /// As the outcome of a try.
    pub fn outcome(&self) -> Value {
        json!({ "fault": self.json() })
    }

    /// As the error that ends a command. `place`: the address.
    pub fn error(&self, place: &str) -> Error {
        let (message, hint) = match self.cause.as_str() {
            "dns" => ("the name of the host cannot be resolved", "check the name, or use the address"),
            "ECONNREFUSED" => ("nobody listens there", "check host and port, and that the server runs"),
            "timeout" if self.phase == "connect" => (
                "no answer to the connection attempt",
                "a firewall may drop the packets, or the server accepts no more; see --timeout",
            ),
            "timeout" => (
                "no answer in time",
                "the server may hang, or wait for another protocol; --timeout sets how long to wait",
            ),
            "ECONNRESET" | "ECONNABORTED" | "EPIPE" => (
                "the server broke the connection off",
                "it may have ended, or be a proxy that does not reach its own server",
            ),
            "ENETUNREACH" | "EHOSTUNREACH" => (
                "there is no way to the host",
                "check the address and the routes of this host; a firewall may say so too",
            ),
            "closed" => {
                ("the server closed the connection", "check that this port speaks the protocol that was asked for")
            }
            "protocol" => ("the server does not speak this protocol", "check host and port"),
            _ => ("the exchange with the server failed", ""),
        };
        let detail = format!("{}: {} ({})", self.phase, self.text, self.cause);
        Error::new(Kind::Connection, message).detail(detail).hint(hint).at(place)
    }
}

/// The name of an error number of those that sockets give, else its number.
fn errno_name(code: i32) -> String {
    let name = match code {
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ECONNRESET => "ECONNRESET",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::EPIPE => "EPIPE",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EACCES => "EACCES",
        libc::EPERM => "EPERM",
        libc::EMFILE => "EMFILE",
        libc::ENFILE => "ENFILE",
        libc::ENOENT => "ENOENT",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_one_name_whatever_the_text() {
        let of = |e: io::Error| Fault::io("connect", &e).cause;
        assert_eq!(of(io::Error::from_raw_os_error(libc::ECONNREFUSED)), "ECONNREFUSED");
        assert_eq!(of(io::Error::from_raw_os_error(libc::EAGAIN)), "timeout");
        assert_eq!(of(io::ErrorKind::UnexpectedEof.into()), "closed");
        assert_eq!(of(io::Error::from_raw_os_error(9999)), "errno 9999");
    }

    #[test]
    fn what_the_system_says_is_told_once_and_with_advice() {
        let told = |code: i32| {
            let error = Fault::io("connect", &io::Error::from_raw_os_error(code)).error("db01:5432");
            assert!(!error.hint.is_empty(), "{error}");
            (error.message, error.detail)
        };
        let refused = ("nobody listens there".into(), "connect: Connection refused (ECONNREFUSED)".into());
        assert_eq!(told(libc::ECONNREFUSED), refused);
        for (code, message) in [
            (libc::ECONNRESET, "the server broke the connection off"),
            (libc::EPIPE, "the server broke the connection off"),
            (libc::ENETUNREACH, "there is no way to the host"),
            (libc::EHOSTUNREACH, "there is no way to the host"),
        ] {
            assert_eq!(told(code).0, message);
        }
    }
}
