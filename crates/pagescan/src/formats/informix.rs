//! Pages of Informix. Nothing in a chunk says that it is one, nor how large its pages are.

use leadline_page::informix::{cksum, dissect, dissect_15};

use super::{Dissected, Format, PageAt};

/// Pages of Informix.
#[derive(Debug, Clone, Copy, Default)]
pub struct Informix {
    /// They have the header of version 15.
    pub version_15: bool,
    /// The length that rows have.
    pub row_size: Option<u16>,
}

impl Format for Informix {
    fn engine(&self) -> &'static str {
        "informix"
    }

    fn owner(&self) -> &'static str {
        "Informix"
    }

    fn page_sizes(&self) -> &'static [u32] {
        &[2048, 4096, 6144, 8192, 10240, 12288, 14336, 16384]
    }

    fn told_size(&self, _: &[u8]) -> Option<u32> {
        None
    }

    fn checksums(&self) -> Option<bool> {
        (!self.version_15).then_some(true)
    }

    fn dissect(&self, page: &[u8], _: PageAt) -> Dissected {
        let found = if self.version_15 { dissect_15(page) } else { dissect(page, self.row_size) };
        let checksum = Some(cksum(page).into());
        Dissected { kind: found.kind.into(), parts: found.parts, wrong: found.wrong, checksum }
    }
}
