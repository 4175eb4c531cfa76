//! The protocol of `net echo`: a header of 20 bytes and a payload, the same in both directions.
//!
//! ```text
//! magic  u32   "LLE1"
//! seq    u64   number of the request, which the reply repeats
//! here   u32   bytes of payload that follow
//! wanted u32   of a request: bytes of payload that the reply shall have; of a reply: 0
//! ```
//! Numbers are little-endian. The payload means nothing.

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = *b"LLE1";
/// Bytes of the header.
pub const HEADER: usize = 20;
/// Offsets of the fields, as above.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const SEQ: usize = 4;
    pub(super) const HERE: usize = 12;
    pub(super) const WANTED: usize = 16;
}
/// The longest payload.
pub const LONGEST: u32 = 64 << 20;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the request.
    pub seq: u64,
    /// Bytes of payload that follow.
    pub here: u32,
    /// Bytes of payload wanted in return.
    pub wanted: u32,
}

impl Header {
    /// As bytes.
    pub fn put(&self, out: &mut [u8; HEADER]) {
        out[at::MAGIC..at::SEQ].copy_from_slice(&MAGIC);
        out[at::SEQ..at::HERE].copy_from_slice(&self.seq.to_le_bytes());
        out[at::HERE..at::WANTED].copy_from_slice(&self.here.to_le_bytes());
        out[at::WANTED..].copy_from_slice(&self.wanted.to_le_bytes());
    }

    /// From bytes; None when they are not of this protocol, or ask for a payload that is too long.
    pub fn parse(bytes: &[u8; HEADER]) -> Option<Header> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let seq = u64::from(u32_at(at::SEQ)) | u64::from(u32_at(at::SEQ + 4)) << 32;
        let header = Header { seq, here: u32_at(at::HERE), wanted: u32_at(at::WANTED) };
        (bytes[at::MAGIC..at::SEQ] == MAGIC && header.here <= LONGEST && header.wanted <= LONGEST).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_other_bytes_are_refused() {
        let header = Header { seq: u64::MAX - 5, here: 250, wanted: LONGEST };
        let mut bytes = [0; HEADER];
        header.put(&mut bytes);
        assert_eq!(Header::parse(&bytes), Some(header));
        for (at, value) in [(0, b'X'), (15, 0xff), (19, 0xff)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Header::parse(&other), None, "byte {at}");
        }
    }
}
