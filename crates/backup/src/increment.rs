//! Changed blocks of a file as WAL-G stores them, given as PostgreSQL's own incremental backups have them.
//!
//! Source: internal/databases/postgres/incremental_page_reader.go of WAL-G; basebackup_incremental.c of PostgreSQL. WAL-G: "wi1", 0x55, the
//! length of the file (8 bytes), the number of blocks (4), the numbers, the pages. PostgreSQL: a magic number, the number of blocks, the
//! length in blocks, the numbers, and from the next multiple of the size of a page on the pages.

use std::io::{self, ErrorKind, Read};

const MAGIC: &[u8; 4] = b"wi1\x55";
const POSTGRES_MAGIC: u32 = 0xd3ae_1f0d;
/// Bytes before the numbers of blocks.
const FIXED: u64 = 16;
/// Bytes of a page, unless they are found to be others.
pub(crate) const PAGE: u32 = 8192;
/// A server can be built for pages of these.
const PAGES: [u32; 6] = [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15];
/// Bytes of a file, whatever its pages.
const MOST_BYTES: u64 = 1 << 30;

/// What an increment begins with.
pub(crate) struct Head {
    /// Bytes of the file that it is of.
    length: u64,
    /// Numbers of blocks, of four bytes each.
    numbers: Vec<u8>,
    /// Bytes of all its pages.
    pub(crate) pages: u64,
    /// Bytes of a page; none where there are no pages.
    pub(crate) page: Option<u32>,
}

impl Head {
    /// Reads it from the front of an increment that has so many bytes. The pages follow.
    ///
    /// # Errors
    /// When it cannot be read; what is no increment is invalid data.
    pub(crate) fn read(input: &mut dyn Read, bytes: u64) -> io::Result<Head> {
        let wrong =
            |what: &str| io::Error::new(ErrorKind::InvalidData, format!("this is no increment of WAL-G: {what}"));
        let mut fixed = [0; FIXED as usize];
        if bytes < FIXED {
            return Err(wrong("it is too short"));
        }
        input.read_exact(&mut fixed)?;
        let (magic, rest) = fixed.split_at(4);
        let (length, count) = rest.split_at(8);
        if magic != MAGIC {
            return Err(wrong("it begins otherwise"));
        }
        let length = length.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let count = count.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let pages =
            bytes.checked_sub(FIXED + 4 * u64::from(count)).ok_or_else(|| wrong("its list of blocks is cut off"))?;
        let page = pages.checked_div(count.into()).map(|page| u32::try_from(page).unwrap_or(0));
        if pages != u64::from(count) * u64::from(page.unwrap_or(0)) || page.is_some_and(|page| !PAGES.contains(&page)) {
            return Err(wrong(&format!("{pages} bytes are not {count} pages")));
        }
        if length > MOST_BYTES || pages > MOST_BYTES {
            return Err(wrong("it has more blocks than a file can have"));
        }
        let mut numbers = vec![0; 4 * count as usize];
        input.read_exact(&mut numbers)?;
        Ok(Head { length, numbers, pages, page })
    }

    /// The beginning in PostgreSQL's form. `page`: bytes of a page, where it does not say so itself.
    pub(crate) fn as_postgres(&self, page: u32) -> Vec<u8> {
        let page = self.page.unwrap_or(page).max(1);
        let count = (self.numbers.len() / 4) as u32;
        let blocks = (self.length / u64::from(page)) as u32;
        let mut made = [POSTGRES_MAGIC, count, blocks].map(u32::to_le_bytes).concat();
        made.extend(&self.numbers);
        if count > 0 {
            made.resize(made.len().next_multiple_of(page as usize), 0);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn increment(length: u64, numbers: &[u32], page: usize) -> Vec<u8> {
        let count = (numbers.len() as u32).to_le_bytes();
        let listed = numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        [&MAGIC[..], &length.to_le_bytes(), &count, &listed, &vec![7; numbers.len() * page]].concat()
    }

    fn head(bytes: &[u8]) -> io::Result<Head> {
        Head::read(&mut &bytes[..], bytes.len() as u64)
    }

    #[test]
    fn the_form_is_that_of_postgres() {
        for page in [8192, 16384, 4096] {
            let found = head(&increment(3 * page as u64, &[1, 2], page)).expect("a sound header");
            let made = found.as_postgres(PAGE);
            let numbers: Vec<_> =
                made.chunks(4).take(5).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect();
            assert_eq!((numbers, made.len()), (vec![POSTGRES_MAGIC, 2, 3, 1, 2], page));
            assert_eq!((found.pages, found.page), (2 * page as u64, Some(page as u32)));
        }
        let found = head(&increment(5 * 16384, &[], 0)).expect("a sound header");
        assert_eq!(found.as_postgres(16384), [POSTGRES_MAGIC, 0, 5].map(u32::to_le_bytes).concat());
    }

    #[test]
    fn what_is_no_increment_is_said_to_be_none() {
        let bytes = increment(3 << 13, &[1, 2], 8192);
        // Of other lengths than those of two pages of another size.
        for cut in (0..bytes.len()).filter(|cut| !PAGES.iter().any(|page| *cut == 24 + 2 * *page as usize)) {
            let kind = head(bytes.get(..cut).unwrap()).err().map(|e| e.kind());
            assert_eq!(kind, Some(ErrorKind::InvalidData), "{cut} bytes of it");
        }
        let claims = [&MAGIC[..], &[0; 8], &u32::MAX.to_le_bytes(), &[0; 100]].concat();
        for other in [&[0; 16][..], &claims, &increment(u64::MAX, &[1], 8192)] {
            assert_eq!(head(other).err().map(|e| e.kind()), Some(ErrorKind::InvalidData));
        }
        // An archive that is cut off is another matter.
        let cut = Head::read(&mut &bytes[..20], bytes.len() as u64);
        assert_eq!(cut.err().map(|e| e.kind()), Some(ErrorKind::UnexpectedEof));
    }
}
