//! How a client of MySQL or MariaDB logs in: by which method, and whether the password can be read.
//!
//! Where no method is named, there is only one: clients since 4.1 hash with SHA-1, those before it with the older hash.

use super::about::{name_of, About, Auth};
use super::squeezed::Codec;
use leadline_bytes::{Bytes, Endian, Truncated};

const CONNECT_WITH_DB: u32 = 0x8;
const COMPRESS: u32 = 0x20;
const PROTOCOL_41: u32 = 0x200;
const SSL: u32 = 0x800;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const LENENC_AUTH: u32 = 0x20_0000;
const ZSTD: u32 = 0x400_0000;
/// A login packet that asks for TLS ends after its fixed part; that of a client before 4.1 after five bytes.
const TLS_REQUESTS: [u64; 2] = [32, 5];
const NATIVE: &[u8] = b"mysql_native_password";
const OLD: &[u8] = b"mysql_old_password";
/// A password of sha256_password that is encrypted with the server's RSA key has the length of the key, of 1024 bits at least.
const LEAST_RSA: u64 = 128;

/// What the next packet of the client is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing that can be read as a password.
    #[default]
    Proof,
    /// The password, unless it is one byte: a request for the server's key, or an empty one.
    Password,
    /// The same, but it may be encrypted with a key that the client has.
    PasswordOrRsa,
}

/// What both ends say they can do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Codecs {
    server: u32,
    client: u32,
}

impl Codecs {
    /// How both compress what follows the login.
    pub fn agreed(self) -> Option<Codec> {
        match self.server & self.client {
            both if both & COMPRESS != 0 => Some(Codec::Zlib),
            both if both & ZSTD != 0 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// The login of a connection.
#[derive(Debug, Default)]
pub struct Login {
    pub next: Next,
    pub codecs: Codecs,
    /// Something that proves a password was sent.
    proven: bool,
}

/// Whether this is no login but a request for TLS.
pub fn asks_for_tls(body: &[u8], length: u64) -> bool {
    TLS_REQUESTS.contains(&length)
        && matches!(body, [low, high, ..] if u32::from(u16::from_le_bytes([*low, *high])) & SSL != 0)
}

impl Login {
    /// The server's greeting.
    pub fn greeted(&mut self, body: &[u8]) {
        self.codecs.server = capabilities(body).unwrap_or(0);
    }

    /// The client's first packet.
    ///
    /// # Errors
    /// It is shorter than it says; what stands in front is known all the same.
    pub fn take(&mut self, body: &[u8], about: &mut About) -> Result<(), Truncated> {
        let mut body = Bytes::new(body, Endian::Little);
        let low: u32 = body.u16("capabilities")?.into();
        if low & PROTOCOL_41 == 0 {
            self.codecs.client = low;
            body.take("packet size", 3)?;
            about.user = name_of(until_zero(&mut body));
            self.named(OLD, about);
            let proof = until_zero(&mut body);
            self.proven = !proof.is_empty();
            if low & CONNECT_WITH_DB != 0 {
                about.database = name_of(until_zero(&mut body));
            }
            return Ok(());
        }
        let flags = low | u32::from(body.u16("capabilities")?) << 16;
        self.codecs.client = flags;
        body.take("packet size and character set", 28)?;
        about.user = name_of(until_zero(&mut body));
        self.named(if flags & SECURE_CONNECTION == 0 { OLD } else { NATIVE }, about);
        let proof = if flags & LENENC_AUTH != 0 {
            let length = lenenc(&mut body)?;
            body.take("proof", usize::try_from(length).unwrap_or(usize::MAX))?
        } else if flags & SECURE_CONNECTION != 0 {
            let length = body.u8("length")?;
            body.take("proof", length.into())?
        } else {
            until_zero(&mut body)
        };
        if flags & CONNECT_WITH_DB != 0 {
            about.database = name_of(until_zero(&mut body));
        }
        if flags & PLUGIN_AUTH != 0 {
            self.named(until_zero(&mut body), about);
        }
        self.proof(proof.first().copied(), proof.len() as u64, proof.last_chunk().copied(), about);
        Ok(())
    }

    /// The server asks for another method.
    pub fn switched(&mut self, name: &[u8], about: &mut About) {
        self.proven = false;
        self.named(name, about);
    }

    /// The client's proof: its first byte, its length, and its end.
    pub fn proof(&mut self, first: Option<u8>, length: u64, tail: Option<[u8; 4]>, about: &mut About) {
        // A zero alone is an empty password; one byte otherwise asks for the server's key.
        self.proven |= length > 1 || length == 1 && first != Some(0);
        about.password_readable |= match std::mem::take(&mut self.next) {
            Next::Proof => false,
            Next::Password => length > 1,
            Next::PasswordOrRsa => length > 1 && length < LEAST_RSA && tail.is_none_or(|tail| tail[3] == 0),
        };
    }

    /// The server is content.
    pub fn accepted(&mut self, about: &mut About) {
        about.accepted();
        if !self.proven && matches!(about.auth, Auth::By(_)) {
            about.auth = Auth::NotAsked;
        }
    }

    fn named(&mut self, name: &[u8], about: &mut About) {
        about.auth = Auth::by(&name_of(name));
        self.next = match name {
            b"mysql_clear_password" | b"dialog" | b"authentication_openid_connect_client" => Next::Password,
            b"sha256_password" => Next::PasswordOrRsa,
            _ => Next::Proof,
        };
    }
}

/// What the server can do, by its greeting.
fn capabilities(body: &[u8]) -> Result<u32, Truncated> {
    let mut body = Bytes::new(body, Endian::Little);
    body.u8("protocol")?;
    until_zero(&mut body);
    body.take("thread and scramble", 4 + 8 + 1)?;
    let low: u32 = body.u16("capabilities")?.into();
    // Servers before 4.1 end here.
    let high = body.take("character set and status", 3).and_then(|_| body.u16("capabilities")).unwrap_or(0);
    Ok(low | u32::from(high) << 16)
}

fn until_zero<'a>(bytes: &mut Bytes<'a>) -> &'a [u8] {
    let length = bytes.rest().iter().position(|byte| *byte == 0).unwrap_or(bytes.left());
    let text = bytes.take("text", length).unwrap_or(&[]);
    let _ = bytes.u8("end");
    text
}

/// A number of one to nine bytes.
///
/// # Errors
/// Bytes of it are missing.
pub fn lenenc(bytes: &mut Bytes<'_>) -> Result<u64, Truncated> {
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
