//! The header of a row on a heap page, as redo changes it.
//!
//! Source: `access/htup_details.h`.

use leadline_page::postgres::heap::at;

use crate::misfit::{Misfit, Result};

pub(crate) use leadline_page::postgres::heap::{infomask, infomask2};

/// `SizeofHeapTupleHeader`: before the bitmap of nulls.
pub(crate) const HEADER: usize = 23;

/// Where a row is, or the next version of one (`ItemPointerData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tid {
    pub block: u32,
    pub number: u16,
}

impl Tid {
    /// Of a row that an update moved to another partition (`HeapTupleHeaderSetMovedPartitions`).
    pub(crate) const MOVED_PARTITIONS: Tid = Tid { block: u32::MAX, number: 0xFFFD };

    pub(crate) fn bytes(self) -> [u8; 6] {
        let (high, low) = (((self.block >> 16) as u16).to_le_bytes(), (self.block as u16).to_le_bytes());
        let number = self.number.to_le_bytes();
        [high[0], high[1], low[0], low[1], number[0], number[1]]
    }
}

/// A row on its page.
pub(crate) struct Tuple<'p> {
    header: &'p mut [u8; HEADER],
}

impl<'p> Tuple<'p> {
    /// # Errors
    /// The item is shorter than a header.
    #[inline]
    pub(crate) fn new(bytes: &'p mut [u8]) -> Result<Tuple<'p>> {
        let length = bytes.len();
        let header = bytes.first_chunk_mut().ok_or_else(|| Misfit::new("row", "at least 23 bytes", length))?;
        Ok(Tuple { header })
    }

    // The fields are inside the header.
    #[inline]
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.header[at], self.header[at + 1]])
    }

    #[inline]
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.header[at..at + N].copy_from_slice(&bytes);
    }

    #[inline]
    pub(crate) fn infomask(&self) -> u16 {
        self.u16_at(at::INFOMASK)
    }

    #[inline]
    pub(crate) fn set_infomask(&mut self, bits: u16) {
        self.put(at::INFOMASK, bits.to_le_bytes());
    }

    #[inline]
    pub(crate) fn infomask2(&self) -> u16 {
        self.u16_at(at::INFOMASK2)
    }

    #[inline]
    pub(crate) fn set_infomask2(&mut self, bits: u16) {
        self.put(at::INFOMASK2, bits.to_le_bytes());
    }

    /// Where the columns begin.
    #[inline]
    pub(crate) fn hoff(&self) -> usize {
        self.header[at::HOFF].into()
    }

    #[inline]
    pub(crate) fn set_hoff(&mut self, hoff: u8) {
        self.header[at::HOFF] = hoff;
    }

    #[inline]
    pub(crate) fn set_xmin(&mut self, xid: u32) {
        self.put(at::XMIN, xid.to_le_bytes());
    }

    #[inline]
    pub(crate) fn set_xmax(&mut self, xid: u32) {
        self.put(at::XMAX, xid.to_le_bytes());
    }

    /// The other meaning of `t_cid`.
    #[inline]
    pub(crate) fn set_xvac(&mut self, xid: u32) {
        self.put(at::CID, xid.to_le_bytes());
    }

    /// The command id, for masks.
    #[inline]
    pub(crate) fn cid_bytes(&mut self) -> &mut [u8] {
        &mut self.header[at::CID..at::CTID]
    }

    #[inline]
    pub(crate) fn ctid_number(&self) -> u16 {
        self.u16_at(at::CTID + 4)
    }

    #[inline]
    pub(crate) fn set_ctid(&mut self, to: Tid) {
        self.put(at::CTID, to.bytes());
    }

    /// Redo knows no command id: the first, and no combined one (`HeapTupleHeaderSetCmax`).
    #[inline]
    pub(crate) fn set_first_cid(&mut self) {
        self.put(at::CID, [0; 4]);
        self.set_infomask(self.infomask() & !infomask::COMBOCID);
    }

    /// The bits of a record's `infobits_set` instead of what the row says of its `xmax`.
    #[inline]
    pub(crate) fn set_xmax_bits(&mut self, infobits: u8) {
        let mut bits = self.infomask() & !(infomask::XMAX_BITS | infomask::MOVED);
        for (bit, means) in [
            (0x01, infomask::XMAX_IS_MULTI),
            (0x02, infomask::XMAX_LOCK_ONLY),
            (0x04, infomask::XMAX_EXCL_LOCK),
            (0x08, infomask::XMAX_KEYSHR_LOCK),
        ] {
            if infobits & bit != 0 {
                bits |= means;
            }
        }
        self.set_infomask(bits);
        let keys_updated = if infobits & 0x10 != 0 { infomask2::KEYS_UPDATED } else { 0 };
        self.set_infomask2(self.infomask2() & !infomask2::KEYS_UPDATED | keys_updated);
    }

    #[inline]
    pub(crate) fn set_hot_updated(&mut self, on: bool) {
        let bits = self.infomask2() & !infomask2::HOT_UPDATED;
        self.set_infomask2(if on { bits | infomask2::HOT_UPDATED } else { bits });
    }

    /// `HEAP_XMAX_IS_LOCKED_ONLY`: nobody updated or deleted it.
    #[inline]
    pub(crate) fn is_locked_only(&self) -> bool {
        let bits = self.infomask();
        bits & infomask::XMAX_LOCK_ONLY != 0
            || bits & (infomask::XMAX_IS_MULTI | infomask::LOCK_MASK) == infomask::XMAX_EXCL_LOCK
    }
}
