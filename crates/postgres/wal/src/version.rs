//! What tells the majors apart: the magic number of WAL page, and the meaning of the bits of a page image.
//!
//! Sources: `XLOG_PAGE_MAGIC` in `access/xlog_internal.h`, `BKPIMAGE_*` in `access/xlogrecord.h` of each major.

/// One row of [`MAGICS`].
#[derive(Debug, PartialEq, Eq)]
pub struct Magic {
    /// `xlp_magic` of every page of the WAL.
    pub magic: u16,
    /// Who writes it.
    pub version: &'static str,
    /// The major, where this crate reads its WAL.
    pub major: Option<u8>,
}

const fn read(magic: u16, version: &'static str, major: u8) -> Magic {
    Magic { magic, version, major: Some(major) }
}

const fn named(magic: u16, version: &'static str) -> Magic {
    Magic { magic, version, major: None }
}

/// Magic numbers of released servers. Those without a major are known by name only, so that a refusal can say what it is.
pub static MAGICS: [Magic; 13] = [
    named(0xD07E, "9.4"),
    named(0xD087, "9.5"),
    named(0xD093, "9.6"),
    named(0xD097, "10"),
    named(0xD098, "11"),
    named(0xD101, "12"),
    read(0xD106, "13", 13),
    read(0xD10D, "14", 14),
    read(0xD110, "15", 15),
    read(0xD113, "16", 16),
    read(0xD116, "17", 17),
    read(0xD118, "18", 18),
    named(0xD121, "19"),
];

/// The row of a magic number.
pub fn magic(found: u16) -> Option<&'static Magic> {
    MAGICS.iter().find(|m| m.magic == found)
}

/// The magic numbers that are read, in words.
pub fn known() -> String {
    let read = MAGICS.iter().filter(|m| m.major.is_some());
    read.map(|m| format!("0x{:04X} (PostgreSQL {})", m.magic, m.version)).collect::<Vec<_>>().join(", ")
}

/// What the bits of `bimg_info` mean here, for every major: those of 15 and later.
pub mod image_info {
    /// The image was stored without the unused middle of the page.
    pub const HAS_HOLE: u8 = 0x01;
    /// Replay restores the page from the image; without it the image only verifies replay.
    pub const APPLY: u8 = 0x02;
    /// Compressed with pglz.
    pub const PGLZ: u8 = 0x04;
    /// Compressed with lz4.
    pub const LZ4: u8 = 0x08;
    /// Compressed with zstd.
    pub const ZSTD: u8 = 0x10;
    /// Compressed in any way.
    pub const COMPRESSED: u8 = PGLZ | LZ4 | ZSTD;
}

/// Brings the bits of a major into the order of [`image_info`]: before 15, 2 meant pglz and 4 apply.
#[inline]
pub fn image_info_of(major: u8, stored: u8) -> u8 {
    if major >= 15 {
        return stored;
    }
    stored & image_info::HAS_HOLE | (stored & 0x02) << 1 | (stored & 0x04) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_an_image_changed_places_at_15() {
        use image_info::*;
        assert_eq!(image_info_of(14, 0x01 | 0x02 | 0x04), HAS_HOLE | PGLZ | APPLY);
        assert_eq!((image_info_of(14, 0x02), image_info_of(14, 0x04)), (PGLZ, APPLY));
        assert_eq!((image_info_of(15, 0x02), image_info_of(15, 0x04)), (APPLY, PGLZ));
    }

    #[test]
    fn magic_numbers_are_ordered_and_the_known_are_told() {
        assert!(MAGICS.windows(2).all(|pair| pair[0].magic < pair[1].magic));
        assert!(known().starts_with("0xD106 (PostgreSQL 13), 0xD10D (PostgreSQL 14)"));
    }
}
