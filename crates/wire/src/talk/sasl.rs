//! What a client says first with SASL: the name of a mechanism, and for some the secret itself.

use super::about::name_of;

/// The longest name of a mechanism (RFC 4422).
const MOST_NAME: usize = 20;

/// The first message of a client, or the first mechanism of the list that a server offers.
pub struct First<'a> {
    /// In lower case.
    pub mechanism: String,
    data: &'a [u8],
}

impl First<'_> {
    /// Of the body: the name, a zero, and a length in four bytes before the data.
    pub fn of(body: &[u8]) -> First<'_> {
        let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
        First { mechanism: name_of(&body[..end]).to_lowercase(), data: body.get(end + 5..).unwrap_or(&[]) }
    }

    /// The name is one that a mechanism may have.
    pub fn is_named(&self) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=MOST_NAME).contains(&self.mechanism.len()) && self.mechanism.bytes().all(allowed)
    }

    /// The secret is in the data as it is: a password, or a bearer token, which serves whoever has it.
    pub fn is_secret_readable(&self) -> bool {
        match &*self.mechanism {
            "plain" | "login" => !self.data.is_empty(),
            // Fields are separated by a byte of value one. A client that asks where to get a token sends none.
            "oauthbearer" | "xoauth2" => self.data.split(|byte| *byte == 1).any(|field| {
                let (name, value) = field.split_at(field.len().min(5));
                name.eq_ignore_ascii_case(b"auth=") && !value.is_empty()
            }),
            _ => false,
        }
    }

    /// The password was not sent yet, and comes as it is.
    pub fn is_password_next(&self) -> bool {
        matches!(&*self.mechanism, "plain" | "login") && self.data.is_empty()
    }
}
