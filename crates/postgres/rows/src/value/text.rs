//! Text that is being printed.

use std::fmt;
use std::sync::Arc;

use leadline_parquet::Buffer;

use crate::encoding::Encoding;

/// UTF-8 as bytes: nothing is added that is not, so it need not be looked at again and again, as a `String` does when a digit is
/// added.
#[derive(Debug, Clone, Default)]
pub struct Text {
    bytes: Buffer,
    /// That of the bytes of values, where it is not UTF-8.
    encoding: Option<Arc<Encoding>>,
}

impl Text {
    /// Nothing.
    pub fn new() -> Text {
        Text::default()
    }

    /// Nothing, to which values of the same encoding are added.
    pub(super) fn another(&self) -> Text {
        Text { bytes: Buffer::default(), encoding: self.encoding.clone() }
    }

    /// From now on the bytes of values are in this encoding.
    pub(super) fn set_encoding(&mut self, encoding: &Arc<Encoding>) {
        self.encoding.get_or_insert_with(|| Arc::clone(encoding));
    }

    pub(super) fn encoding(&self) -> Option<&Encoding> {
        self.encoding.as_deref()
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// As a string of its own.
    pub fn into_string(self) -> String {
        match String::from_utf8(self.bytes.into_bytes()) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(0);
    }

    /// Gives room back that is beyond `most` bytes.
    pub(crate) fn shrink_to(&mut self, most: usize) {
        self.bytes.shrink_to(most);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    #[inline]
    pub(super) fn push(&mut self, c: char) {
        if c.is_ascii() {
            self.bytes.put([c as u8], 1);
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
        self.bytes.put(bytes, N);
    }

    /// Bytes of UTF-8.
    #[inline]
    pub(crate) fn push_part(&mut self, part: &[u8]) {
        self.bytes.put_slice(part);
    }

    /// What is printed already.
    #[inline]
    pub(super) fn push_text(&mut self, text: &Text) {
        self.bytes.put_slice(text.bytes.bytes());
    }

    /// Bytes of a value, in the encoding of the database; what cannot be converted is replaced.
    #[inline]
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_ascii() || self.encoding.is_none() && std::str::from_utf8(bytes).is_ok() {
            self.bytes.put_slice(bytes);
        } else {
            self.push_converted(bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_converted(&mut self, bytes: &[u8]) {
        match &self.encoding {
            Some(encoding) => encoding.convert_value(bytes, &mut self.bytes),
            None => self.push_str(&String::from_utf8_lossy(bytes)),
        }
    }

    /// A name of the catalog, which is UTF-8 already.
    pub(super) fn push_name(&mut self, name: &str) {
        self.push_str(name);
        if let Some(encoding) = &self.encoding {
            encoding.count_in(name);
        }
    }

    /// The first `used` of some ASCII.
    #[inline]
    pub(super) fn push_word<const N: usize>(&mut self, word: [u8; N], used: usize) {
        self.bytes.put(word, used);
    }

    /// Room to print ASCII into, which counts when [`Text::used`] says so.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        self.bytes.room(len)
    }

    #[inline]
    pub(super) fn used(&mut self, len: usize) {
        self.bytes.used(len);
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
