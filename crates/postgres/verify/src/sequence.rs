//! The one row of a sequence, against pg_sequence.
//!
//! Source: src/backend/commands/sequence.c (`read_seq_tuple`, `init_params`).

use leadline_errors::Result;
use leadline_page::postgres::line_pointer::{line_pointers, LP_NORMAL};
use leadline_page::postgres::Kind;
use leadline_rows::heap_file::Tuple;

use crate::blocks::{Page, Settled};
use crate::heap::about::Bounds;
use crate::heap::found::{At, Found};
use crate::problem::Report;
use crate::target::Target;

const CLASS: &str = "sequence";
const FAILS: &str = "nextval fails";

/// Looks at a sequence.
pub(crate) fn check(target: &Target<'_>, report: &mut Report<'_>) -> Result<()> {
    let mut blocks = target.blocks()?;
    let mut found = Found::new(report, blocks.again());
    let is_final = blocks.settled() == Settled::All;
    // ALTER SEQUENCE may have changed its limits since a page that was not written yet.
    let bounds = target.of.rows.sequences.get(&target.class.oid).filter(|_| is_final);
    match blocks.read(0)? {
        Some(page) if !page.is_settled => found.skipped("pages changed after the last checkpoint, or damaged", 1),
        Some(page) => {
            if let Some((item, message, means)) = wrong(&page, bounds) {
                found.certain(CLASS, At { block: 0, item }, message, means);
            }
        }
        None if is_final => found.certain(CLASS, At { block: 0, item: 0 }, "the sequence has no page".into(), FAILS),
        None => {}
    }
    found.finish();
    Ok(())
}

fn wrong(page: &Page<'_>, bounds: Option<&Bounds>) -> Option<(u16, String, &'static str)> {
    if page.kind != Kind::Sequence {
        return Some((0, format!("the page is one of {} instead of a sequence", page.kind.as_str()), FAILS));
    }
    let mut items = line_pointers(page.bytes, &page.header);
    let (first, others) = (items.next().map(|(_, lp)| lp), items.count());
    let tuple = first.filter(|lp| lp.flags() == LP_NORMAL).and_then(|lp| Tuple::parse(lp.item(page.bytes)?));
    let (Some(tuple), 0) = (tuple, others) else {
        return Some((
            0,
            format!(
                "the page has {} line pointers instead of one with a row",
                page.header.line_pointers(page.bytes.len())
            ),
            FAILS,
        ));
    };
    let i64_at = |at: usize| tuple.data.get(at..).and_then(|b| b.first_chunk()).map(|b| i64::from_le_bytes(*b));
    let (last, log_cnt, is_called) = match (i64_at(0), i64_at(8), tuple.data.get(16)) {
        (Some(last), Some(log_cnt), Some(is_called)) if tuple.natts() == 3 && tuple.bitmap.is_none() => {
            (last, log_cnt, *is_called)
        }
        _ => return Some((1, "the row has not the three values of a sequence".into(), FAILS)),
    };
    if is_called > 1 {
        return Some((
            1,
            format!("is_called is {is_called}, which is neither 0 nor 1"),
            "a number is left out or given twice",
        ));
    }
    if log_cnt < 0 {
        return Some((1, format!("log_cnt is {log_cnt}"), "numbers are given twice after a crash"));
    }
    let bounds = bounds.filter(|bounds| !(bounds.min..=bounds.max).contains(&last))?;
    let message = format!("last_value is {last}, but the sequence goes from {} to {}", bounds.min, bounds.max);
    Some((1, message, "nextval fails, or gives numbers that it should not"))
}
