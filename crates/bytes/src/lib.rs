//! Bytes from outside, read by name: a cursor that says what it wanted, where, and what was there instead.
//!
//! Nothing here allocates, panics or reads beyond its slice. Offsets in errors are those of the file the slice came from
//! (see [`Bytes::at`]), so that what an error names can be looked up with any hex viewer.
//!
//! ```
//! use leadline_bytes::{Bytes, Endian};
//! let mut header = Bytes::new(&[1, 2, 3, 4, 5], Endian::Little).at(8192);
//! assert_eq!(header.u32("pd_lsn.xlogid")?, 0x0403_0201);
//! let error = header.u16("pd_checksum").unwrap_err();
//! assert_eq!(error.to_string(), "pd_checksum at offset 8196 needs 2 bytes, but 1 is left");
//! # Ok::<(), leadline_bytes::Truncated>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod pglz;
mod read_buffer;

pub use read_buffer::ReadBuffer;

use std::fmt;

/// The byte order of what is read: that of the machine that wrote it, never that of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Endian {
    Little,
    Big,
}

/// There are fewer bytes than the thing read here takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// What was being read, as its owner names it.
    pub what: &'static str,
    /// Where it begins: offset in the file.
    pub offset: u64,
    /// Bytes it takes.
    pub wanted: usize,
    /// Bytes that are left.
    pub left: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Truncated { what, offset, wanted, left } = self;
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let be = if *left == 1 { "is" } else { "are" };
        write!(f, "{what} at offset {offset} needs {wanted} byte{}, but {left} {be} left", plural(*wanted))
    }
}

impl std::error::Error for Truncated {}

/// Result of a read.
pub type Result<T> = std::result::Result<T, Truncated>;

/// A slice read from its beginning to its end.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a> {
    bytes: &'a [u8],
    /// How far it has been read; never beyond the end.
    done: usize,
    base: u64,
    endian: Endian,
}

impl<'a> Bytes<'a> {
    /// From the slice's beginning.
    #[inline]
    pub fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Bytes { bytes, done: 0, base: 0, endian }
    }

    /// Says where in its file the slice begins.
    #[inline]
    pub fn at(mut self, offset: u64) -> Self {
        self.base = offset;
        self
    }

    /// Offset in the file of what comes next.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.done as u64)
    }

    /// Bytes read so far.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Bytes not read yet.
    #[inline]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.done
    }

    /// Bytes not read yet, without reading them.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.done..]
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8]> {
        let Some(taken) = self.rest().get(..len) else {
            return Err(Truncated { what, offset: self.offset(), wanted: len, left: self.left() });
        };
        self.done += len;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(what, N)?);
        Ok(out)
    }

    /// A cursor of its own over the next `len` bytes, which are read here.
    #[inline]
    pub fn part(&mut self, what: &'static str, len: usize) -> Result<Bytes<'a>> {
        let base = self.offset();
        Ok(Bytes { bytes: self.take(what, len)?, done: 0, base, endian: self.endian })
    }

    /// Reads up to the next multiple of `to` bytes from the slice's beginning, or to its end.
    #[inline]
    pub fn align(&mut self, to: usize) {
        let next = self.done.checked_next_multiple_of(to.max(1));
        self.done = next.unwrap_or(usize::MAX).min(self.bytes.len());
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }
}

/// A method for each width of number.
macro_rules! numbers {
    ($($name:ident: $doc:literal),*) => {
        impl Bytes<'_> {
            $(
                #[doc = $doc]
                #[inline]
                pub fn $name(&mut self, what: &'static str) -> Result<$name> {
                    let bytes = self.array(what)?;
                    Ok(match self.endian {
                        Endian::Little => $name::from_le_bytes(bytes),
                        Endian::Big => $name::from_be_bytes(bytes),
                    })
                }
            )*
        }
    };
}

numbers! {
    u16: "Two bytes, unsigned.",
    u32: "Four bytes, unsigned.",
    u64: "Eight bytes, unsigned.",
    i16: "Two bytes, signed.",
    i32: "Four bytes, signed.",
    i64: "Eight bytes, signed."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_the_byte_order_of_the_writer() {
        let bytes = [0x12, 0x34, 0xff, 0xff, 0xff, 0xfe];
        let mut big = Bytes::new(&bytes, Endian::Big);
        assert_eq!((big.u16("a"), big.i32("b")), (Ok(0x1234), Ok(-2)));
        let mut little = Bytes::new(&bytes, Endian::Little);
        assert_eq!((little.u16("a"), little.u32("b")), (Ok(0x3412), Ok(0xfeff_ffff)));
    }

    #[test]
    fn a_short_read_reads_nothing_and_names_the_place() {
        let mut bytes = Bytes::new(&[0; 10], Endian::Little).at(100);
        bytes.take("head", 3).unwrap();
        let mut part = bytes.part("body", 4).unwrap();
        assert_eq!(part.u64("x"), Err(Truncated { what: "x", offset: 103, wanted: 8, left: 4 }));
        assert_eq!((part.left(), bytes.left(), bytes.offset()), (4, 3, 107));
        assert_eq!(bytes.take("tail", usize::MAX).unwrap_err().left, 3);
    }

    #[test]
    fn alignment_counts_from_the_beginning_of_the_slice() {
        let mut bytes = Bytes::new(&[0; 13], Endian::Little).at(3);
        bytes.u8("x").unwrap();
        bytes.align(8);
        assert_eq!(bytes.done(), 8);
        bytes.align(8);
        assert_eq!(bytes.done(), 8);
        bytes.u8("y").unwrap();
        bytes.align(8);
        assert_eq!((bytes.done(), bytes.left()), (13, 0));
    }
}
