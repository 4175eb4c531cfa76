//! Chains of row versions within a page.
//!
//! Source: src/backend/access/heap/README.HOT, heapam.c (`heap_update`, `heap_lock_tuple`), pruneheap.c, and the end of
//! contrib/amcheck/verify_heapam.c, which says what is excused: who rolled back may have left links to nothing, and versions
//! that nothing leads to.

use leadline_page::postgres::heap::infomask2::HOT_UPDATED;
use leadline_page::postgres::heap::HEAP_ONLY_TUPLE;
use leadline_rows::xact::Logged;

use super::found::{At, Found};
use super::items::{Items, Version};
use super::xacts::{Deleted, FIRST_NORMAL};

const MISSES: &str = "an index scan misses rows, or returns old ones";
const CHAIN: &str = "hot_chain";

/// What leads to a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The line pointer with this number.
    Is(u16),
    /// One whose updater is not known.
    Maybe,
}

fn is_heap_only(version: &Version) -> bool {
    version.header.t_infomask2 & HEAP_ONLY_TUPLE != 0
}

fn is_hot_updated(version: &Version) -> bool {
    version.header.t_infomask2 & HOT_UPDATED != 0
}

/// Compares the versions of a page.
pub(crate) fn check(items: &Items, block: u32, found: &mut Found<'_, '_>) {
    let mut before = vec![Before::Nothing; items.len() + 1];
    for number in items.numbers() {
        if let Some(next) = items.redirect(number) {
            if items.version(next).is_some_and(is_heap_only) {
                links(number, next, &mut before, block, found);
            }
            continue;
        }
        let Some(version) = items.version(number) else { continue };
        let ctid = version.header.t_ctid;
        let is_here = ctid.block == block && ctid.posid != number;
        if is_hot_updated(version) && !is_here {
            let message =
                format!("the row is marked as HOT updated, but its t_ctid {ctid} is not another row of block {block}");
            found.certain(CHAIN, At { block, item: number }, message, MISSES);
            continue;
        }
        if !is_here {
            continue;
        }
        let next = items.version(ctid.posid);
        let is_next = |next: &Version, xid: u32| xid >= FIRST_NORMAL && next.header.t_xmin == xid;
        match (version.updater, next) {
            (Some(xid), Some(next)) if is_next(next, xid) => {
                if links(number, ctid.posid, &mut before, block, found) {
                    marks(number, version, ctid.posid, next, block, found);
                }
            }
            (None, Some(_)) => before[usize::from(ctid.posid)] = Before::Maybe,
            _ => breaks(number, version, next, block, found),
        }
    }
    for number in items.numbers() {
        let Some(version) = items.version(number) else { continue };
        let is_alone = is_heap_only(version) && before[usize::from(number)] == Before::Nothing;
        if is_alone && version.inserted == Logged::Committed {
            let message = "the row is heap only, but no other row and no redirect of its page leads to it".into();
            found.certain(CHAIN, At { block, item: number }, message, "an index scan does not find the row");
        }
    }
}

/// Notes that one leads to another; false when a different one does so too.
fn links(from: u16, to: u16, before: &mut [Before], block: u32, found: &mut Found<'_, '_>) -> bool {
    let Some(place) = before.get_mut(usize::from(to)) else { return false };
    if let Before::Is(other) = *place {
        let message =
            format!("line pointer {from} leads to {to}, but line pointer {other} of block {block} leads there too");
        found.certain(CHAIN, At { block, item: from }, message, "a row may come back twice");
        return false;
    }
    *place = Before::Is(from);
    true
}

/// Both versions say whether the update was a HOT update, and agree; who rolled back has no later versions.
fn marks(from: u16, version: &Version, to: u16, next: &Version, block: u32, found: &mut Found<'_, '_>) {
    let at = At { block, item: from };
    match (is_hot_updated(version), is_heap_only(next)) {
        (false, true) => {
            let message = format!("the row is not marked as HOT updated, but its next version {to} is heap only");
            found.certain(CHAIN, at, message, MISSES);
        }
        (true, false) => {
            let message = format!("the row is marked as HOT updated, but its next version {to} is not heap only");
            found.certain(CHAIN, at, message, "a row may come back twice");
        }
        _ => {}
    }
    if version.inserted == Logged::Aborted && next.inserted == Logged::Committed {
        let message = format!("the row's transaction was rolled back, but that of its next version {to} was committed");
        found.certain("xmin", at, message, "a row that is there is not seen, or one that is not is");
    }
}

/// A version that was updated within the page, without its next one: pruning takes both or neither.
fn breaks(from: u16, version: &Version, next: Option<&Version>, block: u32, found: &mut Found<'_, '_>) {
    let Deleted::By(xid, Logged::Committed) = version.deleted else { return };
    let to = version.header.t_ctid.posid;
    // 2: frozen by a server before 9.4.
    let is_frozen = next.is_some_and(|next| next.header.t_xmin < FIRST_NORMAL);
    if !is_hot_updated(version) || version.inserted != Logged::Committed || is_frozen || xid < FIRST_NORMAL {
        return;
    }
    let what = match next {
        Some(next) => format!("the xmin of row {to} is {}", next.header.t_xmin),
        None => format!("line pointer {to} has no row"),
    };
    let message = format!("the row was HOT updated by transaction {xid} to {to}, but {what}");
    found.certain(CHAIN, At { block, item: from }, message, "an index scan misses the row");
}
