//! Messages that a server sends, their lengths checked.

use std::borrow::Cow;

/// A message that is no row is not longer than this; a server that says so is none.
pub const LONGEST: usize = 1 << 20;
/// Bytes before the body: the type, and the length.
pub const HEAD: usize = 5;
/// Of a column in a RowDescription, behind its name.
const COLUMN: usize = 18;

/// Type of a message and length of its body; None of bytes that no server of PostgreSQL sends.
pub fn head(head: [u8; HEAD]) -> Option<(u8, usize)> {
    let [kind, length @ ..] = head;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?.checked_sub(4)?;
    let fits = kind == b'D' || kind == b'd' || length <= LONGEST;
    (kind.is_ascii_alphanumeric() && fits).then_some((kind, length))
}

/// What an ErrorResponse says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// Five characters, or none where the server sent none.
    pub sqlstate: String,
    /// One line.
    pub message: String,
}

impl Failure {
    /// Of the body of an ErrorResponse.
    pub fn of(body: &[u8]) -> Failure {
        let mut failure = Failure::default();
        for field in body.split(|byte| *byte == 0) {
            let Some((kind, value)) = field.split_first() else { continue };
            let value = String::from_utf8_lossy(value);
            match kind {
                b'C' => failure.sqlstate = value.into_owned(),
                b'M' => failure.message = value.into_owned(),
                _ => {}
            }
        }
        failure
    }
}

/// Names of the columns of a RowDescription; None if the body ends before them.
pub fn columns(body: &[u8]) -> Option<Vec<Cow<'_, str>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut names = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let end = rest.iter().position(|byte| *byte == 0)?;
        names.push(String::from_utf8_lossy(&rest[..end]));
        rest = rest.get(end + 1 + COLUMN..)?;
    }
    Some(names)
}

/// Values of a DataRow, None of a NULL; None if the body ends before them.
pub fn values(body: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        values.push(match i32::from_be_bytes(*length) {
            -1 => None,
            length => {
                let (value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                Some(value)
            }
        });
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_its_sqlstate_and_message_whatever_else_there_is() {
        let failure = Failure::of(b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0Fauth.c\0\0");
        assert_eq!((failure.sqlstate.as_str(), failure.message.as_str()), ("28P01", "password authentication failed"));
        assert_eq!(Failure::of(b"\0\xff"), Failure::default());
    }

    #[test]
    fn only_rows_are_longer_than_a_megabyte() {
        assert_eq!(head(*b"Z\0\0\0\x05"), Some((b'Z', 1)));
        assert_eq!(head(*b"D\x7f\xff\xff\xff"), Some((b'D', 0x7fff_fffb)));
        for refused in [b"T\x7f\xff\xff\xff", b"Z\0\0\0\x03", b"D\xff\xff\xff\xff", b"\0\0\0\0\x05"] {
            assert_eq!(head(*refused), None);
        }
    }

    #[test]
    fn columns_and_values_end_where_the_body_ends() {
        let described = [b"\0\x02a\0".as_slice(), &[0; 18], b"?column?\0", &[0; 18]].concat();
        assert_eq!(columns(&described).unwrap(), ["a", "?column?"]);
        let row = b"\0\x03\0\0\0\x0212\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(values(row).unwrap(), [Some(b"12".as_slice()), None, Some(b"")]);
        for n in 0..described.len() {
            assert_eq!(columns(&described[..n]), None);
        }
        for n in 0..row.len() {
            assert_eq!(values(&row[..n]), None);
        }
        assert_eq!(values(b"\0\x01\xff\xff\xff\xfe"), None);
    }
}
