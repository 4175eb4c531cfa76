//! What kind of page a buffer holds: that of the page crate, with what matters to sessions that wait for a page of a btree.

use leadline_page::postgres::btree::{self, Opaque};
use leadline_page::postgres::{kind, Fork, Header, Kind};

/// A leaf with a leaf to its right.
pub const LEAF: &str = "btree leaf";
/// The leaf new keys go to when keys only grow.
pub const RIGHT_MOST_LEAF: &str = "btree right-most leaf";
/// A leaf that was the right-most one a few splits ago; only its neighbours tell.
pub const RIGHT_EDGE_LEAF: &str = "btree right-edge leaf";
/// An inner page that is the root.
const ROOT: &str = "btree root";

/// The block to the right of a btree page; None for the right-most one and for pages of other kinds.
pub fn right_sibling(page: &[u8]) -> Option<u32> {
    opaque(page).map(|opaque| opaque.btpo_next).filter(|&next| next != 0)
}

fn opaque(page: &[u8]) -> Option<Opaque> {
    let special = page.get(usize::from(Header::parse(page)?.pd_special)..)?;
    Opaque::parse(special).filter(|_| special.len() == btree::SPECIAL)
}

/// The kind of a page of fork `fork`, by its number in a buffer tag.
///
/// Only the bytes of the page are used; that a heap page is the tail of its table takes the file length as well.
pub fn page_kind(fork: u32, page: &[u8]) -> &'static str {
    match Fork::of_number(fork) {
        Some(Fork::Fsm) => return Kind::FreeSpaceMap.as_str(), // also when it has nothing but zeros yet
        Some(Fork::Vm) => return Kind::VisibilityMap.as_str(),
        _ => {}
    }
    let Some(header) = Header::parse(page) else { return Kind::Unknown.as_str() };
    match kind(page, &header, Fork::Main) {
        Kind::BtreeLeaf if right_sibling(page).is_none() => RIGHT_MOST_LEAF,
        Kind::BtreeLeaf => LEAF,
        Kind::BtreeInner if opaque(page).is_some_and(|opaque| opaque.btpo_flags & btree::BTP_ROOT != 0) => ROOT,
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = leadline_page::postgres::DEFAULT_BLOCK_SIZE as usize;

    fn page(special: &[u8]) -> Vec<u8> {
        let (size, special_at) = (SIZE as u16, (SIZE - special.len()) as u16);
        let mut page = vec![0u8; SIZE];
        let header = [40, special_at, special_at, size | 4]; // pd_lower, pd_upper, pd_special, pd_pagesize_version
        page[12..20].copy_from_slice(&header.map(u16::to_le_bytes).concat());
        page[SIZE - special.len()..].copy_from_slice(special);
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
            (vec![0, 0, 0, 0, 0, 0, 0x82, 0xff], "spgist inner"),
            (vec![0, 0, 0, 0, 0, 0, 0x93, 0xf0], "brin summaries"),
            (vec![5, 0, 0, 0, 0, 0, 2, 0], "gin entry leaf"),
            (btree_special(0, btree::BTP_LEAF), "btree right-most leaf"),
            (btree_special(0, btree::BTP_LEAF | btree::BTP_ROOT), "btree right-most leaf"),
            (btree_special(9, btree::BTP_LEAF), "btree leaf"),
            (btree_special(0, btree::BTP_ROOT), "btree root"),
            (btree_special(9, 0), "btree inner"),
            (btree_special(0, btree::BTP_META), "btree meta"),
        ] {
            assert_eq!(page_kind(0, &page(&special)), kind);
        }
        assert_eq!((page_kind(1, &[0; SIZE]), page_kind(2, &[])), ("free space map", "visibility map"));
        assert_eq!(page_kind(0, &[0; SIZE]), "new");
        assert_eq!(page_kind(0, &[0xff; SIZE]), "unknown");
        assert_eq!(page_kind(0, &[]), "unknown");
    }
}
