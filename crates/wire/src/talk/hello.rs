//! The first bytes of TLS: whether they are, and which protocol the client wants to speak inside.

use leadline_bytes::{Bytes, Endian, Truncated};

const CLIENT_HELLO: u8 = 1;
const ALPN: u16 = 16;

/// A handshake of TLS begins.
pub fn is_handshake(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, 0..=4, ..])
}

/// Encrypted data of TLS.
pub fn is_data(bytes: &[u8]) -> bool {
    matches!(bytes, [0x17, 3, 3, ..])
}

/// The client names PostgreSQL (ALPN), as the server requires where TLS begins without a request.
pub fn is_for_postgres(bytes: &[u8]) -> bool {
    names_postgres(bytes).unwrap_or(false)
}

fn names_postgres(bytes: &[u8]) -> Result<bool, Truncated> {
    let mut hello = Bytes::new(bytes, Endian::Big);
    hello.take("head of the record", 5)?;
    if hello.u8("kind")? != CLIENT_HELLO {
        return Ok(false);
    }
    hello.take("length, version and random bytes", 3 + 2 + 32)?;
    let session = hello.u8("length of the session id")?;
    hello.take("session id", session.into())?;
    let ciphers = hello.u16("length of the ciphers")?;
    hello.take("ciphers", ciphers.into())?;
    let compressions = hello.u8("length of the compressions")?;
    hello.take("compressions", compressions.into())?;
    hello.u16("length of the extensions")?;
    loop {
        let (kind, length) = (hello.u16("extension")?, hello.u16("length of the extension")?);
        let body = hello.take("extension", length.into())?;
        if kind == ALPN {
            return names(body);
        }
    }
}

fn names(body: &[u8]) -> Result<bool, Truncated> {
    let mut names = Bytes::new(body, Endian::Big);
    names.u16("length of the names")?;
    loop {
        let length = names.u8("length of a name")?;
        if names.take("name", length.into())? == b"postgresql" {
            return Ok(true);
        }
    }
}
