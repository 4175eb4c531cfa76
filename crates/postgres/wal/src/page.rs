//! The header at the start of every page of the WAL (`XLogPageHeaderData`, `XLogLongPageHeaderData`).

use leadline_bytes::{Bytes, Endian, Truncated};

/// Size of the header of a page, and of the first page of a segment.
pub const SHORT: usize = 24;
/// See [`SHORT`].
pub const LONG: usize = 40;

/// `xlp_info`: the page begins with the rest of a record.
pub const FIRST_IS_CONTRECORD: u16 = 0x0001;
/// The header is the long one.
pub const LONG_HEADER: u16 = 0x0002;
/// The record that should go on here was given up after a crash; the page begins with a new one.
pub const FIRST_IS_OVERWRITE_CONTRECORD: u16 = 0x0008;
/// Bits that majors 13 to 18 use.
pub(crate) const ALL_FLAGS: u16 = 0x000F;

/// The short header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PageHeader {
    pub magic: u16,
    pub info: u16,
    pub tli: u32,
    pub pageaddr: u64,
    pub rem_len: u32,
}

/// What only the first page of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SegmentHeader {
    pub sysid: u64,
    pub seg_size: u32,
    pub xlog_blcksz: u32,
}

impl PageHeader {
    /// None of less than [`SHORT`] bytes.
    #[inline]
    pub fn parse(page: &[u8]) -> Option<PageHeader> {
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
    pub fn size(&self) -> usize {
        if self.info & LONG_HEADER != 0 {
            LONG
        } else {
            SHORT
        }
    }

    /// As it is on the page, with the padding behind it.
    pub fn to_bytes(&self) -> [u8; SHORT] {
        let mut bytes = [0; SHORT];
        bytes[0..2].copy_from_slice(&self.magic.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.info.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.tli.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.pageaddr.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.rem_len.to_le_bytes());
        bytes
    }
}

impl SegmentHeader {
    /// # Errors
    /// The page has less than [`LONG`] bytes.
    pub fn parse(page: &[u8]) -> Result<SegmentHeader, Truncated> {
        let mut bytes = Bytes::new(page, Endian::Little);
        bytes.take("XLogPageHeaderData", SHORT)?;
        Ok(SegmentHeader {
            sysid: bytes.u64("xlp_sysid")?,
            seg_size: bytes.u32("xlp_seg_size")?,
            xlog_blcksz: bytes.u32("xlp_xlog_blcksz")?,
        })
    }

    /// As it is on the page, behind the header that every page has.
    pub fn to_bytes(&self) -> [u8; LONG - SHORT] {
        let mut bytes = [0; LONG - SHORT];
        bytes[0..8].copy_from_slice(&self.sysid.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.seg_size.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.xlog_blcksz.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_as_they_are_read() {
        let page: Vec<u8> = (1..=40).collect();
        let (header, segment) = (PageHeader::parse(&page).unwrap(), SegmentHeader::parse(&page).unwrap());
        let padding = [0; 4];
        assert_eq!(header.to_bytes(), [&page[..20], &padding].concat()[..]);
        assert_eq!(segment.to_bytes(), page[SHORT..]);
    }
}
