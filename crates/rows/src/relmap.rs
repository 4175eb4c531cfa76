//! `pg_filenode.map`: the files of the few relations that cannot be looked up in `pg_class`.
//!
//! Source: src/backend/utils/cache/relmapper.c. 62 places to 15, 64 from 16 on; the file's length tells which.

const MAGIC: u32 = 0x0059_2717;

/// (oid of a relation, number of its file) of each mapping; what is wrong when the file is none.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<(u32, u32)>, String> {
    let u32_at =
        |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b)).unwrap_or_default();
    let places = match bytes.len() {
        512 => 62,
        524 => 64,
        other => return Err(format!("512 or 524 bytes are expected, there are {other}")),
    };
    if u32_at(0) != MAGIC {
        return Err(format!("the magic number is {:#x}, not {MAGIC:#x}", u32_at(0)));
    }
    let crc_at = 8 + 8 * places;
    let computed = crc32c::crc32c(&bytes[..crc_at]);
    if u32_at(crc_at) != computed {
        return Err(format!("the checksum is {:#x}, computed {computed:#x}", u32_at(crc_at)));
    }
    let count = u32_at(4) as usize;
    if count > places {
        return Err(format!("it holds {count} mappings of at most {places}"));
    }
    Ok((0..count).map(|i| (u32_at(8 + 8 * i), u32_at(12 + 8 * i))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(len: usize) -> Vec<u8> {
        let mut map = vec![0; len];
        for (at, n) in [MAGIC, 2, 1259, 1259, 1249, 16400].into_iter().enumerate() {
            map[4 * at..4 * at + 4].copy_from_slice(&n.to_le_bytes());
        }
        let crc_at = if len == 512 { 504 } else { 520 };
        let crc = crc32c::crc32c(&map[..crc_at]);
        map[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        map
    }

    #[test]
    fn both_lengths_are_read_and_a_changed_byte_is_refused() {
        for len in [512, 524] {
            assert_eq!(parse(&map(len)), Ok(vec![(1259, 1259), (1249, 16400)]));
            let mut broken = map(len);
            broken[20] ^= 1;
            assert!(parse(&broken).unwrap_err().contains("checksum"));
            assert!(parse(&map(len)[..len - 1]).is_err());
        }
    }
}
