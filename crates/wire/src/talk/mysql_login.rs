//! How a client of MySQL or MariaDB logs in: by which method, and whether the password can be read.
//!
//! Where no method is named, there is only one: clients since 4.1 hash with SHA-1, those before it with the older hash.

use super::about::{name_of, About, Auth};
use super::squeezed::Codec;
use leadline_bytes::{Bytes, Endian, Truncated};
use leadline_mysql_protocol::auth;
use leadline_mysql_protocol::capability::{
    COMPRESS, CONNECT_WITH_DB, PLUGIN_AUTH, PLUGIN_AUTH_LENENC_CLIENT_DATA, PROTOCOL_41, SECURE_CONNECTION, SSL,
    ZSTD_COMPRESSION_ALGORITHM,
};
use leadline_mysql_protocol::field::{lenenc, until_zero};
use leadline_mysql_protocol::Greeting;

/// A login packet that asks for TLS ends after its fixed part; that of a client before 4.1 after five bytes.
const TLS_REQUESTS: [u64; 2] = [32, 5];
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
            both if both & ZSTD_COMPRESSION_ALGORITHM != 0 => Some(Codec::Zstd),
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
        self.codecs.server = Greeting::parse(body).map_or(0, |greeting| greeting.capabilities);
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
            self.named(auth::OLD.as_bytes(), about);
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
        let method = if flags & SECURE_CONNECTION == 0 { auth::OLD } else { auth::NATIVE };
        self.named(method.as_bytes(), about);
        let proof = if flags & PLUGIN_AUTH_LENENC_CLIENT_DATA != 0 {
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
