//! Text that is being printed.

use std::fmt;

/// UTF-8 as bytes: nothing is added that is not, so it need not be looked at again and again, as a `String` does when a digit is
/// added. May begin with bytes of somebody else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(Vec<u8>);

impl Text {
    /// Nothing.
    pub fn new() -> Text {
        Text::default()
    }

    /// Goes on behind some bytes.
    pub(crate) fn behind(bytes: Vec<u8>) -> Text {
        Text(bytes)
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// As a string of its own.
    pub fn into_string(self) -> String {
        match String::from_utf8(self.0) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn reserve(&mut self, bytes: usize) {
        self.0.reserve(bytes);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    #[inline]
    pub(super) fn push(&mut self, c: char) {
        if c.is_ascii() {
            self.0.push(c as u8);
        } else {
            self.push_str(c.encode_utf8(&mut [0; 4]));
        }
    }

    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// ASCII whose number of bytes the compiler knows.
    #[inline]
    pub(super) fn push_ascii<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend_from_slice(&bytes);
    }

    /// Bytes of UTF-8.
    #[inline]
    pub(super) fn push_part(&mut self, part: &[u8]) {
        self.0.extend_from_slice(part);
    }

    /// What is printed already.
    #[inline]
    pub(super) fn push_text(&mut self, text: &Text) {
        self.0.extend_from_slice(&text.0);
    }

    /// Bytes of a value; what is not UTF-8 (the database may have another encoding) is replaced.
    #[inline]
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_ascii() || std::str::from_utf8(bytes).is_ok() {
            self.0.extend_from_slice(bytes);
        } else {
            self.push_str(&String::from_utf8_lossy(bytes));
        }
    }

    pub(super) fn extend(&mut self, text: impl Iterator<Item = char>) {
        text.for_each(|c| self.push(c));
    }

    /// Without the zeros at its end.
    pub(super) fn trim_zeros(&mut self) {
        while self.0.last() == Some(&b'0') {
            self.0.pop();
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}
