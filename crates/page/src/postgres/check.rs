//! What is wrong with a page, found fast: header, checksum, line pointers, overlaps, tuple headers.
//!
//! Looks at each line pointer once and takes no memory while nothing is wrong.

use super::bloom::{self, BLOOM_MAGICK_NUMBER};
use super::brin::BRIN_META_MAGIC;
use super::btree::{self, BTREE_MAGIC};
use super::checksum::checksum_inline;
use super::gin;
use super::hash::HASH_MAGIC;
use super::header::{Header, SIZE as HEADER};
use super::heap::{TupleHeader, HEAP_ONLY_TUPLE};
use super::index_tuple::{IndexTuple, INDEX_AM_RESERVED_BIT, INDEX_SIZE_MASK};
use super::kind::{kind, Fork, Items, Kind};
use super::line_pointer::{line_pointers, LinePointer, LP_DEAD, LP_NORMAL, LP_REDIRECT, LP_UNUSED};
use super::spgist::{self, SpgistTuple, SPGIST_MAGIC_NUMBER};
use super::LARGEST_BLOCK_SIZE;
use crate::part::Wrong;

/// What was found about one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it is.
    pub kind: Kind,
    /// Its line pointers, where it has some.
    pub items: u32,
    /// What cannot be; empty for a sound page.
    pub wrong: Vec<Wrong>,
}

/// Items begin at multiples of 8: one bit for each such place on the largest page.
type Places = [u64; PLACES];
const PLACES: usize = LARGEST_BLOCK_SIZE as usize / 8 / 64;

/// Checks one page. With `block` (counted from the beginning of the fork) its checksum too, as a server with data checksums
/// would.
#[inline(always)]
pub fn check(page: &[u8], fork: Fork, block: Option<u32>) -> Verdict {
    let Some(header) = Header::parse(page) else {
        let wrong = wrong("truncated", "page header", None, 0, format!("{HEADER} bytes"), page.len().to_string());
        return Verdict { kind: Kind::Unknown, items: 0, wrong: vec![wrong] };
    };
    let kind = kind(page, &header, fork);
    let mut verdict = Verdict { kind, items: 0, wrong: Vec::new() };
    if kind == Kind::New {
        return verdict;
    }
    if let Some(wrong) = broken(page, &header) {
        verdict.wrong.push(wrong);
        return verdict;
    }
    if let Some(block) = block {
        let computed = checksum_inline(page, block);
        if computed != header.pd_checksum {
            verdict.wrong.push(bad_checksum(page, &header, computed));
        }
    }
    match kind.items() {
        Items::None => verdict.wrong.extend(bad_contents(page, &header, kind)),
        items => {
            verdict.items = header.line_pointers(page.len()) as u32;
            check_items(page, &header, items, kind, &mut verdict.wrong);
        }
    }
    verdict.wrong.extend(bad_level(page, &header, kind));
    verdict
}

/// A meta page whose magic number is another, or a posting tree's leaf that its lists do not fill.
fn bad_contents(page: &[u8], header: &Header, kind: Kind) -> Option<Wrong> {
    let (what, magic) = match kind {
        Kind::BtreeMeta => ("btm_magic", BTREE_MAGIC),
        Kind::HashMeta => ("hashm_magic", HASH_MAGIC),
        Kind::SpgistMeta => ("magicNumber", SPGIST_MAGIC_NUMBER),
        Kind::BrinMeta => ("brinMagic", BRIN_META_MAGIC),
        Kind::BloomMeta => ("magickNumber", BLOOM_MAGICK_NUMBER),
        Kind::GinDataLeaf => return gin::bad_lists(page, header),
        Kind::Bloom => return bloom::bad_number(page, header),
        _ => return None,
    };
    let found = page.get(HEADER..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let is_other = || wrong("meta", what, None, HEADER, format!("{magic:#x}"), format!("{found:#x}"));
    (found != magic).then(is_other)
}

/// A page of a btree whose level is not one that its flags have.
fn bad_level(page: &[u8], header: &Header, kind: Kind) -> Option<Wrong> {
    let wanted = match kind {
        Kind::BtreeLeaf => "0, because it is a leaf",
        Kind::BtreeInner => "at least 1, because it is not a leaf",
        _ => return None,
    };
    let level = btree::Opaque::parse(header.special(page))?.btpo_level;
    let is_wrong = (level == 0) != (kind == Kind::BtreeLeaf);
    let at = usize::from(header.pd_special) + 8;
    is_wrong.then(|| wrong("special", "btpo_level", None, at, wanted.into(), level.to_string()))
}

fn wrong(
    class: &'static str,
    what: &'static str,
    item: Option<u32>,
    offset: usize,
    wanted: String,
    found: String,
) -> Wrong {
    Wrong { class, what, item, offset, wanted, found }
}

/// A header that cannot be; says so in one word when the whole page looks like noise.
fn broken(page: &[u8], header: &Header) -> Option<Wrong> {
    let wrong_field = header.wrong(page.len())?;
    if looks_encrypted(page) {
        let found = format!("bytes without a pattern ({} {})", wrong_field.what, wrong_field.found);
        return Some(wrong("encrypted", "page", None, 0, "a page header".into(), found));
    }
    Some(wrong_field)
}

/// Whether the page has as little pattern as random bytes: every value about as often as every other.
///
/// The sum of squares of counts is n + n(n-1)/256 on average for random bytes (chi-square); twice that is far beyond
/// chance from 1 kB on, and pages of text, numbers or zeros are beyond it by far.
fn looks_encrypted(page: &[u8]) -> bool {
    let mut counts = [0u64; 256];
    page.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let n = page.len() as u64;
    let squares: u64 = counts.iter().map(|c| c * c).sum();
    n >= 1024 && squares < (n + n * (n - 1) / 256) * 3 / 2
}

/// A stored checksum that does not fit; where the end of the page is zeros from a multiple of 512 on, as after a write
/// that did not finish, it says that.
fn bad_checksum(page: &[u8], header: &Header, computed: u16) -> Wrong {
    let (wanted, found) = (format!("{computed:#06x}"), format!("{:#06x}", header.pd_checksum));
    let used = page.len() - page.iter().rev().take_while(|b| **b == 0).count();
    let torn_at = used.next_multiple_of(512);
    let has_tuples = usize::from(header.pd_upper) < usize::from(header.pd_special);
    if has_tuples && torn_at < page.len() && torn_at <= usize::from(header.pd_special).saturating_sub(512) {
        return wrong("torn", "pd_checksum", None, 8, wanted, format!("{found}, and only zeros from offset {torn_at}"));
    }
    wrong("checksum", "pd_checksum", None, 8, wanted, found)
}

#[inline(always)]
fn check_items(page: &[u8], header: &Header, items: Items, kind: Kind, found: &mut Vec<Wrong>) {
    let count = header.line_pointers(page.len()) as u32;
    let (upper, special) = (usize::from(header.pd_upper), usize::from(header.pd_special));
    if !(header.pd_lower as usize - HEADER).is_multiple_of(4) {
        let wanted = format!("{HEADER} and a multiple of 4");
        found.push(wrong("header", "pd_lower", None, 12, wanted, header.pd_lower.to_string()));
    }
    let heap = items == Items::Heap;
    // Items mostly lie behind each other from the end of the page down, in the order of their line pointers.
    let (mut lowest, mut in_order) = (special, true);
    for (number, lp) in line_pointers(page, header) {
        let has_item = lp.flags() == LP_NORMAL || (lp.flags() == LP_DEAD && !lp.is_empty());
        let inside = lp.off() >= upper && lp.off() + lp.len() <= special && lp.off() % 8 == 0 && !lp.is_empty();
        if has_item && inside {
            in_order &= lp.off() + lp.len() <= lowest;
            lowest = lp.off();
            match items {
                Items::Heap if lp.flags() == LP_NORMAL && !lp.item(page).is_some_and(sound_tuple) => {
                    found.extend(bad_tuple(page, number, lp));
                }
                Items::Index | Items::Spgist if !lp.item(page).is_some_and(|item| sound_item(kind, item)) => {
                    found.extend(bad_item(page, header, kind, number, lp));
                }
                _ => {}
            }
        } else if let Some(wrong) = bad_line_pointer(page, header, heap, count, number, lp) {
            found.push(wrong);
        }
    }
    if !in_order {
        find_overlaps(page, header, found);
    }
}

/// Items that share bytes with one before them.
fn find_overlaps(page: &[u8], header: &Header, found: &mut Vec<Wrong>) {
    let mut taken: Places = [0; PLACES];
    let (upper, special) = (usize::from(header.pd_upper), usize::from(header.pd_special));
    for (number, lp) in line_pointers(page, header) {
        let inside = lp.off() >= upper && lp.off() + lp.len() <= special && lp.off() % 8 == 0;
        if inside && lp.item(page).is_some() && take(&mut taken, lp) {
            found.push(overlap(page, header, number, lp));
        }
    }
}

/// Marks the places of an item; true when some were taken.
#[inline]
fn take(taken: &mut Places, lp: LinePointer) -> bool {
    let (mut at, end) = (lp.off() / 8, (lp.off() + lp.len()).div_ceil(8));
    let mut again = false;
    while at < end {
        let (word, bit) = (at / 64, at % 64);
        let bits = (end - at).min(64 - bit);
        let mask = (u64::MAX >> (64 - bits)) << bit;
        again |= taken[word] & mask != 0;
        taken[word] |= mask;
        at += bits;
    }
    again
}

/// Whether the header of a tuple can be; [`bad_tuple`] says why not.
#[inline(always)]
fn sound_tuple(tuple: &[u8]) -> bool {
    TupleHeader::parse(tuple).is_some_and(|header| header.is_sound(tuple.len()))
}

/// Whether an item of an index is as long as it says, and lists and nodes inside of it are no longer.
#[inline(always)]
fn sound_item(kind: Kind, item: &[u8]) -> bool {
    match kind {
        Kind::SpgistLeaf => size_of_item(kind, item) == item.len(),
        Kind::SpgistInner => size_of_item(kind, item) == item.len() && spgist::nodes_fit(item),
        _ => {
            let t_info = item.get(6..8).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b));
            usize::from(t_info & INDEX_SIZE_MASK) == item.len()
                && match kind {
                    Kind::BtreeLeaf => t_info & INDEX_AM_RESERVED_BIT == 0 || btree::posting_list_fits(item),
                    Kind::GinEntryLeaf => gin::posting_list_fits(item),
                    _ => true,
                }
        }
    }
}

/// Its bytes, by its own word; 0 when it is shorter than that.
#[inline(always)]
fn size_of_item(kind: Kind, item: &[u8]) -> usize {
    let leaf = kind == Kind::SpgistLeaf;
    match kind {
        Kind::SpgistLeaf | Kind::SpgistInner => SpgistTuple::parse(item, leaf).map_or(0, |tuple| tuple.size(leaf)),
        _ => IndexTuple::parse(item).map_or(0, |tuple| tuple.size()),
    }
}

#[cold]
fn bad_item(page: &[u8], header: &Header, kind: Kind, number: u32, lp: LinePointer) -> Option<Wrong> {
    let size = size_of_item(kind, lp.item(page).unwrap_or(&[]));
    if size == lp.len() {
        return super::item(page, header.special(page), kind, number, lp).1; // named where the item is taken apart
    }
    let (what, at) = match kind {
        Kind::SpgistLeaf | Kind::SpgistInner => ("size", 0),
        _ => ("t_info", 6),
    };
    let wanted = format!("a size of {}, as lp_len", lp.len());
    Some(wrong("tuple", what, Some(number), lp.off() + at, wanted, size.to_string()))
}

#[cold]
fn bad_tuple(page: &[u8], number: u32, lp: LinePointer) -> Option<Wrong> {
    match lp.item(page).and_then(TupleHeader::parse) {
        Some(header) => header.wrong(number, lp.off(), lp.len()),
        None => {
            let wanted = "at least 23".into();
            let at = HEADER + 4 * (number as usize - 1);
            Some(wrong("line_pointer", "lp_len", Some(number), at, wanted, lp.len().to_string()))
        }
    }
}

#[cold]
fn overlap(page: &[u8], header: &Header, number: u32, lp: LinePointer) -> Wrong {
    let others = line_pointers(page, header).take_while(|(other, _)| *other < number);
    let mut others = others.filter(|(_, o)| o.item(page).is_some());
    let other = others.find(|(_, o)| o.off() < lp.off() + lp.len() && lp.off() < o.off() + o.len());
    let other = other.map_or("an item before it".into(), |(n, o)| {
        format!("line pointer {n} at {} to {}", o.off(), o.off() + o.len())
    });
    let found = format!("{} to {}, shared with {other}", lp.off(), lp.off() + lp.len());
    let at = HEADER + 4 * (number as usize - 1);
    wrong("overlap", "item", Some(number), at, "bytes not shared with another item".into(), found)
}

#[cold]
fn bad_line_pointer(
    page: &[u8],
    header: &Header,
    heap: bool,
    count: u32,
    number: u32,
    lp: LinePointer,
) -> Option<Wrong> {
    let (upper, special) = (header.pd_upper, header.pd_special);
    let at = HEADER + 4 * (number as usize - 1);
    let wrong = |what, wanted: String, found: String| {
        Some(Wrong { class: "line_pointer", what, item: Some(number), offset: at, wanted, found })
    };
    match lp.flags() {
        LP_UNUSED if lp.is_empty() => None,
        LP_UNUSED => wrong("lp_len", "0, because it is unused".into(), lp.len().to_string()),
        LP_REDIRECT if !heap => wrong("lp_flags", "no redirect, because it is in an index".into(), "2".into()),
        LP_REDIRECT if lp.off() == 0 || lp.off() > count as usize || lp.off() == number as usize => {
            wrong("lp_off", format!("the number of another line pointer, up to {count}"), lp.off().to_string())
        }
        LP_REDIRECT if !lp.is_empty() => wrong("lp_len", "0, because it is a redirect".into(), lp.len().to_string()),
        LP_REDIRECT => {
            let target = line_pointers(page, header).nth(lp.off() - 1).map(|(_, target)| target);
            let tuple = target.filter(|t| t.flags() == LP_NORMAL).and_then(|t| TupleHeader::parse(t.item(page)?));
            let found = match tuple {
                Some(tuple) if tuple.t_infomask2 & HEAP_ONLY_TUPLE != 0 => return None,
                Some(_) => format!("{}, which is not heap only", lp.off()),
                None => format!("{}, which has no tuple", lp.off()),
            };
            wrong("lp_off", "a line pointer to a heap-only tuple".into(), found)
        }
        LP_DEAD if lp.is_empty() => None,
        _ if lp.is_empty() => wrong("lp_len", "at least 1".into(), "0".into()),
        _ => {
            let wanted = format!("a multiple of 8 from pd_upper {upper}, ending before pd_special {special}");
            wrong("lp_off", wanted, format!("{} to {}", lp.off(), lp.off() + lp.len()))
        }
    }
}
