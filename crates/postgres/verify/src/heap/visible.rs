//! Pages that are marked as visible to all, in their header or in the visibility map.
//!
//! The map may say less than the page, after a crash or because a deletion cleared it; it never says more.
//!
//! Source: src/backend/access/heap/visibilitymap.c, contrib/pg_visibility/pg_visibility.c (`collect_corrupt_items`), heapam.c
//! (`heap_tuple_needs_eventual_freeze`).

use leadline_page::postgres::heap::infomask::{MOVED, XMAX_INVALID, XMAX_IS_MULTI, XMIN_FROZEN};
use leadline_page::postgres::line_pointer::LP_DEAD;
use leadline_rows::xact::Logged;

use super::found::{At, Found};
use super::items::{Items, Version};
use super::xacts::{Deleted, FIRST_NORMAL};
use crate::maps::Bits;

const PD_ALL_VISIBLE: u16 = 4;
const CLASS: &str = "visibility_map";
const WRONG_ROWS: &str = "an index-only scan returns rows that are gone, or VACUUM leaves them";

/// Compares a page with its header and with its bits. `is_final`: what is committed is so in all files.
pub(crate) fn check(items: &Items, block: u32, pd_flags: u16, bits: Bits, is_final: bool, found: &mut Found<'_, '_>) {
    let page = At { block, item: 0 };
    let is_marked = pd_flags & PD_ALL_VISIBLE != 0;
    if bits.frozen && !bits.visible {
        let message = "the visibility map says that all rows are frozen, but not that they are visible to all".into();
        found.certain(CLASS, page, message, "VACUUM does not freeze rows of the page");
    }
    if bits.visible && !is_marked {
        let message =
            "the visibility map says that all rows are visible to all, but PD_ALL_VISIBLE of the page is not set"
                .into();
        found.certain(CLASS, page, message, WRONG_ROWS);
    }
    let says = if is_marked { "PD_ALL_VISIBLE of the page says" } else { "the visibility map says" };
    if is_marked || bits.visible {
        for item in items.numbers() {
            let is_dead = items.pointer(item).is_some_and(|lp| lp.flags() == LP_DEAD);
            let why = match items.version(item) {
                _ if is_dead => Some("the line pointer is dead".to_owned()),
                Some(version) => hidden(version, is_final),
                None => None,
            };
            if let Some(why) = why {
                let message = format!("{says} that all rows of block {block} are visible to all, but {why}");
                found.certain(CLASS, At { block, item }, message, WRONG_ROWS);
                break;
            }
        }
    }
    if bits.frozen {
        for item in items.numbers() {
            if let Some(why) = items.version(item).and_then(unfrozen) {
                let message = format!("the visibility map says that all rows of block {block} are frozen, but {why}");
                found.certain(
                    CLASS,
                    At { block, item },
                    message,
                    "VACUUM does not freeze the row; it disappears when transaction IDs wrap around",
                );
                break;
            }
        }
    }
}

/// Why a version is not visible to all.
fn hidden(version: &Version, is_final: bool) -> Option<String> {
    let (xmin, xmax) = (version.header.t_xmin, version.header.t_xmax);
    match (version.inserted, version.deleted) {
        (Logged::Aborted, _) => Some(format!("its xmin {xmin} was rolled back")),
        (Logged::Open, _) if is_final => Some(format!("its xmin {xmin} was not committed")),
        (_, Deleted::By(_, Logged::Committed)) => Some(format!("its xmax {xmax} was committed")),
        _ => None,
    }
}

/// What is left to be frozen.
fn unfrozen(version: &Version) -> Option<String> {
    let header = &version.header;
    let mask = header.t_infomask;
    if header.t_xmin >= FIRST_NORMAL && mask & XMIN_FROZEN != XMIN_FROZEN {
        return Some(format!("its xmin {} is not", header.t_xmin));
    }
    if mask & XMAX_IS_MULTI != 0 && mask & XMAX_INVALID == 0 && header.t_xmax != 0 {
        return Some(format!("its xmax is multixact {}", header.t_xmax));
    }
    if mask & XMAX_IS_MULTI == 0 && header.t_xmax >= FIRST_NORMAL {
        return Some(format!("its xmax is {}", header.t_xmax));
    }
    (mask & MOVED != 0).then(|| "it was moved by an old VACUUM FULL".to_owned())
}
