use leadline_bytes::{Bytes, Endian, Truncated};

use crate::field::until_zero;

/// The protocol that is spoken since 3.21.
const VERSION: u8 = 10;
/// Bytes of the salt in front; the others stand behind what the server can do.
const FIRST: usize = 8;
/// The least length that a greeting gives for the salt, with a zero at its end.
const LEAST_SALT: usize = 21;

/// What the server begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// Its version, as text.
    pub version: &'a [u8],
    /// What it can do: [`crate::capability`].
    pub capabilities: u32,
    /// What goes into the proof of a password; none of a server before 4.1, or when the rest is missing.
    pub salt: Option<Vec<u8>>,
    /// The method that it begins with; empty when it names none.
    pub plugin: &'a [u8],
}

impl<'a> Greeting<'a> {
    /// From the body of a packet.
    ///
    /// # Errors
    /// It ends before it says what the server can do.
    pub fn parse(body: &'a [u8]) -> Result<Greeting<'a>, Truncated> {
        let mut body = Bytes::new(body, Endian::Little);
        body.u8("protocol")?;
        let version = until_zero(&mut body);
        body.take("thread", 4)?;
        let first = body.take("salt", FIRST)?;
        body.take("end", 1)?;
        let low: u32 = body.u16("capabilities")?.into();
        // Servers before 4.1 end here.
        let high: u32 =
            body.take("character set and status", 3).and_then(|_| body.u16("capabilities")).unwrap_or(0).into();
        let second = second_salt(&mut body).ok();
        let salt = second.map(|second| [first, second.strip_suffix(b"\0").unwrap_or(second)].concat());
        let plugin = if salt.is_some() { until_zero(&mut body) } else { &[] };
        Ok(Greeting { version, capabilities: low | high << 16, salt, plugin })
    }

    /// Whether a packet is a greeting of the protocol that is spoken.
    pub fn is_known(body: &[u8]) -> bool {
        body.first() == Some(&VERSION)
    }
}

fn second_salt<'a>(body: &mut Bytes<'a>) -> Result<&'a [u8], Truncated> {
    let length = usize::from(body.u8("length of the salt")?).max(LEAST_SALT) - FIRST;
    body.take("zeros", 10)?;
    body.take("salt", length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::SSL;

    #[test]
    fn a_greeting_is_read_as_far_as_it_goes() {
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
        let found = Greeting::parse(&whole).unwrap();
        assert_eq!((found.version, found.plugin), (&b"8.0.36"[..], &b"caching_sha2_password"[..]));
        assert_eq!(found.salt.as_deref(), Some(&b"12345678abcdefghijkl"[..]));
        assert_eq!((found.capabilities & SSL, Greeting::is_known(&whole)), (SSL, true));
        let known: Vec<_> = (0..whole.len()).map(|n| Greeting::parse(&whole[..n]).ok()).collect();
        let first = |is: fn(&Greeting<'_>) -> bool| known.iter().position(|found| found.as_ref().is_some_and(is));
        assert_eq!(first(|_| true), Some(23), "low half of what the server can do");
        assert_eq!(first(|g| g.capabilities > 0xffff), Some(28), "high half");
        assert_eq!(first(|g| g.salt.is_some()), Some(52), "salt");
    }
}
