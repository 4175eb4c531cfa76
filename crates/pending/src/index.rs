//! What the pages of an index tell of its age.
//!
//! Source: src/include/access/{nbtree,ginblock,hash}.h. Meta pages have their fields behind the page header.

use leadline_page::postgres::header::SIZE;
use leadline_page::postgres::Header;

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
    let version = u32_at(page, SIZE + 4)?;
    (u32_at(page, SIZE)? == BTREE_MAGIC).then_some(())?;
    Some((version, version >= 4 && *page.get(ALLEQUALIMAGE)? != 0))
}

/// `hashm_version`; None when this is no meta page of a hash index.
pub fn hash_meta(page: &[u8]) -> Option<u32> {
    (u32_at(page, SIZE)? == HASH_MAGIC).then_some(u32_at(page, SIZE + 4)?)
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
    if header.pd_upper == 0 {
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
