//! What the pages of an index tell of its age.
//!
//! Source: src/include/access/{nbtree,ginblock,hash}.h. Meta pages have their fields behind the page header.

use leadline_page::postgres::header::SIZE;
use leadline_page::postgres::{is_new, Header};

/// `btm_magic` and `hashm_magic`, and the version behind each.
const MAGIC_AT: usize = SIZE;
const VERSION_AT: usize = SIZE + 4;
const BTREE_MAGIC: u32 = 0x0005_3162;
const HASH_MAGIC: u32 = 0x0644_0640;
const ALLEQUALIMAGE: usize = SIZE + 40;
const GIN_VERSION: usize = SIZE + 48;
const GIN_DATA: u16 = 1;
const GIN_LEAF: u16 = 2;
const GIN_DELETED: u16 = 4;
const GIN_META: u16 = 8;
const GIN_COMPRESSED: u16 = 128;

fn u32_at(page: &[u8], at: usize) -> Option<u32> {
    page.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// `btm_version` and `btm_allequalimage`; None when this is no meta page of a btree.
pub fn btree_meta(page: &[u8]) -> Option<(u32, bool)> {
    let version = u32_at(page, VERSION_AT)?;
    (u32_at(page, MAGIC_AT)? == BTREE_MAGIC).then_some(())?;
    Some((version, version >= 4 && *page.get(ALLEQUALIMAGE)? != 0))
}

/// `hashm_version`; None when this is no meta page of a hash index.
pub fn hash_meta(page: &[u8]) -> Option<u32> {
    (u32_at(page, MAGIC_AT)? == HASH_MAGIC).then_some(u32_at(page, VERSION_AT)?)
}

/// What matters of a page of a GIN index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GinPage {
    /// `ginVersion`
    Meta(u32),
    /// A leaf of a posting tree: is it packed?
    Posting(bool),
    /// Any other.
    Other,
}

/// None when this is no page of a GIN index.
pub fn gin_page(page: &[u8]) -> Option<GinPage> {
    let header = Header::parse(page)?;
    if is_new(page, &header) {
        return Some(GinPage::Other);
    }
    if header.wrong(page.len()).is_some() || header.special(page).len() != 8 {
        return None;
    }
    let flags = u16::from_le_bytes(*page.last_chunk()?);
    if flags & GIN_META != 0 {
        return Some(GinPage::Meta(u32_at(page, GIN_VERSION)?));
    }
    let is_posting = flags & (GIN_DATA | GIN_LEAF) == GIN_DATA | GIN_LEAF && flags & GIN_DELETED == 0;
    Some(if is_posting { GinPage::Posting(flags & GIN_COMPRESSED != 0) } else { GinPage::Other })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[(usize, u32)]) -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (at, n) in [(12, 24 + 64u16), (14, 8184), (16, 8184), (18, 8192 | 4)] {
            page[at..at + 2].copy_from_slice(&n.to_le_bytes());
        }
        for (at, word) in words {
            page[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    #[test]
    fn meta_pages_tell_their_version() {
        assert_eq!(btree_meta(&page(&[(24, BTREE_MAGIC), (28, 3), (64, 1)])), Some((3, false)));
        assert_eq!(btree_meta(&page(&[(24, BTREE_MAGIC), (28, 4)])), Some((4, false)));
        assert_eq!(btree_meta(&page(&[(24, BTREE_MAGIC), (28, 4), (64, 1)])), Some((4, true)));
        assert_eq!(btree_meta(&page(&[(24, HASH_MAGIC), (28, 4)])), None);
        assert_eq!(hash_meta(&page(&[(24, HASH_MAGIC), (28, 3)])), Some(3));
        assert_eq!(hash_meta(&page(&[])), None);
    }

    #[test]
    fn posting_lists_of_gin_are_packed_or_not() {
        let flags = |f: u16| page(&[(8188, u32::from(f) << 16)]);
        assert_eq!(gin_page(&flags(GIN_DATA | GIN_LEAF)), Some(GinPage::Posting(false)));
        assert_eq!(gin_page(&flags(GIN_DATA | GIN_LEAF | GIN_COMPRESSED)), Some(GinPage::Posting(true)));
        assert_eq!(gin_page(&flags(GIN_DATA | GIN_LEAF | GIN_DELETED)), Some(GinPage::Other));
        assert_eq!(gin_page(&page(&[(8188, u32::from(GIN_META) << 16), (72, 1)])), Some(GinPage::Meta(1)));
        assert_eq!(gin_page(&[0; 8192]), Some(GinPage::Other));
        assert_eq!(gin_page(&[1; 8192]), None);
    }

    #[test]
    fn whatever_the_length_nothing_panics() {
        let whole = page(&[(24, BTREE_MAGIC), (28, 4), (8188, u32::from(GIN_META) << 16)]);
        for len in (0..200).chain(8000..8192) {
            let part = &whole[..len];
            assert!(len >= 65 || btree_meta(part).is_none());
            let _ = (hash_meta(part), gin_page(part));
        }
    }
}
