//! Changed blocks of a file as WAL-G stores them, given as PostgreSQL's own incremental backups have them.
//!
//! Source: internal/databases/postgres/incremental_page_reader.go of WAL-G; basebackup_incremental.c of PostgreSQL. WAL-G: "wi1", 0x55, the
//! length of the file (8 bytes), the number of blocks (4), the numbers, the pages. PostgreSQL: a magic number, the number of blocks, the
//! length in blocks, the numbers, and from the next multiple of the size of a page on the pages.

use std::io::{self, ErrorKind, Read};

const MAGIC: &[u8; 4] = b"wi1\x55";
const POSTGRES_MAGIC: u32 = 0xd3ae_1f0d;
/// Bytes of a page; WAL-G knows no others.
const PAGE: usize = 8192;
/// Blocks of a file.
const MOST: u32 = 131_072;

/// The beginning in PostgreSQL's form, and how many bytes of pages follow.
pub(crate) fn head(input: &mut dyn Read) -> io::Result<(Vec<u8>, u64)> {
    let mut fixed = [0; 16];
    input.read_exact(&mut fixed)?;
    let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("this is no increment of WAL-G: {what}"));
    let (magic, rest) = fixed.split_at(4);
    let (length, count) = rest.split_at(8);
    if magic != MAGIC {
        return Err(wrong("it begins otherwise"));
    }
    let length = length.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let count = count.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let blocks = u32::try_from(length / PAGE as u64).unwrap_or(u32::MAX);
    if count > MOST || blocks > MOST {
        return Err(wrong("it has more blocks than a file can have"));
    }
    let mut made = [POSTGRES_MAGIC, count, blocks].map(u32::to_le_bytes).concat();
    let numbers = 4 * u64::from(count);
    if input.take(numbers).read_to_end(&mut made)? as u64 != numbers {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if count > 0 {
        made.resize(made.len().next_multiple_of(PAGE), 0);
    }
    Ok((made, u64::from(count) * PAGE as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_that_of_postgres() {
        let bytes =
            [&MAGIC[..], &(3 * PAGE as u64).to_le_bytes(), &2_u32.to_le_bytes(), &[1, 0, 0, 0, 2, 0, 0, 0]].concat();
        let (made, pages) = head(&mut &bytes[..]).expect("a sound header");
        let numbers: Vec<_> = made.chunks(4).take(5).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!((numbers, made.len(), pages), (vec![POSTGRES_MAGIC, 2, 3, 1, 2], PAGE, 2 * PAGE as u64));
        for cut in 0..bytes.len() {
            assert!(head(&mut &bytes[..cut]).is_err(), "{cut} bytes of it");
        }
        assert!(head(&mut &[0; 16][..]).is_err());
    }
}
