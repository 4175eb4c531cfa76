//! Resource manager Sequence: a page with one row, always made anew.
//!
//! Source: `seq_redo` in `commands/sequence.c`, `commands/sequence.h`. The same in 13 to 18.

use leadline_page::postgres::sequence::{SEQ_MAGIC, SPECIAL};

use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place};
use crate::{Change, Effect};

const LOG: u8 = 0x00;
/// The locator before the row.
const XL_SEQ_REC: usize = 12;

pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    if change.opcode() != LOG {
        return Err(Misfit::new(
            "record of Sequence",
            "LOG, 0x00",
            format_args!("{:#04x}", change.opcode()).to_string(),
        ));
    }
    let mut main = change.main();
    main.take("locator", XL_SEQ_REC)?;
    page.init(SPECIAL)?;
    let special = page.special();
    page.put("magic", special, &SEQ_MAGIC.to_le_bytes())?;
    page.add_item(main.rest(), Place::Insert(1))?;
    Ok(Effect::Changed)
}
