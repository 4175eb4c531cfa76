//! Pages of PostgreSQL: layout version 4, which every release since 8.3 writes. Checked against 13 to 18.
//!
//! Little-endian servers only: page sizes and flags of a big-endian one make no sense here, and that is what is said.

use leadline_bytes::Endian;

use crate::part::{FieldKind, Part, Value, Wrong};
use crate::reader::Reader;

mod bloom;
pub mod brin;
pub mod btree;
mod check;
mod checksum;
mod clog;
mod control;
mod control_state;
pub mod gin;
pub mod gist;
pub mod hash;
pub mod header;
pub mod heap;
pub mod index_tuple;
mod kind;
pub mod line_pointer;
mod map;
mod relmap;
pub mod sequence;
pub mod spgist;

pub use check::{check, Verdict};
pub use checksum::{checksum, checksum_inline};
pub use clog::{describe_clog, SLRU_PAGES_PER_SEGMENT};
pub use control::{describe_control, Control};
pub use control_state::{ControlState, DbState};
pub use header::Header;
pub use kind::{is_new, kind, Fork, Items, Kind};
pub use relmap::{describe_relmap, relmap};

use line_pointer::{line_pointers, LinePointer, LP_DEAD, LP_NORMAL};

/// Bytes of a page unless the server was built otherwise, and of a page of the log.
pub const DEFAULT_BLOCK_SIZE: u32 = 8192;

/// Sizes that pages can have, the usual one first: a server is built with one of them.
pub const BLOCK_SIZES: [u32; 6] = [DEFAULT_BLOCK_SIZE, 16384, 32768, 4096, 2048, 1024];

/// The largest of them.
pub const LARGEST_BLOCK_SIZE: u32 = 32768;

/// Whether pages can be of this size.
#[inline]
pub fn is_block_size(bytes: u32) -> bool {
    BLOCK_SIZES.contains(&bytes)
}

/// Whether pages of the log can be of this size.
pub fn is_log_block_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (1024..=65536).contains(&bytes)
}

/// A page taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What it is.
    pub kind: Kind,
    /// Its parts, the header first.
    pub parts: Vec<Part>,
    /// What cannot be. Checksums are not looked at: whether there are any is known to the server, not to the page.
    pub wrong: Vec<Wrong>,
}

/// Takes a page apart. `page` is one whole block; its length is the block size.
///
/// Never fails: what cannot be read is in [`Page::wrong`], and all that can be read is there.
pub fn dissect(page: &[u8], fork: Fork) -> Page {
    dissect_block(page, fork, 0)
}

/// The same; `block` counts from the beginning of the fork, and only the visibility map's page makes use of it.
pub fn dissect_block(page: &[u8], fork: Fork, block: u32) -> Page {
    let (part, truncated) = header::describe(page);
    let Some(header) = Header::parse(page) else {
        let mut wrong = check::check(page, fork, None).wrong;
        wrong.extend(truncated);
        return Page { kind: Kind::Unknown, parts: vec![part], wrong };
    };
    let kind = kind(page, &header, fork);
    if kind == Kind::New {
        let mut r = Reader::new(page, Endian::Little, "new page", FieldKind::Free, 0, page.len());
        r.bytes_to("zeros", FieldKind::Free, page.len());
        return Page { kind, parts: vec![part_without_bytes(part), r.finish()], wrong: Vec::new() };
    }
    let mut found = Found { parts: vec![part], wrong: Vec::new() };
    contents(&mut found, page, &header, kind, block);
    special(&mut found, page, &header, kind);
    for wrong in check::check(page, fork, None).wrong {
        if !found.wrong.contains(&wrong) {
            found.wrong.push(wrong); // else it was met already while its item was taken apart
        }
    }
    Page { kind, parts: found.parts, wrong: found.wrong }
}

/// A page of zeros has a header of zeros; its bytes belong to the zeros.
fn part_without_bytes(mut part: Part) -> Part {
    part.fields.iter_mut().for_each(|f| f.len = 0);
    part
}

/// What has been found so far.
struct Found {
    parts: Vec<Part>,
    wrong: Vec<Wrong>,
}

impl Found {
    fn add(&mut self, (part, wrong): (Part, Option<Wrong>)) {
        self.parts.push(part);
        self.wrong.extend(wrong);
    }

    fn add_all(&mut self, (parts, wrong): (Vec<Part>, Option<Wrong>)) {
        self.parts.extend(parts);
        self.wrong.extend(wrong);
    }
}

fn contents(found: &mut Found, page: &[u8], header: &Header, kind: Kind, block: u32) {
    let special = header.special(page);
    match kind {
        Kind::VisibilityMap => found.add(map::visibility(page, block)),
        Kind::FreeSpaceMap => found.add(map::free_space(page)),
        Kind::BtreeMeta => found.add(btree::contents(page, header, true)),
        Kind::BtreeDeleted => found.add(btree::contents(page, header, false)),
        Kind::HashMeta => found.add(hash::contents(page, header, true)),
        Kind::HashBitmap => found.add(hash::contents(page, header, false)),
        Kind::GinMeta => found.add(gin::meta(page, header)),
        Kind::GinDataLeaf | Kind::GinDataInner => {
            found.add_all(gin::posting_tree(page, header, &gin::Opaque::parse(special).unwrap_or_default()));
        }
        Kind::GistDeleted => found.add(gist::contents(page, header)),
        Kind::SpgistMeta => found.add_all(spgist::meta(page, header)),
        Kind::BrinMeta => found.add(brin::meta(page, header)),
        Kind::BrinRevmap => found.add(brin::revmap(page, header)),
        Kind::BloomMeta => found.add(bloom::meta(page, header)),
        Kind::Bloom => found.add_all(bloom::tuples(page, header)),
        _ if kind.items() != Items::None => items(found, page, header, kind),
        _ => {}
    }
    if !matches!(kind, Kind::VisibilityMap | Kind::FreeSpaceMap | Kind::BrinRevmap) {
        let (lower, upper) = (usize::from(header.pd_lower), usize::from(header.pd_upper));
        if header::SIZE <= lower && lower < upper {
            let mut r = Reader::new(page, Endian::Little, "free space", FieldKind::Free, lower, upper);
            r.bytes_to("free", FieldKind::Free, upper);
            found.parts.push(r.finish());
        }
    }
}

fn items(found: &mut Found, page: &[u8], header: &Header, kind: Kind) {
    let special = header.special(page);
    let mut tuples = Vec::new();
    let (mut live, mut dead, mut bytes) = (0u64, 0u64, 0u64);
    for (number, lp) in line_pointers(page, header) {
        found.parts.push(line_pointer::describe(page, number, lp));
        match lp.flags() {
            LP_DEAD => dead += 1,
            LP_NORMAL => live += 1,
            _ => {}
        }
        if lp.item(page).is_some() {
            bytes += lp.len() as u64;
            tuples.push(item(page, special, kind, number, lp));
        }
    }
    tuples.into_iter().for_each(|tuple| found.add(tuple));
    let mut r = Reader::new(page, Endian::Little, "summary", FieldKind::Header, 0, 0);
    r.derived("live_items", Value::Number(live)).derived("dead_items", Value::Number(dead));
    r.derived("avg_item_size", Value::Number(bytes.checked_div(live + dead).unwrap_or(0)));
    r.derived("free_size", Value::Number(header.free_size()));
    found.parts.insert(1, r.finish());
}

fn item(page: &[u8], special: &[u8], kind: Kind, number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    match kind {
        Kind::Heap => heap::describe(page, number, lp),
        Kind::Sequence => sequence::item(page, number, lp),
        Kind::BtreeLeaf | Kind::BtreeInner | Kind::BtreeDeletedOld => {
            btree::item(page, &btree::Opaque::parse(special).unwrap_or_default(), number, lp)
        }
        Kind::HashBucket | Kind::HashOverflow => hash::item(page, number, lp),
        Kind::GinEntryLeaf | Kind::GinEntryInner | Kind::GinPending => {
            gin::item(page, &gin::Opaque::parse(special).unwrap_or_default(), number, lp)
        }
        Kind::GistLeaf => gist::item(page, true, number, lp),
        Kind::GistInner => gist::item(page, false, number, lp),
        Kind::SpgistLeaf => spgist::item(page, true, number, lp),
        Kind::SpgistInner => spgist::item(page, false, number, lp),
        Kind::BrinRegular => brin::item(page, number, lp),
        _ => {
            let (start, end) = (lp.off(), lp.off() + lp.len());
            let mut r = Reader::new(page, Endian::Little, "item", FieldKind::Data, start, end).numbered(number);
            r.bytes_to("data", FieldKind::Data, end);
            (r.finish(), None)
        }
    }
}

fn special(found: &mut Found, page: &[u8], header: &Header, kind: Kind) {
    use Kind as K;
    let start = usize::from(header.pd_special).max(header::SIZE);
    if start >= page.len() {
        return;
    }
    let mut r = Reader::new(page, Endian::Little, "special", FieldKind::Special, start, page.len());
    let outcome = match kind {
        K::BtreeMeta | K::BtreeLeaf | K::BtreeInner | K::BtreeDeleted | K::BtreeDeletedOld => btree::special(&mut r),
        K::HashMeta | K::HashBucket | K::HashOverflow | K::HashBitmap | K::HashUnused => hash::special(&mut r),
        K::GinMeta | K::GinEntryLeaf | K::GinEntryInner | K::GinDataLeaf | K::GinDataInner => gin::special(&mut r),
        K::GinPending | K::GinDeleted => gin::special(&mut r),
        K::GistLeaf | K::GistInner | K::GistDeleted => gist::special(&mut r),
        K::SpgistMeta | K::SpgistLeaf | K::SpgistInner => spgist::special(&mut r),
        K::BrinMeta | K::BrinRevmap | K::BrinRegular => brin::special(&mut r),
        K::Sequence => sequence::special(&mut r),
        K::Bloom | K::BloomMeta => bloom::special(&mut r),
        _ => Ok(()),
    };
    r.bytes_to("special", FieldKind::Special, page.len());
    found.parts.push(r.finish());
    found.wrong.extend(outcome.err());
}
