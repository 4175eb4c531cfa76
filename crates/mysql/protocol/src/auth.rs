//! Methods by which a client proves its password.

use ring::digest;

/// SHA-1 of the password, since 4.1.
pub const NATIVE: &str = "mysql_native_password";
/// The hash of servers before 4.1.
pub const OLD: &str = "mysql_old_password";
/// SHA-256; the server may have the password in its cache.
pub const CACHING_SHA2: &str = "caching_sha2_password";
/// The password itself, or encrypted with the server's RSA key.
pub const SHA256: &str = "sha256_password";
/// The password itself.
pub const CLEAR: &str = "mysql_clear_password";

/// Of caching_sha2_password, after [`crate::packet::AUTH_MORE_DATA`]: the password is in the server's cache.
pub const IS_CACHED: u8 = 3;
/// It is not: the server wants the password itself.
pub const WANTS_PASSWORD: u8 = 4;

/// What proves the password to a server with this method; none of a method that is not known here.
pub fn proof(plugin: &str, password: &str, salt: &[u8]) -> Option<Vec<u8>> {
    if password.is_empty() {
        return Some(Vec::new());
    }
    let hash = |kind, parts: &[&[u8]]| digest::digest(kind, &parts.concat()).as_ref().to_vec();
    let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect();
    match plugin {
        NATIVE => {
            let kind = &digest::SHA1_FOR_LEGACY_USE_ONLY;
            let once = hash(kind, &[password.as_bytes()]);
            let twice = hash(kind, &[&once]);
            Some(xor(&once, &hash(kind, &[salt, &twice])))
        }
        CACHING_SHA2 => {
            let kind = &digest::SHA256;
            let once = hash(kind, &[password.as_bytes()]);
            let twice = hash(kind, &[&once]);
            Some(xor(&once, &hash(kind, &[&twice, salt])))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &[u8] = b"12345678abcdefghijkl";

    #[test]
    fn a_password_is_proven_and_not_sent() {
        for (plugin, length) in [(NATIVE, 20), (CACHING_SHA2, 32)] {
            let proof = proof(plugin, "secret", SALT).unwrap();
            assert_eq!(proof.len(), length);
            assert!(!proof.windows(6).any(|part| part == b"secret"));
        }
        assert_eq!((proof("dialog", "x", SALT), proof("dialog", "", SALT)), (None, Some(Vec::new())));
    }

    /// The server has the hash of the hash, gets the hash out of the proof, and hashes that.
    #[test]
    fn a_server_finds_the_proof_right() {
        let kind = &digest::SHA1_FOR_LEGACY_USE_ONLY;
        let hash = |bytes: &[u8]| digest::digest(kind, bytes).as_ref().to_vec();
        let stored = hash(&hash(b"secret"));
        let key = hash(&[SALT, &stored].concat());
        let unwrapped = |password| -> Vec<u8> {
            let proof = proof(NATIVE, password, SALT).unwrap();
            hash(&proof.iter().zip(&key).map(|(a, b)| a ^ b).collect::<Vec<_>>())
        };
        assert_eq!(unwrapped("secret"), stored);
        assert_ne!(unwrapped("Secret"), stored);
    }
}
