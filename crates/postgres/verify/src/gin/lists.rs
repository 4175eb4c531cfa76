//! Lists of rows: packed ones, and the leaves of trees of rows.
//!
//! Source: src/backend/access/gin/ginpostinglist.c; pages before 9.4 have plain row pointers (`GinDataLeafPageGetItems`).

use leadline_page::postgres::gin::Opaque;
use leadline_page::Tid;

use super::tids::{order, tid_at, DATA};
use super::tree::Tree;
use super::COMPRESSED;
use crate::blocks::Page;
use crate::index_pages::{u16_at, NO_BLOCK};
use crate::problem::Report;

/// Bits of the number of a line pointer in a packed list.
const POSID_BITS: u32 = 11;

/// Gives the rows of a packed list, and returns its length, padding too.
///
/// # Errors
/// In words, when it is no such list.
pub(super) fn unpack(bytes: &[u8], take: &mut dyn FnMut(Tid)) -> Result<usize, &'static str> {
    let first = tid_at(bytes, 0);
    let len = usize::from(u16_at(bytes, 6));
    let Some(packed) = bytes.get(8..8 + len) else { return Err("ends beyond its page") };
    let mut value = u64::from(first.block) << POSID_BITS | u64::from(first.posid);
    take(first);
    let (mut difference, mut shift) = (0u64, 0);
    for byte in packed {
        difference |= u64::from(byte & 0x7f).checked_shl(shift).ok_or("has a difference of too many bytes")?;
        shift += 7;
        if byte & 0x80 == 0 {
            value = value.wrapping_add(difference);
            if difference == 0 || value >> (POSID_BITS + 32) != 0 {
                return Err("has a difference that cannot be");
            }
            take(Tid { block: (value >> POSID_BITS) as u32, posid: (value & ((1 << POSID_BITS) - 1)) as u16 });
            (difference, shift) = (0, 0);
        }
    }
    if shift != 0 {
        return Err("ends within a difference");
    }
    Ok(8 + len.next_multiple_of(2))
}

/// The bytes of a leaf's lists, and whether they are packed.
fn leaf_lists<'a>(page: &Page<'a>, opaque: &Opaque) -> (&'a [u8], bool) {
    let is_packed = opaque.flags & COMPRESSED != 0;
    let end = if is_packed { usize::from(page.header.pd_lower) } else { DATA + 6 * usize::from(opaque.maxoff) };
    let end = end.min(usize::from(page.header.pd_special));
    (page.bytes.get(DATA..end).unwrap_or(&[]), is_packed)
}

fn each_of_leaf(page: &Page<'_>, opaque: &Opaque, take: &mut dyn FnMut(Tid)) -> Result<(), &'static str> {
    let (mut bytes, is_packed) = leaf_lists(page, opaque);
    if !is_packed {
        bytes.chunks_exact(6).for_each(|b| take(tid_at(b, 0)));
        return Ok(());
    }
    while !bytes.is_empty() {
        let len = unpack(bytes, take)?;
        bytes = bytes.get(len..).ok_or("ends beyond the lists of its page")?;
    }
    Ok(())
}

/// The rows of a leaf.
pub(super) fn leaf_tids(page: &Page<'_>, take: &mut dyn FnMut(Tid)) {
    if let Some(opaque) = Opaque::parse(page.special()) {
        // Lists that cannot be are reported before.
        let _ = each_of_leaf(page, &opaque, take);
    }
}

/// Checks the lists of a leaf, and notes its first row.
pub(super) fn check_leaf(page: &Page<'_>, opaque: &Opaque, tree: &mut Tree<'_>, report: &mut Report<'_>) {
    let bound = tid_at(page.bytes, 24);
    let mut checker = Ascending::default();
    let outcome = each_of_leaf(page, opaque, &mut |tid| checker.take(tid));
    let about = &mut tree.pages[page.block as usize];
    about.low = checker.first.map_or(0, order);
    let beyond = checker.last.filter(|last| opaque.rightlink != NO_BLOCK && order(*last) > order(bound));
    let message = match (outcome, checker.wrong, beyond) {
        (Err(why), _, _) => format!("a list of rows in block {} {why}", page.block),
        (_, Some((before, tid)), _) => format!("row {tid} follows {before} in block {}", page.block),
        (_, _, Some(last)) => format!("block {} has row {last}, but its right bound is {bound}", page.block),
        _ => return,
    };
    tree.found("posting_list", page.block, None, message, "index scans miss rows or fail", report);
}

/// Whether rows ascend.
#[derive(Default)]
pub(super) struct Ascending {
    pub(super) first: Option<Tid>,
    pub(super) last: Option<Tid>,
    pub(super) wrong: Option<(Tid, Tid)>,
    pub(super) count: u32,
}

impl Ascending {
    pub(super) fn take(&mut self, tid: Tid) {
        self.first.get_or_insert(tid);
        if let Some(last) = self.last.filter(|last| order(*last) >= order(tid)) {
            self.wrong.get_or_insert((last, tid));
        }
        self.last = Some(tid);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(packed: &[u8]) -> Result<Vec<String>, &'static str> {
        let mut bytes = vec![0, 0, 1, 0, 5, 0];
        bytes.extend((packed.len() as u16).to_le_bytes());
        bytes.extend(packed);
        bytes.push(0);
        let mut tids = Vec::new();
        unpack(&bytes, &mut |tid| tids.push(tid.to_string())).map(|len| assert_eq!(len % 2, 0))?;
        Ok(tids)
    }

    #[test]
    fn a_list_is_unpacked_exactly() {
        assert_eq!(list(&[1, 0x80, 0x10]).unwrap(), ["(1,5)", "(1,6)", "(2,6)"]);
        for (packed, why) in [(&[0u8][..], "cannot be"), (&[0x80], "within"), (&[0x80; 12], "too many")] {
            assert!(list(packed).unwrap_err().contains(why), "{packed:?}");
        }
        assert!(unpack(&[0, 0, 0, 0, 1, 0, 9, 0, 1], &mut |_| ()).unwrap_err().contains("beyond"));
    }
}
