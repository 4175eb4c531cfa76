//! When a page takes a record: images first, then pages made anew, then the LSN.
//!
//! Source: `XLogReadBufferForRedoExtended` in `access/transam/xlogutils.c`, the same in 13 to 18.

use leadline_datadir::RelFile;
use leadline_wal::rmgr::id;
use leadline_wal::version::image_info::APPLY;
use leadline_wal::{image, Block, Record};

use crate::fields;
use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::target::fork;
use crate::{Applied, Change};

/// Whether the record makes the page whatever was on it before, so that earlier records of the page need not be applied.
///
/// A few kinds change the page once more after its image: they must be given to [`crate::apply`] all the same.
#[inline]
pub fn starts_page(block: &Block) -> bool {
    block.will_init || has_image_to_apply(block)
}

/// An image that only verifies redo (`wal_consistency_checking`) is not one.
#[inline]
fn has_image_to_apply(block: &Block) -> bool {
    block.has_image && block.image_info & APPLY != 0
}

/// How far a page is once the general rule was applied.
pub(crate) enum Begun {
    /// The resource manager has its turn.
    Ready,
    /// The image was put in place.
    Restored,
    /// There is nothing to do.
    Not(Applied),
}

/// Does to the page what does not depend on the kind of record.
#[inline]
pub(crate) fn begin(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Begun> {
    let block = change.block;
    if has_image_to_apply(block) {
        return restore(change, page);
    }
    if block.will_init {
        page.clear();
        return Ok(Begun::Ready);
    }
    // Pages of the visibility map are read as zeros where there are none.
    if page.is_new() && block.fork != fork::VISIBILITY && change.record.rmid != id::XLOG {
        return Ok(Begun::Not(Applied::Missing));
    }
    if change.lsn() <= page.lsn() {
        return Ok(Begun::Not(Applied::Older));
    }
    Ok(Begun::Ready)
}

#[cold]
fn restore(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Begun> {
    image::restore(change.record, change.block, page.bytes_mut())
        .map_err(|e| Misfit::new("page image", "an image that unpacks to a page", e))?;
    if !page.is_new() {
        page.set_lsn(change.lsn());
    }
    Ok(Begun::Restored)
}

/// `xl_smgr_truncate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Blocks that are left of the main fork.
    pub blocks: u32,
    /// Whose files.
    pub relation: RelFile,
    /// Which forks.
    pub flags: u32,
}

impl Truncation {
    /// The main fork is cut.
    pub fn has_main(&self) -> bool {
        self.flags & 1 != 0
    }

    /// The visibility map is cut.
    pub fn has_visibility_map(&self) -> bool {
        self.flags & 2 != 0
    }

    /// The free space map is cut.
    pub fn has_free_space_map(&self) -> bool {
        self.flags & 4 != 0
    }
}

/// What a record of the kind `XLOG_SMGR_TRUNCATE` says; none when it is too short.
pub fn truncation(record: &Record<'_>) -> Option<Truncation> {
    let mut from = fields::of(record.main_data());
    let mut word = || from.u32("xl_smgr_truncate").ok();
    let blocks = word()?;
    let relation = RelFile { spc: word()?, db: word()?, rel: word()? };
    Some(Truncation { blocks, relation, flags: word()? })
}
