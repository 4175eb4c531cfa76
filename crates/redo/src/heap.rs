//! Resource manager Heap.

use leadline_wal::Record;

use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::{Change, Effect};

pub(crate) fn redo(change: &Change<'_, '_>, _page: &mut Page<'_>) -> Result<Effect> {
    Err(Misfit::new("record of Heap", "a supported kind", format_args!("{:#04x}, not supported yet", change.opcode())))
}

/// The bits of the visibility map that the record clears: for a block id, which bits.
pub(crate) fn cleared_visibility(_record: &Record<'_>, _put: &mut impl FnMut(u8, u8)) {}

/// Whether the server writes down the free space of the page after it, where little is left.
pub(crate) fn may_fill_a_page(_info: u8) -> bool {
    false
}
