//! The CRC of a record (`xl_crc`): a CRC-32C of what follows its header, then of the header up to the CRC.

use crate::record::HEADER;

/// Records up to this size get their CRC from a copy, see [`crc_of`].
const SMALL: usize = 512;

/// That copy, in whole words.
#[repr(align(8))]
pub(crate) struct Words([u8; SMALL]);

impl Words {
    pub(crate) fn new() -> Words {
        Words([0; SMALL])
    }
}

/// The CRC of a record: over what follows its header, then over the header up to the CRC.
///
/// Eight bytes take the processor as long as one, so the ends of both parts would cost a small record more than the rest.
/// It is copied into `words` instead, as one piece of whole words with zeros in front. Zeros change nothing while the
/// register is 0, and to begin at 0 with the first four bytes inverted is to begin at !0 with the bytes as they are.
#[inline(always)]
pub(crate) fn crc_of(record: &[u8], Words(words): &mut Words) -> u32 {
    let (head, data) = record.split_at(HEADER);
    if record.len() > SMALL || data.len() < 4 {
        return crc32c::crc32c_append(crc32c::crc32c(data), &head[..20]);
    }
    let from = (data.len() + 20).wrapping_neg() % 8;
    let middle = from + data.len();
    words[..8].fill(0);
    words[from..middle].copy_from_slice(data);
    words[from..from + 4].iter_mut().for_each(|byte| *byte = !*byte);
    words[middle..middle + 20].copy_from_slice(&head[..20]);
    crc32c::crc32c_append(!0, &words[..middle + 20])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_of_a_copy_is_that_of_the_record() {
        let bytes: Vec<u8> = (0..SMALL + 9).map(|i| ((i * 151) >> 3) as u8).collect();
        let mut words = Words([0xA5; SMALL]);
        for length in HEADER..bytes.len() {
            let record = &bytes[..length];
            let wanted = crc32c::crc32c_append(crc32c::crc32c(&record[HEADER..]), &record[..20]);
            assert_eq!(crc_of(record, &mut words), wanted, "{length} bytes");
        }
    }
}
