//! Line pointers: where each item of a page is, and whether it is alive.
//!
//! Source: src/include/storage/itemid.h, `ItemIdData`.

use leadline_bytes::Endian;

use super::header::{Header, SIZE};
use crate::part::{FieldKind, Part, Value};
use crate::reader::Reader;

/// Values of `lp_flags`.
pub const LP_UNUSED: u8 = 0;
/// Has an item.
pub const LP_NORMAL: u8 = 1;
/// Points to another line pointer (`lp_off` is its number).
pub const LP_REDIRECT: u8 = 2;
/// Its row is gone; indexes may still point here.
pub const LP_DEAD: u8 = 3;

const WORDS: [&str; 4] = ["unused", "normal", "redirect", "dead"];

/// One line pointer as stored: 15 bits offset, 2 bits flags, 15 bits length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePointer(pub u32);

impl LinePointer {
    /// `lp_off`: offset of the item in the page; of a redirect, the number of another line pointer.
    #[inline]
    pub fn off(self) -> usize {
        (self.0 & 0x7fff) as usize
    }

    /// `lp_flags`.
    #[inline]
    pub fn flags(self) -> u8 {
        (self.0 >> 15 & 3) as u8
    }

    /// `lp_len`: bytes of the item.
    #[inline]
    pub fn len(self) -> usize {
        (self.0 >> 17) as usize
    }

    /// Whether there is no item.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes of its item; None when it has none or they are not inside the page.
    #[inline]
    pub fn item(self, page: &[u8]) -> Option<&[u8]> {
        if self.is_empty() || self.flags() == LP_REDIRECT || self.flags() == LP_UNUSED {
            return None;
        }
        page.get(self.off()..self.off() + self.len())
    }
}

/// The line pointers of a page with their numbers, from 1.
#[inline]
pub fn line_pointers<'p>(page: &'p [u8], header: &Header) -> impl Iterator<Item = (u32, LinePointer)> + use<'p> {
    let array = page.get(SIZE..SIZE + 4 * header.line_pointers(page.len())).unwrap_or(&[]);
    let pointers = array.chunks_exact(4).map(|b| LinePointer(b.first_chunk().map_or(0, |b| u32::from_le_bytes(*b))));
    (1..).zip(pointers)
}

/// One line pointer as a part.
pub(super) fn describe(page: &[u8], number: u32, lp: LinePointer) -> Part {
    let at = SIZE + 4 * (number as usize - 1);
    let r = Reader::new(page, Endian::Little, "line pointer", FieldKind::LinePointer, at, at + 4);
    let mut r = r.numbered(number);
    // There are four bytes: the pointer was read from them.
    let _ = r.u32("ItemIdData");
    r.derived("lp_off", Value::Number(lp.off() as u64));
    r.derived("lp_flags", Value::Number(lp.flags().into()));
    let word = WORDS[usize::from(lp.flags())];
    if lp.flags() == LP_REDIRECT {
        r.words(format!("{word} to {}", lp.off()));
    } else {
        r.words(word);
    }
    r.derived("lp_len", Value::Number(lp.len() as u64));
    r.finish()
}
