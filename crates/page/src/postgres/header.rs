//! The 24 bytes at the start of every page.
//!
//! Source: src/include/storage/bufpage.h, `PageHeaderData`, layout version 4 (PostgreSQL 8.3 and later).

use leadline_bytes::Endian;

use crate::part::{FieldKind, Part, Value, Wrong};
use crate::reader::{Flag, Reader};

/// Bytes of the header; line pointers begin behind it.
pub const SIZE: usize = 24;

/// Offsets of the fields of `PageHeaderData`.
#[allow(missing_docs)]
pub mod at {
    /// Its high half first.
    pub const LSN: usize = 0;
    pub const CHECKSUM: usize = 8;
    pub const FLAGS: usize = 10;
    pub const LOWER: usize = 12;
    pub const UPPER: usize = 14;
    pub const SPECIAL: usize = 16;
    /// `pd_pagesize_version`.
    pub const SIZE: usize = 18;
    pub const PRUNE_XID: usize = 20;
}

/// Bits of `pd_flags`.
pub const PD_FLAGS: &[Flag] = &[
    (1, "PD_HAS_FREE_LINES", "may have unused line pointers"),
    (2, "PD_PAGE_FULL", "an update found no room"),
    (4, "PD_ALL_VISIBLE", "all tuples are visible to everyone"),
];

/// The fields of a page header, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Header {
    pub pd_lsn: u64,
    pub pd_checksum: u16,
    pub pd_flags: u16,
    pub pd_lower: u16,
    pub pd_upper: u16,
    pub pd_special: u16,
    pub pd_pagesize_version: u16,
    pub pd_prune_xid: u32,
}

impl Header {
    /// From the first 24 bytes of a page; None when there are fewer.
    #[inline]
    pub fn parse(page: &[u8]) -> Option<Header> {
        let b = page.first_chunk::<SIZE>()?;
        let u16_at = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Some(Header {
            pd_lsn: u64::from(u32_at(at::LSN)) << 32 | u64::from(u32_at(at::LSN + 4)),
            pd_checksum: u16_at(at::CHECKSUM),
            pd_flags: u16_at(at::FLAGS),
            pd_lower: u16_at(at::LOWER),
            pd_upper: u16_at(at::UPPER),
            pd_special: u16_at(at::SPECIAL),
            pd_pagesize_version: u16_at(at::SIZE),
            pd_prune_xid: u32_at(at::PRUNE_XID),
        })
    }

    /// The size of a page, by its own word.
    pub fn page_size(&self) -> usize {
        usize::from(self.pd_pagesize_version & 0xff00)
    }

    /// The version of the layout: 4 since PostgreSQL 8.3.
    pub fn version(&self) -> u8 {
        self.pd_pagesize_version as u8
    }

    /// Line pointers between the header and `pd_lower`, as far as the page reaches.
    #[inline]
    pub fn line_pointers(&self, page_size: usize) -> usize {
        usize::from(self.pd_lower).min(page_size).saturating_sub(SIZE) / 4
    }

    /// The special area of a page; empty when there is none or the header is wrong.
    #[inline]
    pub fn special<'p>(&self, page: &'p [u8]) -> &'p [u8] {
        page.get(usize::from(self.pd_special).max(SIZE)..).unwrap_or(&[])
    }

    /// Bytes for one more item and its line pointer; what pageinspect calls `free_size`.
    pub fn free_size(&self) -> u64 {
        let room = usize::from(self.pd_upper).saturating_sub(usize::from(self.pd_lower));
        room.saturating_sub(4) as u64
    }

    /// The first field that cannot be in a page of this size.
    pub fn wrong(&self, page_size: usize) -> Option<Wrong> {
        let (lower, upper) = (usize::from(self.pd_lower), usize::from(self.pd_upper));
        let special = usize::from(self.pd_special);
        let wrong = |what, offset, wanted: String, found: String| {
            Some(Wrong { class: "header", what, item: None, offset, wanted, found })
        };
        if self.page_size() != page_size {
            return wrong("page size", at::SIZE, page_size.to_string(), self.page_size().to_string());
        }
        if self.version() != 4 {
            return wrong("page layout version", at::SIZE, "4".into(), self.version().to_string());
        }
        if special > page_size || special % 8 != 0 {
            return wrong("pd_special", at::SPECIAL, format!("a multiple of 8 up to {page_size}"), special.to_string());
        }
        if upper > special {
            return wrong("pd_upper", at::UPPER, format!("up to pd_special, {special}"), upper.to_string());
        }
        if lower < SIZE || lower > upper {
            return wrong("pd_lower", at::LOWER, format!("{SIZE} to pd_upper, {upper}"), lower.to_string());
        }
        if self.pd_flags & !7 != 0 {
            return wrong("pd_flags", at::FLAGS, "bits 0 to 2".into(), format!("{:#06x}", self.pd_flags));
        }
        None
    }
}

/// The header as a part.
pub(super) fn describe(page: &[u8]) -> (Part, Option<Wrong>) {
    let mut r = Reader::new(page, Endian::Little, "header", FieldKind::Header, 0, SIZE);
    let outcome = read(&mut r);
    (r.finish(), outcome.err())
}

fn read(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.lsn("pd_lsn")?;
    r.u16("pd_checksum")?;
    let flags = r.u16("pd_flags")?;
    r.flags(PD_FLAGS, flags.into());
    r.u16("pd_lower")?;
    r.u16("pd_upper")?;
    r.u16("pd_special")?;
    let both = r.u16("pd_pagesize_version")?;
    r.words(format!("{} bytes, layout version {}", both & 0xff00, both & 0xff));
    r.u32("pd_prune_xid")?;
    r.derived("pagesize", Value::Number(u64::from(both & 0xff00)));
    r.derived("version", Value::Number(u64::from(both & 0xff)));
    Ok(())
}
