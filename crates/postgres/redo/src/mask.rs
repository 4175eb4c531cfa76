//! What must not be compared between a page that redo made and the image of `wal_consistency_checking`, which is the page as the
//! server had it: hints that are not logged, and the unused middle.
//!
//! Source: `access/common/bufmask.c` and the `*_mask` functions; the same in 13 to 18 but for deleted pages of B-trees in 13.

use leadline_page::postgres::{brin, btree, gin, gist, header};
use leadline_wal::rmgr::id;

use crate::misfit::{Misfit, Result};
use crate::more_ids::{BRIN, GIN, GIST, HASH, SPGIST};
use crate::page::{aligned, flags, LinePointer, Page, HEADER, LP_NORMAL, LP_UNUSED};
use crate::target::fork;
use crate::tuple::{infomask, Tid, Tuple};

/// Sets what may differ to the same bytes.
///
/// Pages of the visibility map lose their LSN alone: the server's own mask would leave nothing of them.
///
/// # Errors
/// The page's header is wrong.
pub fn mask(major: u8, rmid: u8, fork_number: u8, block: u32, bytes: &mut [u8]) -> Result<()> {
    let mut page = Page::new(bytes)?;
    let page = &mut page;
    if fork_number == fork::VISIBILITY || fork_number == fork::FREE_SPACE {
        lsn_and_checksum(page);
        return Ok(());
    }
    match rmid {
        id::HEAP | id::HEAP2 => heap(page, block),
        id::BTREE => btree(major, page),
        HASH => hash(page),
        GIN => gin(page),
        GIST => gist(page),
        SPGIST => {
            common(page);
            unused_space_if(page.lower() >= HEADER, page)
        }
        BRIN => brin(page),
        id::SEQ | id::GENERIC => {
            lsn_and_checksum(page);
            unused_space(page)
        }
        _ => Ok(()),
    }
}

/// `mask_page_lsn_and_checksum`.
fn lsn_and_checksum(page: &mut Page<'_>) {
    page.bytes_mut()[..header::at::FLAGS].fill(0);
}

/// That and `mask_page_hint_bits`.
fn common(page: &mut Page<'_>) {
    lsn_and_checksum(page);
    page.set_prune_xid(0);
    page.set_flag(flags::FULL | flags::HAS_FREE_LINES | flags::ALL_VISIBLE, false);
}

/// `mask_unused_space`.
fn unused_space(page: &mut Page<'_>) -> Result<()> {
    page.check_pointers()?;
    let middle = page.lower()..page.upper();
    page.bytes_mut()[middle].fill(0);
    Ok(())
}

fn unused_space_if(is_set: bool, page: &mut Page<'_>) -> Result<()> {
    if is_set {
        unused_space(page)
    } else {
        Ok(())
    }
}

/// `mask_page_content`: nothing is left but flags, version and special pointer.
fn content(page: &mut Page<'_>) {
    page.bytes_mut()[HEADER..].fill(0);
    page.set_lower(0);
    page.set_upper(0);
}

/// `mask_lp_flags`.
fn line_pointer_flags(page: &mut Page<'_>) -> Result<()> {
    for number in 1..=page.max_offset() {
        let lp = page.line_pointer(number)?;
        if lp.flags() != LP_UNUSED {
            page.set_line_pointer(number, LinePointer(lp.0 & !0x18000))?;
        }
    }
    Ok(())
}

/// `heap_mask`.
fn heap(page: &mut Page<'_>, block: u32) -> Result<()> {
    /// `SpecTokenOffsetNumber`: the row is not confirmed yet.
    const SPECULATIVE: u16 = 0xFFFE;
    common(page);
    unused_space(page)?;
    for number in 1..=page.max_offset() {
        let lp = page.line_pointer(number)?;
        if lp.is_empty() {
            continue;
        }
        let item = page.storage(lp)?;
        if lp.flags() == LP_NORMAL {
            let mut row = Tuple::new(&mut page.bytes_mut()[item.clone()])?;
            let bits = row.infomask();
            let is_frozen = bits & infomask::XMIN_FROZEN == infomask::XMIN_FROZEN;
            let hints = if is_frozen { infomask::XMAX_INVALID | infomask::XMAX_COMMITTED } else { infomask::XACT_MASK };
            row.set_infomask(bits & !hints);
            row.cid_bytes().fill(0);
            if row.ctid_number() == SPECULATIVE {
                row.set_ctid(Tid { block, number });
            }
        }
        let padded = aligned(item.end).min(page.size());
        page.bytes_mut()[item.end..padded].fill(0);
    }
    Ok(())
}

/// Changes two bytes of the index's own area.
fn special_bits(page: &mut Page<'_>, at: usize, clear: u16, set: u16) -> Result<()> {
    let at = page.special() + at;
    let bits = page.u16_at(at) & !clear | set;
    page.put("flags of the index page", at, &bits.to_le_bytes())
}

/// `btree_mask`.
fn btree(major: u8, page: &mut Page<'_>) -> Result<()> {
    const HAS_GARBAGE: u16 = 0x40;
    const SPLIT_END: u16 = 0x20;
    common(page);
    unused_space(page)?;
    let bits = page.u16_at(page.special() + btree::at::FLAGS);
    // Since 14 deleted pages are compared too: their only content is logged.
    if major < 14 && bits & btree::BTP_DELETED != 0 {
        content(page);
    } else if bits & btree::BTP_LEAF != 0 {
        line_pointer_flags(page)?;
    }
    special_bits(page, btree::at::FLAGS, HAS_GARBAGE | SPLIT_END, 0)?;
    special_bits(page, btree::at::CYCLE_ID, 0xFFFF, 0)
}

/// `hash_mask`.
fn hash(page: &mut Page<'_>) -> Result<()> {
    const UNUSED: u16 = 0;
    const OVERFLOW: u16 = 1;
    const BUCKET: u16 = 2;
    const TYPE: u16 = 0x0F;
    const HAS_DEAD_TUPLES: u16 = 0x80;
    common(page);
    unused_space(page)?;
    match page.u16_at(page.special() + crate::hash::at::FLAG) & TYPE {
        UNUSED => content(page),
        BUCKET | OVERFLOW => line_pointer_flags(page)?,
        _ => {}
    }
    special_bits(page, crate::hash::at::FLAG, HAS_DEAD_TUPLES, 0)
}

/// `gin_mask`.
fn gin(page: &mut Page<'_>) -> Result<()> {
    common(page);
    if page.u16_at(page.special() + crate::gin::at::FLAGS) & gin::GIN_DELETED != 0 {
        content(page);
        return Ok(());
    }
    unused_space_if(page.lower() > HEADER, page)
}

/// `gist_mask`, and one flag that it forgets: redo marks a page from which killed items were deleted, the server that deletes them
/// does not (`gistRedoDeleteRecord`, `gistprunepage`), and its own check fails there. Nothing reads the flag.
fn gist(page: &mut Page<'_>) -> Result<()> {
    const TUPLES_DELETED: u16 = 0x04;
    const FOLLOW_RIGHT: u16 = 0x08;
    const HAS_GARBAGE: u16 = 0x10;
    common(page);
    unused_space(page)?;
    let special = page.special();
    page.put("NSN", special + crate::gist::at::NSN, &[0; 8])?;
    if page.u16_at(special + crate::gist::at::FLAGS) & gist::F_LEAF != 0 {
        line_pointer_flags(page)?;
    }
    special_bits(page, crate::gist::at::FLAGS, HAS_GARBAGE | TUPLES_DELETED, FOLLOW_RIGHT)
}

/// `brin_mask`.
fn brin(page: &mut Page<'_>) -> Result<()> {
    const EVACUATE: u16 = 0x01;
    common(page);
    if page.special() + brin::SPECIAL > page.size() {
        return Err(Misfit::new("special area of BRIN", brin::SPECIAL, page.size() as i64 - page.special() as i64));
    }
    let kind = page.u16_at(page.special() + 6);
    let is_meta = kind == brin::BRIN_PAGETYPE_META && page.lower() > HEADER;
    unused_space_if(kind == brin::BRIN_PAGETYPE_REGULAR || is_meta, page)?;
    special_bits(page, 4, EVACUATE, 0)
}
