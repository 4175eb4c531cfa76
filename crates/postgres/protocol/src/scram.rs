//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as a client, without channel binding.
//!
//! The password is used as it is given. One that SASLprep would change (not ASCII, and not in its normal form) is not known to the server in
//! this form.

use std::num::NonZeroU32;

use base64::prelude::{Engine, BASE64_STANDARD};
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2, rand};

/// A server that asks for more rounds makes us work for seconds.
const MOST_ROUNDS: u32 = 1_000_000;
const HEADER: &str = "n,,"; // no channel binding

/// An exchange under way.
pub struct Scram {
    nonce: String,
    server_signature: Vec<u8>,
}

/// What the server said that it must not, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

/// Result with it.
pub type Result<T> = std::result::Result<T, Refused>;

fn fault(text: &str) -> Refused {
    Refused(format!("SCRAM: {text}"))
}

impl Scram {
    /// With a nonce of its own.
    pub fn new() -> Result<Scram> {
        let mut random = [0; 18];
        rand::SystemRandom::new().fill(&mut random).map_err(|_| fault("there are no random numbers"))?;
        Ok(Scram { nonce: BASE64_STANDARD.encode(random), server_signature: Vec::new() })
    }

    /// The first message. The name of the user is in the start of the connection, and empty here.
    pub fn first(&self) -> String {
        format!("{HEADER}{}", self.first_bare())
    }

    fn first_bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }

    /// The answer to the server's first message.
    pub fn last(&mut self, server_first: &[u8], password: &str) -> Result<String> {
        let server_first = std::str::from_utf8(server_first).map_err(|_| fault("the server's message is no text"))?;
        let part = |name: &str| {
            let found = server_first.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| fault(&format!("the server's message has no {name}=")))
        };
        let nonce = part("r")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(fault("the server answers another exchange"));
        }
        let salt = BASE64_STANDARD.decode(part("s")?).map_err(|_| fault("the salt is not in base64"))?;
        let rounds = part("i")?.parse().ok().filter(|rounds| (1..=MOST_ROUNDS).contains(rounds));
        let rounds = rounds.and_then(NonZeroU32::new).ok_or_else(|| fault("the number of rounds makes no sense"))?;

        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let without_proof = format!("c={},r={nonce}", BASE64_STANDARD.encode(HEADER));
        let exchange = format!("{},{server_first},{without_proof}", self.first_bare());
        let signature = sign(stored_key.as_ref(), exchange.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(key, signature)| key ^ signature).collect();
        self.server_signature = sign(&sign(&salted, b"Server Key"), exchange.as_bytes());
        Ok(format!("{without_proof},p={}", BASE64_STANDARD.encode(proof)))
    }

    /// Whether the server too knows the password.
    pub fn check(&self, server_last: &[u8]) -> Result<()> {
        let signature = server_last.strip_prefix(b"v=").and_then(|v| BASE64_STANDARD.decode(v).ok());
        match signature {
            Some(signature) if !signature.is_empty() && signature == self.server_signature => Ok(()),
            _ => Err(fault("the server does not prove that it knows the password")),
        }
    }
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, but for the name of the user, which it has in its messages.
    #[test]
    fn an_exchange_is_bound_to_its_nonce_and_password() {
        let mut scram = Scram { nonce: "rOprNGfwEbeRWgbNEkqO".into(), server_signature: Vec::new() };
        let server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let last = scram.last(server, "pencil").unwrap();
        assert!(last.starts_with("c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p="), "{last}");
        let signature = BASE64_STANDARD.encode(&scram.server_signature);
        scram.check(format!("v={signature}").as_bytes()).unwrap();
        assert!(scram.check(b"v=AAAA").is_err() && scram.check(b"e=other-error").is_err());
        assert_ne!(scram.last(server, "pencil2").unwrap(), last);
    }

    #[test]
    fn what_a_server_must_not_say_is_a_fault() {
        for said in [
            "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=mine,s=W22Z,i=4096",
            "r=mineX,s=%%%,i=4096",
            "r=mineX,s=W22Z,i=0",
            "r=mineX,s=W22Z,i=4000000000",
            "r=mineX,s=W22Z",
            "",
        ] {
            let mut scram = Scram { nonce: "mine".into(), server_signature: Vec::new() };
            assert!(scram.last(said.as_bytes(), "p").is_err(), "{said}");
        }
    }
}
