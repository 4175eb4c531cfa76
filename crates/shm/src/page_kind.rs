//! What kind of page a block is, from its own bytes: header, special area, fork.

/// Offsets in PageHeaderData, bufpage.h.
const PD_LOWER: usize = 12;
const PD_SPECIAL: usize = 16;
const PD_PAGESIZE_VERSION: usize = 18;

/// BTPageOpaqueData at the end of a btree page: its bytes, and where in it the right sibling stands, 0 for none.
pub const BTREE_SPECIAL: usize = 16;
/// See [`BTREE_SPECIAL`].
pub const BTPO_NEXT: usize = 4;

const BTP_LEAF: u16 = 1;
const BTP_ROOT: u16 = 2;
const BTP_META: u16 = 8;

fn u16_at(page: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(page.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(page.get(at..at + 4)?.try_into().ok()?))
}

/// A leaf with a leaf to its right.
pub const LEAF: &str = "btree leaf";
/// The leaf new keys go to when keys only grow.
pub const RIGHT_MOST_LEAF: &str = "btree right-most leaf";

/// A leaf that was the right-most one a few splits ago; only its neighbours tell.
pub const RIGHT_EDGE_LEAF: &str = "btree right-edge leaf";

/// The block to the right of a btree page; None for the right-most one and for pages of other kinds.
pub fn right_sibling(page: &[u8]) -> Option<u32> {
    let special = page.get(usize::from(u16_at(page, PD_SPECIAL)?)..)?;
    u32_at(special, BTPO_NEXT).filter(|&next| special.len() == BTREE_SPECIAL && next != 0)
}

/// The kind of a page of fork `fork` (0 main, 1 fsm, 2 vm, 3 init). A page of zeros is "new".
///
/// Only the bytes of the page are used; that a heap page is the tail of its table takes the file length as well.
/// Source: nbtree.h, hash.h, gist.h, spgist.h, brin_page.h, ginblock.h, sequence.c.
pub fn page_kind(fork: u32, page: &[u8]) -> &'static str {
    match fork {
        1 => return "free space map",
        2 => return "visibility map",
        _ => {}
    }
    main_fork(page).unwrap_or("unknown")
}

fn main_fork(page: &[u8]) -> Option<&'static str> {
    if u16_at(page, PD_LOWER)? == 0 {
        return Some("new");
    }
    let special_at = usize::from(u16_at(page, PD_SPECIAL)?);
    let page_size = usize::from(u16_at(page, PD_PAGESIZE_VERSION)? & 0xff00);
    if page_size != page.len() || special_at > page_size {
        return None;
    }
    let special = page.get(special_at..)?;
    Some(match special.len() {
        0 => "heap",
        8 => match (u32_at(special, 0)?, u16_at(special, 6)?) {
            (0x1717, _) => "sequence",
            (_, 0xff82) => "spgist",
            (_, 0xf091..=0xf093) => "brin",
            _ => "gin",
        },
        BTREE_SPECIAL => match u16_at(special, 14)? {
            0xff80 => "hash",
            0xff81 => "gist",
            _ => btree(u32_at(special, BTPO_NEXT)?, u16_at(special, 12)?),
        },
        _ => "unknown",
    })
}

fn btree(btpo_next: u32, btpo_flags: u16) -> &'static str {
    match btpo_flags {
        f if f & BTP_META != 0 => "btree meta",
        f if f & BTP_LEAF != 0 && btpo_next == 0 => RIGHT_MOST_LEAF,
        f if f & BTP_LEAF != 0 => LEAF,
        f if f & BTP_ROOT != 0 => "btree root",
        _ => "btree inner",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(special: &[u8]) -> Vec<u8> {
        let mut page = vec![0u8; 8192];
        page[PD_LOWER] = 40;
        page[PD_SPECIAL..PD_SPECIAL + 2].copy_from_slice(&(8192 - special.len() as u16).to_le_bytes());
        page[PD_PAGESIZE_VERSION..PD_PAGESIZE_VERSION + 2].copy_from_slice(&(8192u16 | 4).to_le_bytes());
        page[8192 - special.len()..].copy_from_slice(special);
        page
    }

    fn btree_special(next: u32, flags: u16) -> Vec<u8> {
        let mut s = vec![0u8; 16];
        s[4..8].copy_from_slice(&next.to_le_bytes());
        s[12..14].copy_from_slice(&flags.to_le_bytes());
        s
    }

    #[test]
    fn kinds_are_told_apart() {
        for (special, kind) in [
            (vec![], "heap"),
            (vec![0x17, 0x17, 0, 0, 0, 0, 0, 0], "sequence"),
            (vec![0, 0, 0, 0, 0, 0, 0x82, 0xff], "spgist"),
            (vec![0, 0, 0, 0, 0, 0, 0x93, 0xf0], "brin"),
            (vec![5, 0, 0, 0, 0, 0, 2, 0], "gin"),
            (btree_special(0, BTP_LEAF), "btree right-most leaf"),
            (btree_special(0, BTP_LEAF | BTP_ROOT), "btree right-most leaf"),
            (btree_special(9, BTP_LEAF), "btree leaf"),
            (btree_special(0, BTP_ROOT), "btree root"),
            (btree_special(9, 0), "btree inner"),
            (btree_special(0, BTP_META), "btree meta"),
        ] {
            assert_eq!(page_kind(0, &page(&special)), kind);
        }
        assert_eq!(page_kind(2, &[]), "visibility map");
        assert_eq!(page_kind(0, &[0; 8192]), "new");
        assert_eq!(page_kind(0, &[0xff; 8192]), "unknown");
        assert_eq!(page_kind(0, &[]), "unknown");
    }
}
