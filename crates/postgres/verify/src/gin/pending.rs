//! The list of entries that are not in the tree yet.
//!
//! Source: `GinMetaPageData` in src/include/access/ginblock.h, `ginHeapTupleFastInsert` and `shiftList` in ginfast.c. New pages are logged
//! before they are linked: a crash leaves pages that no list has.

use leadline_page::postgres::gin::{GIN_DELETED, GIN_LIST};

use super::tree::Tree;
use crate::index_pages::{block_name, u32_at, u64_at, NO_BLOCK};
use crate::problem::Report;

const FULL_ROW: u16 = 1 << 5;
const MEANS: &str = "index scans miss rows that were inserted last, or fail";

/// What the meta page says of it.
pub(super) struct Meta {
    head: u32,
    tail: u32,
    pages: u32,
    rows: u64,
    pub(super) version: u32,
}

impl Meta {
    pub(super) fn parse(page: &[u8]) -> Option<Meta> {
        (page.len() >= 80).then(|| Meta {
            head: u32_at(page, 24),
            tail: u32_at(page, 28),
            pages: u32_at(page, 36),
            rows: u64_at(page, 40),
            version: u32_at(page, 72),
        })
    }
}

/// Follows the list.
pub(super) fn check(meta: &Meta, tree: &mut Tree<'_>, report: &mut Report<'_>) {
    if meta.version > 2 {
        let message = format!("ginVersion should be up to 2, but is {}", meta.version);
        return tree.found("meta", 0, None, message, "the server does not use the index", report);
    }
    let (mut block, mut last, mut pages, mut rows) = (meta.head, NO_BLOCK, 0u32, 0u64);
    while block != NO_BLOCK {
        let count = tree.pages.len();
        let from = if last == NO_BLOCK {
            "the list of pending entries begins at".into()
        } else {
            format!("block {last} of the list of pending entries leads to")
        };
        let Some(about) = tree.pages.get_mut(block as usize) else {
            let message = format!("{from} block {block}, but the index has {count} blocks");
            return tree.found("pending", if last == NO_BLOCK { 0 } else { last }, None, message, MEANS, report);
        };
        if !about.is_settled {
            return;
        }
        let why = if about.flags & GIN_LIST == 0 || about.flags & GIN_DELETED != 0 {
            "is no page of that list"
        } else if about.is_root {
            "was in the list before"
        } else {
            ""
        };
        if !why.is_empty() {
            let message = format!("{from} block {block}, which {why}");
            return tree.found("pending", if last == NO_BLOCK { 0 } else { last }, None, message, MEANS, report);
        }
        about.is_root = true;
        pages += 1;
        if about.flags & FULL_ROW != 0 {
            rows += u64::from(about.maxoff);
        }
        (last, block) = (block, about.right);
    }
    let message = if last != meta.tail {
        format!("the list of pending entries should end at {}, but ends at {}", block_name(meta.tail), block_name(last))
    } else if pages != meta.pages {
        format!("nPendingPages should be {pages}, but is {}", meta.pages)
    } else if rows != meta.rows {
        format!("nPendingHeapTuples should be {rows}, but is {}", meta.rows)
    } else {
        return;
    };
    tree.found("pending", 0, None, message, MEANS, report);
}
