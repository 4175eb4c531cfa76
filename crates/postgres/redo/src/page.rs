//! A page under redo: its header, line pointers and items, changed as the server changes them.
//!
//! What is left behind in the unused middle of a page is the same, byte for byte, as after the server's own `memmove`s. Offset
//! numbers begin with 1, as the server's. Nothing here trusts the page: what is not inside it is a [`Misfit`].
//!
//! Source: `storage/page/bufpage.c`, `storage/bufpage.h` and `storage/itemid.h`.

mod compact;
mod items;

use std::ops::Range;

use leadline_datadir::is_block_size;
use leadline_page::postgres::header::at;
pub use leadline_page::postgres::header::SIZE as HEADER;
pub use leadline_page::postgres::line_pointer::{LinePointer, LP_DEAD, LP_NORMAL, LP_REDIRECT, LP_UNUSED};

use crate::misfit::{Misfit, Result};

pub use items::{max_heap_rows, Place};

/// Bytes of a line pointer.
pub const LINE_POINTER: usize = 4;
/// Version of the layout, in the low byte of `pd_pagesize_version`.
const LAYOUT_VERSION: u16 = 4;

/// Bits of `pd_flags`.
pub mod flags {
    /// There may be unused line pointers.
    pub const HAS_FREE_LINES: u16 = 0x0001;
    /// There is no room for a new row.
    pub const FULL: u16 = 0x0002;
    /// Every row is visible to everyone.
    pub const ALL_VISIBLE: u16 = 0x0004;
}

/// Rounds up to what items are aligned to (`MAXALIGN`).
#[inline]
pub const fn aligned(bytes: usize) -> usize {
    (bytes + 7) & !7
}

/// The bytes of one page.
#[derive(Debug)]
pub struct Page<'p> {
    bytes: &'p mut [u8],
}

impl<'p> Page<'p> {
    /// A view of a page.
    ///
    /// # Errors
    /// The bytes are not as many as a page can have.
    #[inline]
    pub fn new(bytes: &'p mut [u8]) -> Result<Page<'p>> {
        if !u32::try_from(bytes.len()).is_ok_and(is_block_size) {
            return Err(Misfit::new("bytes of the page", "1024 to 32768, a power of two", bytes.len()));
        }
        Ok(Page { bytes })
    }

    /// The same page for a while.
    pub fn reborrow(&mut self) -> Page<'_> {
        Page { bytes: self.bytes }
    }

    /// `BLCKSZ`.
    #[inline]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// All bytes, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Makes every byte zero.
    pub fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Two bytes; 0 where there are none.
    #[inline]
    pub fn u16_at(&self, at: usize) -> u16 {
        self.bytes.get(at..at.saturating_add(2)).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    }

    /// Four bytes; 0 where there are none.
    #[inline]
    pub fn u32_at(&self, at: usize) -> u32 {
        self.bytes.get(at..at.saturating_add(4)).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// They would not be inside the page.
    #[inline]
    pub fn put(&mut self, what: &'static str, at: usize, bytes: &[u8]) -> Result<()> {
        let size = self.bytes.len();
        let place = self.bytes.get_mut(at..at.saturating_add(bytes.len()));
        let Some(place) = place else {
            return Err(Misfit::new(what, format_args!("{} bytes inside a page of {size}", bytes.len()), at));
        };
        place.copy_from_slice(bytes);
        Ok(())
    }

    // The header is inside every page there is: HEADER is less than the smallest.
    #[inline]
    fn put_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// `pd_lsn`.
    #[inline]
    pub fn lsn(&self) -> u64 {
        u64::from(self.u32_at(at::LSN)) << 32 | u64::from(self.u32_at(at::LSN + 4))
    }

    /// Sets `pd_lsn`.
    #[inline]
    pub fn set_lsn(&mut self, lsn: u64) {
        self.bytes[at::LSN..at::LSN + 4].copy_from_slice(&((lsn >> 32) as u32).to_le_bytes());
        self.bytes[at::LSN + 4..at::CHECKSUM].copy_from_slice(&(lsn as u32).to_le_bytes());
    }

    /// `pd_flags`.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.u16_at(at::FLAGS)
    }

    /// Sets or clears bits of `pd_flags`.
    #[inline]
    pub fn set_flag(&mut self, bits: u16, on: bool) {
        let flags = if on { self.flags() | bits } else { self.flags() & !bits };
        self.put_u16(at::FLAGS, flags);
    }

    /// `pd_lower`.
    #[inline]
    pub fn lower(&self) -> usize {
        self.u16_at(at::LOWER).into()
    }

    /// Sets `pd_lower`.
    #[inline]
    pub fn set_lower(&mut self, lower: usize) {
        self.put_u16(at::LOWER, lower as u16);
    }

    /// `pd_upper`.
    #[inline]
    pub fn upper(&self) -> usize {
        self.u16_at(at::UPPER).into()
    }

    /// Sets `pd_upper`.
    #[inline]
    pub fn set_upper(&mut self, upper: usize) {
        self.put_u16(at::UPPER, upper as u16);
    }

    /// `pd_special`, where the index's own area begins.
    #[inline]
    pub fn special(&self) -> usize {
        self.u16_at(at::SPECIAL).into()
    }

    /// `pd_prune_xid`.
    #[inline]
    pub fn prune_xid(&self) -> u32 {
        self.u32_at(at::PRUNE_XID)
    }

    /// Sets `pd_prune_xid`.
    #[inline]
    pub fn set_prune_xid(&mut self, xid: u32) {
        self.bytes[at::PRUNE_XID..HEADER].copy_from_slice(&xid.to_le_bytes());
    }

    /// `PageIsNew`: never filled, all zeros as a rule.
    #[inline]
    pub fn is_new(&self) -> bool {
        self.upper() == 0
    }

    /// `PageInit`: an empty page whose last bytes are the index's own.
    ///
    /// # Errors
    /// The area is larger than the page.
    pub fn init(&mut self, special: usize) -> Result<()> {
        let special = aligned(special);
        if special + HEADER > self.size() {
            return Err(Misfit::new("special area", "less than a page", special));
        }
        self.clear();
        let end = self.size() - special;
        self.set_lower(HEADER);
        self.set_upper(end);
        self.put_u16(at::SPECIAL, end as u16);
        self.put_u16(at::SIZE, self.size() as u16 | LAYOUT_VERSION);
        Ok(())
    }

    /// The index's own area; `bytes` of it or a Misfit.
    ///
    /// # Errors
    /// The area has another size.
    pub fn special_area(&mut self, what: &'static str, bytes: usize) -> Result<&mut [u8]> {
        let (special, size) = (self.special(), self.size());
        match self.bytes.get_mut(special..) {
            Some(area) if area.len() == bytes => Ok(area),
            _ => Err(Misfit::new(
                what,
                format_args!("{bytes} bytes at the end of the page"),
                size as i64 - special as i64,
            )),
        }
    }

    /// Whether the pointers of the header are in order, as the server checks before it adds an item.
    ///
    /// # Errors
    /// They are not.
    #[inline]
    pub fn check_pointers(&self) -> Result<()> {
        let (lower, upper, special) = (self.lower(), self.upper(), self.special());
        if lower < HEADER || lower > upper || upper > special || special > self.size() {
            return Err(self.wrong_pointers());
        }
        Ok(())
    }

    /// Likewise, as it checks before items move: the index's area is aligned too.
    #[inline]
    pub(crate) fn check_for_moves(&self) -> Result<()> {
        self.check_pointers()?;
        if self.special() != aligned(self.special()) {
            return Err(self.wrong_pointers());
        }
        Ok(())
    }

    #[cold]
    fn wrong_pointers(&self) -> Misfit {
        let (lower, upper, special) = (self.lower(), self.upper(), self.special());
        let found = format_args!("lower {lower}, upper {upper}, special {special}").to_string();
        Misfit::new("page header", "24 <= pd_lower <= pd_upper <= pd_special, inside the page", found)
    }

    /// `PageGetMaxOffsetNumber`: the last line pointer's number, 0 when there is none.
    #[inline]
    pub fn max_offset(&self) -> u16 {
        (self.lower().saturating_sub(HEADER) / LINE_POINTER) as u16
    }

    /// A line pointer.
    ///
    /// # Errors
    /// The page has no such line pointer.
    #[inline]
    pub fn line_pointer(&self, number: u16) -> Result<LinePointer> {
        self.check_number(number)?;
        Ok(LinePointer(self.u32_at(HEADER + LINE_POINTER * (usize::from(number) - 1))))
    }

    /// Writes a line pointer.
    ///
    /// # Errors
    /// The page has no such line pointer.
    #[inline]
    pub fn set_line_pointer(&mut self, number: u16, to: LinePointer) -> Result<()> {
        self.check_number(number)?;
        self.put("line pointer", HEADER + LINE_POINTER * (usize::from(number) - 1), &to.0.to_le_bytes())
    }

    // `at` is that of a line pointer before `pd_lower`, which was found inside the page.
    #[inline]
    fn put_line_pointer(&mut self, at: usize, to: LinePointer) {
        self.bytes[at..at + LINE_POINTER].copy_from_slice(&to.0.to_le_bytes());
    }

    #[inline]
    fn check_number(&self, number: u16) -> Result<()> {
        let last = self.max_offset();
        if number == 0 || number > last || self.lower() > self.size() {
            return Err(Misfit::new("offset number", format_args!("1 to {last}"), number));
        }
        Ok(())
    }

    /// Where the item of a normal line pointer is.
    ///
    /// # Errors
    /// There is no such item.
    #[inline]
    pub fn item_range(&self, number: u16) -> Result<Range<usize>> {
        let lp = self.line_pointer(number)?;
        if lp.flags() != LP_NORMAL {
            return Err(Misfit::new("line pointer", "a normal one", format_args!("flags {}", lp.flags()).to_string()));
        }
        self.storage(lp)
    }

    /// Where the bytes of a line pointer are, whatever its flags.
    ///
    /// # Errors
    /// It has none, or they are not behind the header and inside the page.
    #[inline]
    pub fn storage(&self, lp: LinePointer) -> Result<Range<usize>> {
        let range = lp.off()..lp.off() + lp.len();
        if lp.is_empty() || range.start < HEADER || range.end > self.size() {
            return Err(Misfit::new("item", "bytes inside the page", format_args!("{range:?}").to_string()));
        }
        Ok(range)
    }

    /// The item of a normal line pointer.
    ///
    /// # Errors
    /// There is no such item.
    #[inline]
    pub fn item(&self, number: u16) -> Result<&[u8]> {
        Ok(&self.bytes[self.item_range(number)?])
    }

    /// The item of a normal line pointer, to change.
    ///
    /// # Errors
    /// There is no such item.
    #[inline]
    pub fn item_mut(&mut self, number: u16) -> Result<&mut [u8]> {
        let range = self.item_range(number)?;
        Ok(&mut self.bytes[range])
    }
}

/// A line pointer to an item (`ItemIdSetNormal`).
#[inline]
pub fn normal(offset: usize, length: usize) -> LinePointer {
    LinePointer(offset as u32 & 0x7fff | u32::from(LP_NORMAL) << 15 | (length as u32) << 17)
}

/// A line pointer that is free (`ItemIdSetUnused`).
pub const UNUSED: LinePointer = LinePointer(0);

/// A line pointer whose row is gone (`ItemIdSetDead`).
pub const DEAD: LinePointer = LinePointer((LP_DEAD as u32) << 15);

/// A line pointer to another one (`ItemIdSetRedirect`).
#[inline]
pub fn redirect(to: u16) -> LinePointer {
    LinePointer(u32::from(to) & 0x7fff | u32::from(LP_REDIRECT) << 15)
}
