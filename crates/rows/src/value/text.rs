//! Text that is being printed.

use std::fmt;

use leadline_parquet::Buffer;

/// UTF-8 as bytes: nothing is added that is not, so it need not be looked at again and again, as a `String` does when a digit is
/// added.
#[derive(Debug, Clone, Default)]
pub struct Text(Buffer);

impl Text {
    /// Nothing.
    pub fn new() -> Text {
        Text::default()
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// As a string of its own.
    pub fn into_string(self) -> String {
        match String::from_utf8(self.0.into_bytes()) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.truncate(0);
    }

    /// Gives room back that is beyond `most` bytes.
    pub(crate) fn shrink_to(&mut self, most: usize) {
        self.0.shrink_to(most);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    #[inline]
    pub(super) fn push(&mut self, c: char) {
        if c.is_ascii() {
            self.0.put([c as u8], 1);
        } else {
            self.push_str(c.encode_utf8(&mut [0; 4]));
        }
    }

    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) {
        self.push_part(text.as_bytes());
    }

    /// ASCII whose number of bytes the compiler knows.
    #[inline]
    pub(super) fn push_ascii<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.put(bytes, N);
    }

    /// Bytes of UTF-8.
    #[inline]
    pub(crate) fn push_part(&mut self, part: &[u8]) {
        self.0.put_slice(part);
    }

    /// What is printed already.
    #[inline]
    pub(super) fn push_text(&mut self, text: &Text) {
        self.0.put_slice(text.0.bytes());
    }

    /// Bytes of a value; what is not UTF-8 (the database may have another encoding) is replaced.
    #[inline]
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_ascii() || std::str::from_utf8(bytes).is_ok() {
            self.0.put_slice(bytes);
        } else {
            self.push_str(&String::from_utf8_lossy(bytes));
        }
    }

    /// The first `used` of some ASCII.
    #[inline]
    pub(super) fn push_word<const N: usize>(&mut self, word: [u8; N], used: usize) {
        self.0.put(word, used);
    }

    /// Room to print ASCII into, which counts when [`Text::used`] says so.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        self.0.room(len)
    }

    #[inline]
    pub(super) fn used(&mut self, len: usize) {
        self.0.used(len);
    }

    pub(super) fn extend(&mut self, text: impl Iterator<Item = char>) {
        text.for_each(|c| self.push(c));
    }

    /// Without the zeros at its end.
    pub(super) fn trim_zeros(&mut self) {
        let zeros = self.as_bytes().iter().rev().take_while(|b| **b == b'0').count();
        self.truncate(self.len() - zeros);
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}
