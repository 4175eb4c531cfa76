//! Messages of the protocol: those that we send built, those that come read with their lengths checked.

use crate::fault::{Fault, Outcome};
use crate::link::Link;

/// A message that is no row is not longer than this; a server that says so is none.
const LONGEST: usize = 1 << 20;

/// Messages to be sent together.
#[derive(Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    /// Adds a message of this type; 0: without one, as at the start of a connection.
    pub(super) fn message(mut self, kind: u8, body: &[u8]) -> Out {
        if kind != 0 {
            self.0.push(kind);
        }
        self.0.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.0.extend_from_slice(body);
        self
    }

    pub(super) fn parse(self, name: &str, sql: &str) -> Out {
        self.message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0", &[0, 0]].concat())
    }

    /// A portal of a statement without parameters, its columns as text.
    pub(super) fn bind(self, portal: &str, name: &str) -> Out {
        self.message(b'B', &[portal.as_bytes(), b"\0", name.as_bytes(), b"\0", &[0; 6]].concat())
    }

    /// rows: at most so many, 0 for all.
    pub(super) fn execute(self, portal: &str, rows: u32) -> Out {
        self.message(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
    }

    pub(super) fn sync(self) -> Out {
        self.message(b'S', &[])
    }
}

/// The first message of a connection.
pub(super) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec(); // version 3.0
    for (name, value) in parameters {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(value.as_bytes());
        body.push(0);
    }
    body.push(0);
    Out::default().message(0, &body).0
}

/// Asks whether the server speaks TLS.
pub(super) const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Type and length of the body of the next message. The body is still to be taken.
pub(super) fn head(link: &mut Link) -> Outcome<(u8, usize)> {
    let phase = link.phase;
    let head = link.take(5)?;
    let (kind, length) = (head[0], i32::from_be_bytes([head[1], head[2], head[3], head[4]]));
    let length = usize::try_from(length).ok().and_then(|n| n.checked_sub(4));
    match length {
        Some(length) if kind.is_ascii_alphanumeric() && (kind == b'D' || kind == b'd' || length <= LONGEST) => {
            Ok((kind, length))
        }
        _ => Err(Fault::protocol(phase, "the answer is not that of a PostgreSQL server")),
    }
}

/// What an ErrorResponse says: its SQLSTATE and its message.
pub(super) fn error(phase: &'static str, body: &[u8]) -> Fault {
    let (mut cause, mut text) = ("protocol".to_owned(), String::new());
    for field in body.split(|byte| *byte == 0) {
        let Some((kind, value)) = field.split_first() else { continue };
        let value = String::from_utf8_lossy(value);
        match kind {
            b'C' => cause = value.into_owned(),
            b'M' => text = value.into_owned(),
            _ => {}
        }
    }
    Fault { phase, cause, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_the_protocol() {
        assert_eq!(Out::default().sync().0, b"S\0\0\0\x04");
        assert_eq!(Out::default().execute("p", 7).0, b"E\0\0\0\x0ap\0\0\0\0\x07");
        assert_eq!(Out::default().parse("", "select 1").0, b"P\0\0\0\x10\0select 1\0\0\0");
        assert_eq!(startup(&[("user", "a")]), b"\0\0\0\x10\0\x03\0\0user\0a\0\0");
    }

    #[test]
    fn an_error_is_its_sqlstate_and_message_whatever_else_there_is() {
        let fault = error("login", b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0Fauth.c\0\0");
        assert_eq!((fault.cause.as_str(), fault.text.as_str()), ("28P01", "password authentication failed"));
        assert_eq!(error("login", b"\0\xff").cause, "protocol");
    }
}
