//! Transactions and multixacts of row versions: whether there are such, and whether hint bits say what pg_xact says.
//!
//! Source: contrib/amcheck/verify_heapam.c (`get_xid_status`, `check_mxid_valid_in_rel`), heapam_visibility.c (`SetHintBits`).

use leadline_page::postgres::heap::infomask::{
    MOVED, XMAX_COMMITTED, XMAX_INVALID, XMAX_IS_MULTI, XMIN_COMMITTED, XMIN_FROZEN, XMIN_INVALID,
};
use leadline_page::postgres::heap::TupleHeader;
use leadline_rows::xact::Logged;

use super::about::Thresholds;
use super::found::{At, Found};
use super::items::Items;
use super::xacts::{is_of_an_upgrade, only_locked, precedes, Ends, FIRST_NORMAL};

const FAILS: &str = "reading the row fails, or it is seen although it should not be";
const SEEN: &str = "the row is seen although it should not be, or is not although it should be";

/// Looks at each version of a page. `is_final`: all files are of one moment, and all that ended is in pg_xact.
pub(crate) fn check(
    items: &Items,
    block: u32,
    than: &Thresholds,
    is_final: bool,
    ends: &mut Ends,
    found: &mut Found<'_, '_>,
) {
    if ends.is_unknown {
        return;
    }
    // The row of pg_class is newer than pages that were not written since.
    let than = if is_final { *than } else { Thresholds::default() };
    for item in items.numbers() {
        let Some(version) = items.version(item) else { continue };
        let (header, at) = (&version.header, At { block, item });
        if header.t_infomask & MOVED != 0 {
            continue;
        }
        if let Some(message) = xmin(header, &than, is_final, ends) {
            found.of_transaction("xmin", header.t_xmin, at, message.0, message.1);
        }
        let xmax = if header.t_infomask & XMAX_IS_MULTI == 0 {
            xmax(header, &than, is_final, ends)
        } else {
            multi(header, &than, is_final, ends)
        };
        if let Some(message) = xmax {
            found.of_transaction("xmax", header.t_xmax, at, message.0, message.1);
        }
    }
}

type Wrong = Option<(String, &'static str)>;

/// A transaction that there is none of.
fn outside(name: &str, xid: u32, is_used: bool, than: &Thresholds, ends: &Ends) -> Wrong {
    if xid < FIRST_NORMAL || !is_used {
        return None;
    }
    if !precedes(xid, ends.next) {
        return Some((format!("{name} {xid} is not before the next transaction {}", ends.next), FAILS));
    }
    if precedes(xid, ends.oldest) {
        return Some((format!("{name} {xid} is before the oldest transaction {}", ends.oldest), FAILS));
    }
    let frozen = than.frozen_xid;
    if frozen >= FIRST_NORMAL && precedes(xid, frozen) {
        return Some((format!("{name} {xid} is before the relfrozenxid {frozen} of the table"), FAILS));
    }
    None
}

fn xmin(header: &TupleHeader, than: &Thresholds, is_final: bool, ends: &mut Ends) -> Wrong {
    let hints = header.t_infomask & XMIN_FROZEN;
    let xid = header.t_xmin;
    if hints == XMIN_FROZEN {
        return None;
    }
    if let Some(wrong) = outside("xmin", xid, true, than, ends) {
        return Some(wrong);
    }
    let said = match (hints, ends.logged(xid)) {
        _ if xid < FIRST_NORMAL => return None,
        (XMIN_COMMITTED, Logged::Aborted) => "committed, but pg_xact says that it was rolled back",
        (XMIN_COMMITTED, Logged::Open) if is_final => "committed, but pg_xact says that it was not",
        (XMIN_INVALID, Logged::Committed) => "rolled back, but pg_xact says that it was committed",
        _ => return None,
    };
    Some((format!("the row says that its xmin {xid} was {said}"), SEEN))
}

fn xmax(header: &TupleHeader, than: &Thresholds, is_final: bool, ends: &mut Ends) -> Wrong {
    let mask = header.t_infomask;
    let xid = header.t_xmax;
    if let Some(wrong) = outside("xmax", xid, mask & XMAX_INVALID == 0, than, ends) {
        return Some(wrong);
    }
    if only_locked(mask) || xid < FIRST_NORMAL {
        return None;
    }
    let said = match (mask & (XMAX_COMMITTED | XMAX_INVALID), ends.logged(xid)) {
        (XMAX_COMMITTED, Logged::Aborted) => "committed, but pg_xact says that it was rolled back",
        (XMAX_COMMITTED, Logged::Open) if is_final => "committed, but pg_xact says that it was not",
        (XMAX_INVALID, Logged::Committed) => "rolled back, but pg_xact says that it was committed",
        _ => return None,
    };
    Some((format!("the row says that its xmax {xid} was {said}"), SEEN))
}

fn multi(header: &TupleHeader, than: &Thresholds, is_final: bool, ends: &mut Ends) -> Wrong {
    let mask = header.t_infomask;
    let multi = header.t_xmax;
    if mask & XMAX_INVALID != 0 || is_of_an_upgrade(mask) {
        return None;
    }
    if multi == 0 {
        return Some(("xmax is marked as a multixact, but is 0".into(), FAILS));
    }
    if !precedes(multi, ends.next_multi) {
        return Some((format!("multixact {multi} is not before the next one {}", ends.next_multi), FAILS));
    }
    if precedes(multi, ends.oldest_multi) {
        return Some((format!("multixact {multi} is before the oldest one {}", ends.oldest_multi), FAILS));
    }
    if than.min_multi > 0 && precedes(multi, than.min_multi) {
        return Some((format!("multixact {multi} is before the relminmxid {} of the table", than.min_multi), FAILS));
    }
    match ends.members(multi) {
        Err(why) if is_final => Some((format!("the members of multixact {multi} cannot be read: {why}"), FAILS)),
        Ok(None) if is_final && !only_locked(mask) => Some((
            format!("xmax is not marked as only locking, but multixact {multi} has no member that updated"),
            SEEN,
        )),
        _ => None,
    }
}
