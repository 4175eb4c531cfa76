//! Pointers to rows as GIN stores them.

use leadline_page::Tid;

/// Where lists begin: behind the page header and the right bound.
pub(super) const DATA: usize = 32;

/// A number that has the order of row pointers.
pub(super) fn order(tid: Tid) -> u64 {
    u64::from(tid.block) << 16 | u64::from(tid.posid)
}

pub(super) fn tid_at(bytes: &[u8], at: usize) -> Tid {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(Tid::default(), |b| Tid::parse(*b))
}
