//! Texts of statements.

use leadline_shm::statement::{fingerprint, normalise, raw_hash};

/// A literal of three bytes may become a parameter of seven and a list's mark of five; a byte that is no UTF-8 becomes three.
const GROWTH: usize = 8;

/// A statement as the server shows it, maybe cut.
pub fn statement(data: &[u8]) -> &'static str {
    let found = normalise(data);
    assert!(found.text.len() <= GROWTH * data.len() + 16, "{} bytes from {}", found.text.len(), data.len());
    assert_eq!(found.fingerprint, fingerprint(data), "the key is that of the text");
    assert!(found.fingerprint != 0 || found.text.is_empty(), "0 is the key of no statement");
    // the key of a raw text is that of its bytes, wherever they lie: the copy begins at another offset
    let moved = [b"x".as_slice(), data].concat();
    assert_eq!(raw_hash(data), raw_hash(&moved[1..]));
    // Blanks between tokens do not count.
    let wider = [b"\n ".as_slice(), data].concat();
    assert_eq!(fingerprint(&wider), found.fingerprint);
    match found.text {
        text if text.is_empty() => "empty",
        text if text.ends_with(", ...") => "list",
        text if text.ends_with("...") => "cut",
        text if text.contains('$') => "parameters",
        _ => "text",
    }
}
