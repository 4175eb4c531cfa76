//! Resource manager Generic, the WAL of extensions without one of their own: which bytes of a page change.
//!
//! Source: `access/transam/generic_xlog.c`. The same in 13 to 18.

use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::{Change, Effect};

pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    let mut data = change.data();
    while data.left() > 0 {
        let (offset, length): (usize, usize) = (data.u16("offset")?.into(), data.u16("length")?.into());
        page.put("changed bytes", offset, data.take("changed bytes", length)?)?;
    }
    let (lower, upper) = (page.lower(), page.upper());
    // The record says nothing of the middle of the page; the server that wrote it had zeros there.
    match page.bytes_mut().get_mut(lower..upper) {
        Some(middle) => middle.fill(0),
        None => {
            let found = format_args!("{lower}..{upper}").to_string();
            return Err(Misfit::new("middle of the page", "pd_lower <= pd_upper inside the page", found));
        }
    }
    Ok(Effect::Changed)
}
