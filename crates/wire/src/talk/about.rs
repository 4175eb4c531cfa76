//! What a connection says of itself while it is made: who, to which database, and how it proves that.

/// Encryption that a client asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Encryption {
    #[default]
    NotAsked,
    /// Asked for, and no answer was seen.
    Asked,
    Refused,
    Accepted,
}

impl Encryption {
    /// As the tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Encryption::NotAsked => "not asked",
            Encryption::Asked => "asked",
            Encryption::Refused => "refused",
            Encryption::Accepted => "accepted",
        }
    }
}

/// How the client proved who it is, as far as the packets show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// The beginning of the connection was not seen, or it is encrypted.
    #[default]
    Unseen,
    /// The server asked for nothing, or was content with an empty password.
    NotAsked,
    /// By the name that the protocol has for it.
    By(String),
}

impl Auth {
    /// By a method of this name.
    pub fn by(name: &str) -> Auth {
        Auth::By(if name.is_empty() { "other" } else { name }.to_owned())
    }

    /// As the tables name it.
    pub fn name(&self) -> &str {
        match self {
            Auth::Unseen => "unseen",
            Auth::NotAsked => "not asked",
            Auth::By(name) => name,
        }
    }
}

/// What is known of a connection. No text in it is longer than [`MOST_NAME`] bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct About {
    pub tls: Encryption,
    pub gss: Encryption,
    pub auth: Auth,
    /// The server let the client in, or refused it; none when neither was seen.
    pub let_in: Option<bool>,
    /// A password went over the wire in clear text.
    pub password_readable: bool,
    pub user: String,
    pub database: String,
    pub application: String,
    /// SQLSTATE of the error that refused the client.
    pub sqlstate: String,
    /// When the server was ready for the first query.
    pub ready_ts: Option<i64>,
    /// Places where messages could not be read any more.
    pub lost_places: u64,
}

/// Longest name that is kept: PostgreSQL's own limit.
pub const MOST_NAME: usize = 63;

impl About {
    /// Parameters of the first message: names and values, each ended by a zero.
    pub fn startup(&mut self, body: &[u8]) {
        let mut texts = body.split(|byte| *byte == 0);
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            match name {
                b"user" => self.user = name_of(value),
                b"database" => self.database = name_of(value),
                b"application_name" => self.application = name_of(value),
                _ => {}
            }
        }
        if self.database.is_empty() {
            self.database = self.user.clone();
        }
    }

    /// The server is content.
    pub fn accepted(&mut self) {
        self.let_in = Some(true);
        if self.auth == Auth::Unseen {
            self.auth = Auth::NotAsked;
        }
    }

    /// The server is ready for queries.
    pub fn ready(&mut self, ts: i64) {
        self.ready_ts.get_or_insert(ts);
    }

    /// An error: its SQLSTATE, when it refuses the client.
    pub fn error(&mut self, body: &[u8], in_login: bool) {
        if !in_login {
            return;
        }
        self.let_in = Some(false);
        for field in body.split(|byte| *byte == 0) {
            if let [b'C', state @ ..] = field {
                self.sqlstate = name_of(&state[..state.len().min(5)]);
            }
        }
    }
}

/// A name from outside: what is no printable text becomes a replacement character.
pub fn name_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_NAME)]);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
