//! A page that is written anew: dedup and splits go this way.

use super::{opaque, HIGH_KEY, OPAQUE};
use crate::misfit::Result;
use crate::page::{Page, Place};

/// A page written anew from its own items, which keeps only its special area.
///
/// Source: `PageGetTempPageCopySpecial` and `PageRestoreTempPage` in `storage/page/bufpage.c`.
pub(super) struct Rebuilt {
    bytes: Vec<u8>,
    next: u16,
}

impl Rebuilt {
    pub(super) fn of(page: &mut Page<'_>) -> Result<Rebuilt> {
        let mut bytes = vec![0; page.size()];
        let mut new = Page::new(&mut bytes)?;
        new.init(OPAQUE)?;
        opaque(&mut new)?.copy_from_slice(opaque(page)?);
        Ok(Rebuilt { bytes, next: HIGH_KEY })
    }

    /// Adds an item behind those there are.
    pub(super) fn push(&mut self, item: &[u8]) -> Result<()> {
        Page::new(&mut self.bytes)?.add_item(item, Place::Insert(self.next))?;
        self.next += 1;
        Ok(())
    }

    pub(super) fn replace(self, page: &mut Page<'_>) {
        page.bytes_mut().copy_from_slice(&self.bytes);
    }
}
