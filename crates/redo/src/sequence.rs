//! Resource manager Sequence.

use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::{Change, Effect};

pub(crate) fn redo(change: &Change<'_, '_>, _page: &mut Page<'_>) -> Result<Effect> {
    Err(Misfit::new(
        "record of Sequence",
        "a supported kind",
        format_args!("{:#04x}, not supported yet", change.opcode()),
    ))
}
