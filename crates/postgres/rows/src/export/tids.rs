//! The places of rows as DELTA_BYTE_ARRAY.

use leadline_parquet::{put_delta, Buffer};

use crate::beside::{tid_end, tid_start};
use crate::cell::Place;
use crate::value::Text;

/// Places of rows as text, each without what it shares with the one before: those of a page share its number.
#[derive(Default)]
pub(super) struct Tids {
    block: Option<u32>,
    /// Bytes before the line pointer.
    head: usize,
    /// Bytes shared with the text before, bytes of the rest.
    pub shared: Vec<i64>,
    lengths: Vec<i64>,
    pub rest: Text,
}

impl Tids {
    #[inline]
    pub(super) fn push(&mut self, place: &Place) {
        let at = self.rest.len();
        if self.block == Some(place.block) {
            self.shared.push(self.head as i64);
            tid_end(place, &mut self.rest);
        } else {
            self.shared.push(0);
            tid_start(place, &mut self.rest);
            (self.block, self.head) = (Some(place.block), self.rest.len() - at);
            tid_end(place, &mut self.rest);
        }
        self.lengths.push((self.rest.len() - at) as i64);
    }

    pub(super) fn put(&mut self, out: &mut Buffer) {
        for lengths in [&mut self.shared, &mut self.lengths] {
            put_delta(lengths, false, out);
            lengths.clear();
        }
        out.put_slice(self.rest.as_bytes());
        self.rest.clear();
        self.block = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xact::Status;

    #[test]
    fn the_first_place_of_a_page_shares_nothing() {
        let place = |lp| Place { block: 7, lp, xmin: 3, xmax: 0, status: Status::Live };
        let (mut tids, mut body) = (Tids::default(), Buffer::default());
        for _ in 0..2 {
            tids.push(&place(1));
            tids.push(&place(22));
            assert_eq!((&tids.shared[..], tids.rest.as_bytes()), (&[0, 3][..], &b"(7,1)22)"[..]));
            tids.put(&mut body);
        }
    }
}
