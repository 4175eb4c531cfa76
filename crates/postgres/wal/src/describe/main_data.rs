//! Main data read from its beginning to its end, over what is not kept of a long record.

use leadline_bytes::{Bytes, Endian, Result, Truncated};

use crate::kept::List;
use crate::record::Record;

/// A cursor like [`Bytes`]. What is not kept cannot be read, but lists can be passed whose things are not kept.
pub(super) struct MainData<'r, 'a> {
    record: &'r Record<'a>,
    /// What is kept from some byte on, which is its offset.
    bytes: Bytes<'a>,
}

/// A method for each width of number.
macro_rules! numbers {
    ($($name:ident),*) => {
        $(
            pub(super) fn $name(&mut self, what: &'static str) -> Result<$name> {
                self.need(size_of::<$name>());
                self.bytes.$name(what)
            }
        )*
    };
}

impl<'r, 'a> MainData<'r, 'a> {
    pub(super) fn new(record: &'r Record<'a>) -> MainData<'r, 'a> {
        MainData { record, bytes: Bytes::new(record.main_data(), Endian::Little) }
    }

    /// Offset of what comes next.
    pub(super) fn place(&self) -> usize {
        self.bytes.offset() as usize
    }

    /// Bytes of the record that come next, kept or not.
    pub(super) fn left(&self) -> usize {
        self.record.main_length().saturating_sub(self.place())
    }

    fn go_to(&mut self, to: usize) {
        let to = to.min(self.record.main_length());
        self.bytes = Bytes::new(self.record.main_from(to), Endian::Little).at(to as u64);
    }

    pub(super) fn align(&mut self, to: usize) {
        self.go_to(self.place().next_multiple_of(to));
    }

    /// Goes on in the next piece where fewer than so many bytes are left in this one.
    fn need(&mut self, bytes: usize) {
        if self.bytes.left() < bytes {
            self.go_to(self.place());
        }
    }

    pub(super) fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8]> {
        self.need(len);
        self.bytes.take(what, len)
    }

    numbers!(u16, u32, u64, i32, i64);

    /// A text that ends with a zero byte, or with the record.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a [u8]> {
        self.need(self.left());
        let kept = self.bytes.rest();
        let length = match kept.iter().position(|b| *b == 0) {
            Some(length) => length,
            None if kept.len() == self.left() => kept.len(),
            None => kept.len() + 1, // it goes on in what is not kept
        };
        let text = self.bytes.take(what, length)?;
        self.go_to(self.place() + 1);
        Ok(text)
    }

    /// Passes so many things of `size` bytes. An error when the record has fewer.
    pub(super) fn pass(&mut self, what: &'static str, count: i32, size: usize) -> Result<()> {
        let (begin, left) = (self.place(), self.left());
        let bytes = (count.max(0) as usize).saturating_mul(size);
        if bytes > left {
            let offset = (begin + left / size * size) as u64;
            return Err(Truncated { what, offset, wanted: size, left: left % size });
        }
        self.go_to(begin + bytes);
        Ok(())
    }

    /// So many things of `size` bytes, which `one` reads.
    pub(super) fn list<T>(
        &mut self,
        what: &'static str,
        count: i32,
        size: usize,
        one: impl Fn(&mut Bytes<'a>) -> Result<T>,
    ) -> Result<List<T>> {
        self.need(self.left().min((count.max(0) as usize).saturating_mul(size)));
        let (begin, mut bytes) = (self.place(), self.bytes);
        self.pass(what, count, size)?;
        let count = count.max(0) as usize;
        let kept = count.min(bytes.left() / size);
        let known: Vec<T> = (0..kept).map(|_| one(&mut bytes)).collect::<Result<_>>()?;
        Ok(List { left_out: count - kept, rest_at: begin + kept * size, known })
    }
}
