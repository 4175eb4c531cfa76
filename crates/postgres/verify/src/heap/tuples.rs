//! What the header of a row version says against itself and against pg_class.
//!
//! Source: contrib/amcheck/verify_heapam.c (`check_tuple_header`), src/include/access/htup_details.h.

use leadline_page::postgres::heap::infomask::{MOVED, XMAX_COMMITTED, XMAX_INVALID, XMAX_IS_MULTI};
use leadline_page::postgres::heap::infomask2::HOT_UPDATED;
use leadline_page::postgres::heap::HEAP_ONLY_TUPLE;
use leadline_rows::xact::Logged;

use super::found::{At, Found};
use super::items::{Items, Version};

const UPDATED: u16 = 0x2000;
/// `t_ctid` of a row of INSERT ON CONFLICT that may yet be taken back.
const SPECULATIVE: u16 = 0xfffe;
const CLASS: &str = "tuple_header";

/// Looks at each version of a page. `natts`: columns of the table; `is_final`: what is committed is so in all files.
pub(crate) fn check(items: &Items, block: u32, natts: u16, is_final: bool, found: &mut Found<'_, '_>) {
    for item in items.numbers() {
        let Some(version) = items.version(item) else { continue };
        for (message, means) in wrong(version, natts, is_final) {
            found.certain(CLASS, At { block, item }, message, means);
        }
    }
}

fn wrong(version: &Version, natts: u16, is_final: bool) -> impl Iterator<Item = (String, &'static str)> {
    let header = &version.header;
    let (mask, mask2) = (header.t_infomask, header.t_infomask2);
    let is_old = mask & MOVED != 0;
    let is_committed = version.inserted == Logged::Committed;
    let both = XMAX_COMMITTED | XMAX_IS_MULTI;
    let multi = (mask & both == both).then(|| {
        let message = "xmax is marked as a multixact and as committed, which is never said of a multixact".to_owned();
        (message, "the row may be seen although it was deleted, or not seen although it was only locked")
    });
    let never = (mask2 & HOT_UPDATED != 0 && version.updater == Some(0) && mask & XMAX_IS_MULTI == 0).then(|| {
        let message = "the row is marked as HOT updated, but its xmax is 0".to_owned();
        (message, "an index scan goes on to a version that is not there")
    });
    let alone = (mask2 & HEAP_ONLY_TUPLE != 0 && mask & UPDATED == 0 && !is_old).then(|| {
        let message = "the row is heap only, but not marked as the result of an update".to_owned();
        (message, "an index scan does not find the row")
    });
    // Who added a column and was rolled back may have left rows that have it.
    let many = (is_committed && header.natts() > natts).then(|| {
        let message = format!("the row has {} columns, but the table has {natts}", header.natts());
        (message, "values of the row are taken for others")
    });
    let is_open = header.t_ctid.posid == SPECULATIVE && is_committed && is_final && mask & XMAX_INVALID != 0;
    let open = is_open.then(|| {
        let message = "the row is marked as a speculative insertion, but its transaction was committed".to_owned();
        (message, "who updates the row is led to a place that is not there")
    });
    [multi, never, alone, many, open].into_iter().flatten()
}
