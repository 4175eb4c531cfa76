use crate::capability::{CONNECT_WITH_DB, PLUGIN_AUTH, PROTOCOL_41, SECURE_CONNECTION, SSL};

/// `utf8mb4_general_ci`.
const UTF8: u8 = 45;
/// The longest packet that we take.
const LONGEST: u32 = 1 << 24;

fn front(database: &str, encrypted: bool) -> Vec<u8> {
    let flags = PROTOCOL_41
        | SECURE_CONNECTION
        | PLUGIN_AUTH
        | if database.is_empty() { 0 } else { CONNECT_WITH_DB }
        | if encrypted { SSL } else { 0 };
    [flags.to_le_bytes().as_slice(), &LONGEST.to_le_bytes(), &[UTF8], &[0; 23]].concat()
}

/// Asks for TLS before the login.
pub fn request_tls(database: &str) -> Vec<u8> {
    front(database, true)
}

/// The client's answer to the greeting. `proof`: of the method `plugin`, at most 255 bytes.
pub fn login(user: &str, database: &str, plugin: &str, proof: &[u8], encrypted: bool) -> Vec<u8> {
    let mut body = front(database, encrypted);
    body.extend_from_slice(&[user.as_bytes(), b"\0", &[proof.len() as u8], proof].concat());
    if !database.is_empty() {
        body.extend_from_slice(&[database.as_bytes(), b"\0"].concat());
    }
    body.extend_from_slice(&[plugin.as_bytes(), b"\0"].concat());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_a_database_only_when_it_says_so() {
        let with = login("me", "shop", "p", &[1, 2], false);
        assert_eq!(&with[32..], b"me\0\x02\x01\x02shop\0p\0");
        assert_eq!(u32::from_le_bytes(with[..4].try_into().unwrap()) & (CONNECT_WITH_DB | SSL), CONNECT_WITH_DB);
        assert_eq!(&login("me", "", "p", &[], true)[32..], b"me\0\0p\0");
        assert_eq!(u32::from_le_bytes(request_tls("")[..4].try_into().unwrap()) & (CONNECT_WITH_DB | SSL), SSL);
        assert_eq!(request_tls("").len(), 32);
    }
}
