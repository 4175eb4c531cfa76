//! PostgreSQL's redo of majors 13 to 18, page by page: a record of the log in, the bytes of one page changed as the server's own
//! recovery changes them, the unused middle of the page included.
//!
//! Owns: which pages a record changes ([`targets`]) and how ([`apply`]), when a page takes a record ([`rule`]), what must be
//! ignored when a page is compared with an image of `wal_consistency_checking` ([`mask`], [`consistency`]). Does not own: reading
//! the WAL, files, what is not in pages of relations (transaction status, control file, two-phase state).
//!
//! No redo routine of these majors reads one page to write another, so each page can be taken forward alone, in the order of
//! its records. There is no I/O here, no clock and nothing kept from one call to the next. Records and pages come from outside:
//! a record that does not fit its page is a [`Misfit`], never a panic.
//!
//! The truth is in the server's `*_redo` functions (`access/heap/heapam_xlog.c` and its like) and `storage/page/bufpage.c`.

#![forbid(unsafe_code)]

mod brin;
mod btree;
pub mod consistency;
mod fields;
pub mod free_space;
mod generic;
mod gin;
mod gist;
mod hash;
mod heap;
mod heap2;
mod index_tuple;
pub mod mask;
mod misfit;
pub mod page;
pub mod rule;
mod sequence;
mod spgist;
mod target;
mod touched;
mod tuple;
pub mod visibility;

use leadline_wal::rmgr::id;
use leadline_wal::{Block, Record};

pub use misfit::{Details, Misfit, Result};
pub use page::Page;
pub use rule::starts_page;
pub use target::{Part, Target};
pub use touched::targets;

/// Resource managers that [`id`] does not name.
pub(crate) mod more_ids {
    pub(crate) const HASH: u8 = 12;
    pub(crate) const GIN: u8 = 13;
    pub(crate) const GIST: u8 = 14;
    pub(crate) const SPGIST: u8 = 16;
    pub(crate) const BRIN: u8 = 17;
}

/// What redo must know of the cluster, whose WAL all records are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Major version.
    pub major: u8,
    /// Bytes of a page of a relation, `BLCKSZ`.
    pub block_size: u32,
    /// `XLogHintBitIsNeeded`: data checksums are on, or `wal_log_hints` of the server that recovers.
    pub hint_bits_are_logged: bool,
}

/// What became of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The record was applied.
    Changed,
    /// The page was made from the record's image of it; what was there before does not matter.
    Restored,
    /// The page has the LSN of this record or of a later one already.
    Older,
    /// The record says nothing of this page's bytes.
    Unchanged,
    /// The page is all zeros or was never written, and the record needs what was on it. The server remembers this, and gives up
    /// unless a later record drops or cuts off the file.
    Missing,
}

/// What a resource manager did to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The page takes the record's LSN.
    Changed,
    /// Bytes changed but the LSN stays.
    Quiet,
    /// Nothing, and the LSN stays.
    Nothing,
}

/// One block of a record on its way to its page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'r, 'a> {
    pub context: &'r Context,
    pub record: &'r Record<'a>,
    pub block: &'r Block,
}

impl<'a> Change<'_, 'a> {
    /// The record's kind within its resource manager, with the init bit where it has one.
    pub(crate) fn opcode(&self) -> u8 {
        self.record.info & 0xF0
    }

    pub(crate) fn major(&self) -> u8 {
        self.context.major
    }

    /// What the record says as a whole.
    pub(crate) fn main(&self) -> fields::Fields<'a> {
        fields::of(self.record.main_data())
    }

    /// What the record says of this block.
    pub(crate) fn data(&self) -> fields::Fields<'a> {
        fields::of(self.record.data_of(self.block))
    }

    /// Where the record ends: what a page's LSN becomes.
    pub(crate) fn lsn(&self) -> u64 {
        self.record.end.0
    }
}

/// Takes one page over one record.
///
/// `page` is the whole page, all zeros where the file has none yet. `target` is one that [`targets`] yields for the record.
/// Records of a page must come in the order of the WAL.
///
/// # Errors
/// The record does not fit the page. The page's bytes are then of no use.
pub fn apply(context: &Context, record: &Record<'_>, target: &Target, page: &mut [u8]) -> Result<Applied> {
    change(context, record, target, page).map_err(|misfit| misfit.of(record, target))
}

fn change(context: &Context, record: &Record<'_>, target: &Target, bytes: &mut [u8]) -> Result<Applied> {
    let mut page = Page::new(bytes)?;
    let id = match target.part {
        Part::Block(id) => id,
        Part::ClearVisible { heap_block, bits } => return visibility::clear(&mut page, heap_block, bits),
        Part::TruncateVisible { heap_blocks } => return visibility::truncate(&mut page, heap_blocks),
        Part::TruncateFreeSpace { heap_blocks } => return free_space::truncate(&mut page, heap_blocks),
    };
    let Some(block) = record.block(id) else {
        return Err(Misfit::new("block of the record", "one of its blocks", id));
    };
    let change = Change { context, record, block };
    let effect = match rule::begin(&change, &mut page)? {
        rule::Begun::Ready => redo(&change, &mut page)?,
        rule::Begun::Restored => {
            after_image(&change, &mut page)?;
            return Ok(Applied::Restored);
        }
        rule::Begun::Not(applied) => return Ok(applied),
    };
    match effect {
        Effect::Changed => page.set_lsn(change.lsn()),
        Effect::Quiet => {}
        // The page was made empty for it.
        Effect::Nothing if block.will_init => {
            return Err(Misfit::new("new page", "a kind of record that makes it", id))
        }
        Effect::Nothing => return Ok(Applied::Unchanged),
    }
    Ok(Applied::Changed)
}

/// A page that is ready for the record: not newer, and made anew (all zeros) where the record makes it.
fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    use more_ids::{BRIN, GIN, GIST, HASH, SPGIST};
    match change.record.rmid {
        id::HEAP => heap::redo(change, page),
        id::HEAP2 => heap2::redo(change, page),
        id::BTREE => btree::redo(change, page),
        HASH => hash::redo(change, page),
        GIN => gin::redo(change, page),
        GIST => gist::redo(change, page),
        id::SEQ => sequence::redo(change, page),
        SPGIST => spgist::redo(change, page),
        BRIN => brin::redo(change, page),
        id::GENERIC => generic::redo(change, page),
        // An image without APPLY, or a hint for which none was needed: nothing to redo.
        id::XLOG => Ok(Effect::Nothing),
        other => Err(Misfit::new("resource manager", "one whose records change pages", other)),
    }
}

/// What is done to a page even after it was restored from the record's image: flags that the image is too early for.
fn after_image(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    match change.record.rmid {
        more_ids::HASH => hash::after_image(change, page),
        more_ids::GIST => gist::after_image(change, page),
        _ => Ok(()),
    }
}
