//! The header at the start of every page of the log (`XLogPageHeaderData`, `XLogLongPageHeaderData`).

use leadline_bytes::{Bytes, Endian, Truncated};

/// Size of the header of a page, and of the first page of a segment.
pub(crate) const SHORT: usize = 24;
pub(crate) const LONG: usize = 40;

/// `xlp_info`: the page begins with the rest of a record.
pub(crate) const FIRST_IS_CONTRECORD: u16 = 0x0001;
/// The header is the long one.
pub(crate) const LONG_HEADER: u16 = 0x0002;
/// The record that should go on here was given up after a crash; the page begins with a new one.
pub(crate) const FIRST_IS_OVERWRITE_CONTRECORD: u16 = 0x0008;
/// Bits that majors 13 to 18 use.
pub(crate) const ALL_FLAGS: u16 = 0x000F;

/// The short header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub magic: u16,
    pub info: u16,
    pub tli: u32,
    pub pageaddr: u64,
    pub rem_len: u32,
}

/// What only the first page of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub sysid: u64,
    pub seg_size: u32,
    pub xlog_blcksz: u32,
}

impl PageHeader {
    #[inline]
    pub(crate) fn parse(page: &[u8]) -> Option<PageHeader> {
        let h: &[u8; SHORT] = page.get(..SHORT)?.try_into().ok()?;
        Some(PageHeader {
            magic: u16::from_le_bytes([h[0], h[1]]),
            info: u16::from_le_bytes([h[2], h[3]]),
            tli: u32::from_le_bytes([h[4], h[5], h[6], h[7]]),
            pageaddr: u64::from_le_bytes([h[8], h[9], h[10], h[11], h[12], h[13], h[14], h[15]]),
            rem_len: u32::from_le_bytes([h[16], h[17], h[18], h[19]]),
        })
    }

    /// Bytes before the page's first record.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        if self.info & LONG_HEADER != 0 {
            LONG
        } else {
            SHORT
        }
    }
}

impl SegmentHeader {
    pub(crate) fn parse(page: &[u8]) -> Result<SegmentHeader, Truncated> {
        let mut bytes = Bytes::new(page, Endian::Little);
        bytes.take("XLogPageHeaderData", SHORT)?;
        Ok(SegmentHeader {
            sysid: bytes.u64("xlp_sysid")?,
            seg_size: bytes.u32("xlp_seg_size")?,
            xlog_blcksz: bytes.u32("xlp_xlog_blcksz")?,
        })
    }
}
