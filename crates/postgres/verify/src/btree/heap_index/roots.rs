//! Where indexes point to for each row version of a page: to the first one of its HOT chain.
//!
//! Source: src/backend/access/heap/pruneheap.c, `heap_get_root_tuples`.

use leadline_page::postgres::heap::infomask::{XMAX_INVALID, XMAX_IS_MULTI, XMIN_FROZEN, XMIN_INVALID};
use leadline_page::postgres::heap::infomask2::HOT_UPDATED;
use leadline_page::postgres::heap::{TupleHeader, HEAP_ONLY_TUPLE};
use leadline_page::postgres::line_pointer::{line_pointers, LinePointer, LP_NORMAL, LP_REDIRECT};
use leadline_page::postgres::Header;

/// What a line pointer is to an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Unused,
    /// Redirected or dead.
    Pointer,
    /// A row version that indexes point to, and one that they do not.
    Row,
    HeapOnly,
}

/// A page of a table.
#[derive(Debug, Default)]
pub(super) struct Roots {
    pointers: Vec<LinePointer>,
    pub places: Vec<Place>,
    headers: Vec<Option<TupleHeader>>,
    /// The number of the line pointer, by that of each version; 0: not known.
    pub roots: Vec<u16>,
}

impl Roots {
    /// Takes a page apart.
    pub(super) fn read(&mut self, page: &[u8], header: &Header, block: u32) {
        self.pointers.clear();
        self.pointers.extend(line_pointers(page, header).map(|(_, lp)| lp));
        self.headers.clear();
        let parse =
            |lp: &LinePointer| (lp.flags() == LP_NORMAL).then(|| lp.item(page).and_then(TupleHeader::parse)).flatten();
        self.headers.extend(self.pointers.iter().map(parse));
        self.places.clear();
        self.places.extend(self.pointers.iter().zip(&self.headers).map(|(lp, header)| match header {
            Some(header) if header.t_infomask2 & HEAP_ONLY_TUPLE != 0 => Place::HeapOnly,
            Some(_) => Place::Row,
            None if lp.flags() == 0 => Place::Unused,
            None => Place::Pointer,
        }));
        self.roots.clear();
        self.roots.resize(self.pointers.len(), 0);
        for i in 0..self.pointers.len() {
            match self.places[i] {
                Place::Row => self.follow(i, i, None, block),
                Place::Pointer if self.pointers[i].flags() == LP_REDIRECT => {
                    let target = self.pointers[i].off().wrapping_sub(1);
                    if self.places.get(target) == Some(&Place::HeapOnly) {
                        self.follow(i, target, None, block);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn header(&self, i: usize) -> Option<TupleHeader> {
        self.headers.get(i).copied().flatten()
    }

    /// The bytes of a row version.
    pub(super) fn item<'p>(&self, page: &'p [u8], i: usize) -> &'p [u8] {
        self.pointers.get(i).and_then(|lp| lp.item(page)).unwrap_or_default()
    }

    /// Goes along a chain from its first version. A version has only one root: that ends circles.
    fn follow(&mut self, root: usize, first: usize, by: Option<u32>, block: u32) {
        let (mut at, mut by) = (first, by);
        loop {
            let Some(header) = self.header(at) else { return };
            if by.is_some_and(|by| by != header.t_xmin) || self.roots[at] != 0 {
                return;
            }
            if at != root && self.places[at] != Place::HeapOnly {
                return;
            }
            self.roots[at] = root as u16 + 1;
            let is_updated = header.t_infomask2 & HOT_UPDATED != 0
                && header.t_infomask & XMAX_INVALID == 0
                && header.t_infomask & XMIN_FROZEN != XMIN_INVALID;
            if !is_updated || header.t_ctid.block != block || header.t_ctid.posid == 0 {
                return;
            }
            by = (header.t_infomask & XMAX_IS_MULTI == 0).then_some(header.t_xmax);
            at = usize::from(header.t_ctid.posid) - 1;
        }
    }
}
