//! Pages of relations of PostgreSQL.

use leadline_page::postgres::{check, checksum, dissect_block, is_block_size, Header, BLOCK_SIZES};

use super::{Dissected, Format, PageAt};

/// Pages of relations of PostgreSQL.
#[derive(Debug)]
pub struct Postgres;

impl Format for Postgres {
    fn engine(&self) -> &'static str {
        "postgres"
    }

    fn owner(&self) -> &'static str {
        "PostgreSQL"
    }

    fn page_sizes(&self) -> &'static [u32] {
        &BLOCK_SIZES
    }

    fn told_size(&self, start: &[u8]) -> Option<u32> {
        let header = Header::parse(start)?;
        let size = header.page_size() as u32;
        (header.version() == 4 && is_block_size(size)).then_some(size)
    }

    fn dissect(&self, page: &[u8], at: PageAt) -> Dissected {
        let mut found = dissect_block(page, at.fork, at.block);
        let stored = Header::parse(page).map_or(0, |h| h.pd_checksum);
        if at.checksums.unwrap_or(stored != 0) {
            let others = check(page, at.fork, Some(at.block)).wrong;
            found.wrong.extend(others.into_iter().filter(|w| w.what == "pd_checksum"));
        }
        let checksum = Some(checksum(page, at.block).into());
        Dissected { kind: found.kind.as_str().into(), parts: found.parts, wrong: found.wrong, checksum }
    }
}
