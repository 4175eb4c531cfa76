//! Resource manager Generic.

use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::{Change, Effect};

pub(crate) fn redo(change: &Change<'_, '_>, _page: &mut Page<'_>) -> Result<Effect> {
    Err(Misfit::new(
        "record of Generic",
        "a supported kind",
        format_args!("{:#04x}, not supported yet", change.opcode()),
    ))
}
