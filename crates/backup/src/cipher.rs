//! What pgBackRest encrypts: AES-256 in CBC mode as `openssl enc -aes-256-cbc -md sha1` does it, with a salt in front.
//!
//! Source: src/common/crypto/cipherBlock.c of pgBackRest; EVP_BytesToKey of OpenSSL.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecryptMut, KeyIvInit};
use sha1::{Digest, Sha1};

const MAGIC: &[u8] = b"Salted__";
const SALT: usize = 8;
/// Bytes of a block.
const BLOCK: usize = 16;
const KEY: usize = 32;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 16;

type Decryptor = cbc::Decryptor<aes::Aes256>;

/// A passphrase. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(String);

impl Passphrase {
    /// As the user or a manifest gives it.
    pub fn new(text: impl Into<String>) -> Passphrase {
        Passphrase(text.into())
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

/// The bytes that were encrypted.
pub(crate) struct Decrypted<R> {
    input: R,
    pass: Passphrase,
    /// The salt comes without the magic in front of it.
    is_raw: bool,
    cipher: Option<Decryptor>,
    /// What was read and not decrypted: less than a block more than the last one, whose end is padding.
    waiting: Vec<u8>,
    /// Decrypted bytes, and how many of them were taken.
    plain: Vec<u8>,
    taken: usize,
    is_done: bool,
}

impl<R: Read> Decrypted<R> {
    pub(crate) fn new(input: R, pass: Passphrase, is_raw: bool) -> Decrypted<R> {
        Decrypted {
            input,
            pass,
            is_raw,
            cipher: None,
            waiting: Vec::new(),
            plain: Vec::new(),
            taken: 0,
            is_done: false,
        }
    }

    fn begin(&mut self) -> io::Result<Decryptor> {
        let mut salt = [0; SALT];
        if !self.is_raw {
            self.input.read_exact(&mut salt).map_err(|_| damaged("no salt in front"))?;
            if salt != *MAGIC {
                return Err(damaged("it does not begin as an encrypted file does"));
            }
        }
        self.input.read_exact(&mut salt).map_err(|_| damaged("no salt in front"))?;
        let (key, start) = key_and_start(&self.pass, salt);
        Ok(Decryptor::new(&key.into(), &start.into()))
    }

    /// Reads and decrypts some more.
    fn more(&mut self) -> io::Result<()> {
        let mut cipher = match self.cipher.take() {
            Some(cipher) => cipher,
            None => self.begin()?,
        };
        let before = self.waiting.len();
        self.input.by_ref().take(PIECE as u64).read_to_end(&mut self.waiting)?;
        self.is_done = self.waiting.len() == before;
        // All whole blocks but the last.
        let kept = if self.is_done { 0 } else { BLOCK };
        let whole = self.waiting.len().saturating_sub(kept) / BLOCK * BLOCK;
        let rest = self.waiting.split_off(whole);
        self.plain = std::mem::replace(&mut self.waiting, rest);
        self.taken = 0;
        for block in self.plain.chunks_exact_mut(BLOCK) {
            cipher.decrypt_block_mut(GenericArray::from_mut_slice(block));
        }
        self.cipher = Some(cipher);
        if self.is_done {
            let padding = self.plain.last().copied().unwrap_or(0);
            let ends = self.plain.len().checked_sub(usize::from(padding)).and_then(|at| self.plain.get(at..));
            let is_padding = (1..=BLOCK).contains(&usize::from(padding))
                && ends.is_some_and(|ends| ends.iter().all(|byte| *byte == padding));
            if !self.waiting.is_empty() || !is_padding {
                return Err(damaged(
                    "it does not end as an encrypted file does: it is damaged, cut off, or the key is another",
                ));
            }
            self.plain.truncate(self.plain.len() - usize::from(padding));
        }
        Ok(())
    }
}

impl<R: Read> Read for Decrypted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.plain.len() && !self.is_done {
            self.more()?;
        }
        let rest = self.plain.get(self.taken..).unwrap_or_default();
        let read = rest.len().min(into.len());
        into[..read].copy_from_slice(&rest[..read]);
        self.taken += read;
        Ok(read)
    }
}

/// EVP_BytesToKey with SHA-1 and one round.
fn key_and_start(pass: &Passphrase, salt: [u8; SALT]) -> ([u8; KEY], [u8; BLOCK]) {
    let mut made: Vec<u8> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while made.len() < KEY + BLOCK {
        last = Sha1::new().chain_update(&last).chain_update(&pass.0).chain_update(salt).finalize().to_vec();
        made.extend(&last);
    }
    let (mut key, mut start) = ([0; KEY], [0; BLOCK]);
    key.copy_from_slice(&made[..KEY]);
    start.copy_from_slice(&made[KEY..KEY + BLOCK]);
    (key, start)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("cannot decrypt: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'sixteen bytes...and some more' | openssl enc -aes-256-cbc -md sha1 -k secret -S 0102030405060708`, the salt put in front.
    const MADE: &[u8] = include_bytes!("../testdata/openssl.enc");

    fn read(bytes: &[u8], pass: &str, is_raw: bool) -> Result<String, String> {
        let mut text = String::new();
        let done = Decrypted::new(bytes, Passphrase::new(pass), is_raw).read_to_string(&mut text);
        done.map(|_| text).map_err(|e| e.to_string())
    }

    #[test]
    fn what_openssl_encrypted_is_read() {
        let text = "sixteen bytes...and some more";
        assert_eq!(read(MADE, "secret", false).as_deref(), Ok(text));
        assert_eq!(read(&MADE[MAGIC.len()..], "secret", true).as_deref(), Ok(text));
    }

    #[test]
    fn another_key_and_every_cut_are_errors() {
        assert!(read(MADE, "Secret", false).is_err_and(|e| e.contains("the key is another")));
        for cut in 0..MADE.len() {
            assert!(read(&MADE[..cut], "secret", false).is_err(), "{cut} bytes of it");
        }
    }

    #[test]
    fn a_passphrase_is_not_printed() {
        assert_eq!(format!("{:?}", Passphrase::new("secret")), "Passphrase");
    }
}
