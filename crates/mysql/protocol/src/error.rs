use crate::packet::ERR;

/// What the server says against something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPacket<'a> {
    /// The server's number of the error.
    pub number: u16,
    /// Five letters; servers leave it out before the login.
    pub sqlstate: Option<&'a [u8]>,
    /// In words.
    pub message: &'a [u8],
}

impl<'a> ErrorPacket<'a> {
    /// From the body of a packet; none when it is no error.
    pub fn parse(body: &'a [u8]) -> Option<ErrorPacket<'a>> {
        let [ERR, low, high, rest @ ..] = body else { return None };
        let number = u16::from_le_bytes([*low, *high]);
        Some(match rest {
            [b'#', rest @ ..] if rest.len() >= 5 => {
                let (sqlstate, message) = rest.split_at(5);
                ErrorPacket { number, sqlstate: Some(sqlstate), message }
            }
            message => ErrorPacket { number, sqlstate: None, message },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_state_or_none() {
        let denied = ErrorPacket::parse(b"\xff\x15\x04#28000Access denied").unwrap();
        assert_eq!(
            (denied.number, denied.sqlstate, denied.message),
            (1045, Some(&b"28000"[..]), &b"Access denied"[..])
        );
        let full = ErrorPacket::parse(b"\xff\x10\x04Too many connections").unwrap();
        assert_eq!((full.number, full.sqlstate, full.message), (1040, None, &b"Too many connections"[..]));
        assert_eq!(ErrorPacket::parse(b"\xff\x10\x04#280").unwrap().message, b"#280");
        assert_eq!([&b"\xff\x10"[..], b"\0\0\0", b""].map(ErrorPacket::parse), [None; 3]);
    }
}
