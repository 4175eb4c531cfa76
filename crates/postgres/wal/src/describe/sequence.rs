//! Resource manager Sequence: the whole row of the sequence. Source: `commands/sequence.h`.

use leadline_bytes::Result;

use super::fields::Reading;

/// Where a row says how long its header is.
const T_HOFF: usize = 22;

pub(super) fn describe(to: &mut Reading<'_>) -> Result<()> {
    to.relation("rel")?;
    let row = to.rest();
    let Some(hoff) = row.get(T_HOFF).map(|h| usize::from(*h)) else { return Ok(()) };
    to.turn_to(row.get(hoff..).unwrap_or_default());
    to.i64("last_value")?;
    to.i64("log_cnt")?;
    to.flag("is_called")?;
    Ok(())
}
