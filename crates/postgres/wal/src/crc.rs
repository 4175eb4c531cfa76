//! The CRC of a record (`xl_crc`): a CRC-32C of what follows its header, then of the header up to the CRC.

use crate::record::{field, HEADER};

/// Up to this size the processor's instruction is faster on its own than several of them side by side.
#[cfg(target_arch = "x86_64")]
const SMALL: usize = 512;

/// The CRC of a record: over what follows its header, then over the header up to the CRC.
#[inline(always)]
pub(crate) fn crc_of(record: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if record.len() <= SMALL && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction. It is the only unsafe code of this crate, and reaches memory by slices.
        #[allow(unsafe_code)]
        return unsafe { of_small(record) };
    }
    let (head, data) = record.split_at(HEADER);
    crc32c::crc32c_append(crc32c::crc32c(data), &head[..field::CRC])
}

/// Likewise. The words need not be aligned: to look for one that is would take longer than most records have bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn of_small(record: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64, _mm_crc32_u8};

    let over = |crc: u32, bytes: &[u8]| {
        let (words, mut rest) = bytes.as_chunks::<8>();
        let mut crc =
            words.iter().fold(u64::from(crc), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word))) as u32;
        if let Some((four, after)) = rest.split_first_chunk::<4>() {
            crc = _mm_crc32_u32(crc, u32::from_le_bytes(*four));
            rest = after;
        }
        if let Some((two, after)) = rest.split_first_chunk::<2>() {
            crc = _mm_crc32_u16(crc, u16::from_le_bytes(*two));
            rest = after;
        }
        rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
    };
    let (head, data) = record.split_at(HEADER);
    !over(over(!0, data), &head[..field::CRC])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_of_a_record_of_any_length_is_that_of_its_parts() {
        let bytes: Vec<u8> = (0..600).map(|i| ((i * 151) >> 3) as u8).collect();
        for length in HEADER..bytes.len() {
            let record = &bytes[..length];
            let wanted = crc32c::crc32c_append(crc32c::crc32c(&record[HEADER..]), &record[..20]);
            assert_eq!(crc_of(record), wanted, "{length} bytes");
        }
    }
}
