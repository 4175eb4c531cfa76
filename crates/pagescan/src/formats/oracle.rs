//! Blocks of Oracle: of a datafile, or cut out of one.

use leadline_page::oracle::{block_size, dissect, xor};

use super::{Dissected, Format, PageAt};

/// Blocks of Oracle.
#[derive(Debug)]
pub struct Oracle;

impl Format for Oracle {
    fn engine(&self) -> &'static str {
        "oracle"
    }

    fn owner(&self) -> &'static str {
        "Oracle"
    }

    fn page_sizes(&self) -> &'static [u32] {
        &[8192, 2048, 4096, 16384, 32768]
    }

    fn told_size(&self, start: &[u8]) -> Option<u32> {
        block_size(start).map(|bytes| bytes as u32)
    }

    fn dissect(&self, page: &[u8], _: PageAt) -> Dissected {
        let found = dissect(page);
        let kind = if found.encrypted { format!("{}, encrypted", found.kind) } else { found.kind.into() };
        let stored = page.get(16..18).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
        let checksum = Some((xor(page) ^ stored).into());
        Dissected { kind, parts: found.parts, wrong: found.wrong, checksum }
    }
}
