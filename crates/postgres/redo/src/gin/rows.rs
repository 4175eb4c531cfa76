//! Leaves of a GIN index's trees of rows: segments of row numbers, each a first one and the differences of the others.
//!
//! A difference is written in groups of seven bits, the lowest first; a byte's highest bit says that another follows.
//!
//! Source: `ginRedoRecompress` in `access/gin/ginxlog.c`, `access/gin/ginpostinglist.c`, `GinPostingList` in `access/ginblock.h`.

use super::{change_flags, flag, flags, max_off, set_data_size, set_max_off, DATA};
use crate::fields::{self, Fields};
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::Page;

/// Bytes of a segment before its differences: the first row, and how many bytes follow.
const SEGMENT_HEADER: usize = 8;
/// `MaxHeapTuplesPerPageBits`: bits of a row's number within its page.
const NUMBER_BITS: u32 = 11;
/// Bits of a row's place that can be encoded.
const PLACE_BITS: u32 = 32 + NUMBER_BITS;

/// What is done to a segment, `GIN_SEGMENT_*`.
mod action {
    pub(super) const DELETE: u8 = 1;
    pub(super) const INSERT: u8 = 2;
    pub(super) const REPLACE: u8 = 3;
    pub(super) const ADD_ITEMS: u8 = 4;
}

/// Takes the next segment of a list (`SizeOfGinPostingList`).
fn next_segment<'a>(from: &mut Fields<'a>) -> Result<&'a [u8]> {
    let bytes = from.rest().get(6..SEGMENT_HEADER).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    Ok(from.take("GinPostingList", SEGMENT_HEADER + bytes.next_multiple_of(2))?)
}

/// `ginRedoRecompress`: goes through the page's segments and the record's actions, which name segments in ascending order.
///
/// What the page has behind the last segment that stays or is written is left as it was.
pub(super) fn recompress(page: &mut Page<'_>, mut data: Fields<'_>) -> Result<()> {
    if flags(page)? & flag::COMPRESSED == 0 {
        compress_page(page)?;
    }
    let actions = data.u16("nactions")?;
    let end = page.lower();
    let old = page
        .bytes()
        .get(DATA..end)
        .ok_or_else(|| Misfit::new("pd_lower of a GIN leaf", "behind its rows' place", end))?;
    // What is before the first segment that changes stays where it is.
    let mut kept = fields::of(old);
    let mut number = 0;
    while data.rest().first().is_some_and(|first| number < u16::from(*first)) {
        next_segment(&mut kept)?;
        number += 1;
    }
    let (start, old) = (DATA + kept.done(), kept.rest().to_vec());
    let mut segments = fields::of(&old);
    let mut new = Vec::with_capacity(old.len() + 256);

    for _ in 0..actions {
        let (wanted, action) = (u16::from(data.u8("segno")?), data.u8("type")?);
        if wanted < number {
            return Err(Misfit::new("segment of a GIN leaf", format_args!("{number} or a later one"), wanted));
        }
        while number < wanted {
            new.extend_from_slice(next_segment(&mut segments)?);
            number += 1;
        }
        match action {
            action::INSERT => {
                new.extend_from_slice(next_segment(&mut data)?);
                continue;
            }
            action::REPLACE => {
                new.extend_from_slice(next_segment(&mut data)?);
                next_segment(&mut segments)?;
            }
            action::DELETE => {
                next_segment(&mut segments)?;
            }
            action::ADD_ITEMS => {
                let count = data.u16("number of rows")?;
                let added = rows(data.take("rows", itup::TID * usize::from(count))?);
                new.extend(encode(&merge(&added, &decode(next_segment(&mut segments)?)?))?);
            }
            other => return Err(Misfit::new("action on a segment of a GIN leaf", "1 to 4", other)),
        }
        number += 1;
    }
    new.extend_from_slice(segments.rest());
    set_data_size(page, start - DATA + new.len())?;
    page.put("posting lists", start, &new)
}

/// A leaf from before 9.4 has its rows one after the other, and how many in the special area.
#[cold]
fn compress_page(page: &mut Page<'_>) -> Result<()> {
    let count = usize::from(max_off(page)?);
    let mut segment = Vec::new();
    if count > 0 {
        let bytes = page.bytes().get(DATA..DATA + itup::TID * count);
        let bytes = bytes.ok_or_else(|| Misfit::new("rows of a GIN leaf", "as many as a page can have", count))?;
        segment = encode(&rows(bytes))?;
    }
    set_data_size(page, segment.len())?;
    page.put("posting lists", DATA, &segment)?;
    change_flags(page, flag::COMPRESSED, 0)?;
    set_max_off(page, 0)
}

/// A row: the block, and its number there.
type Row = (u32, u16);

fn rows(bytes: &[u8]) -> Vec<Row> {
    bytes.chunks_exact(itup::TID).map(|row| (itup::block(row), itup::offset(row))).collect()
}

/// `ginMergeItemPointers`: two ascending lists become one, without what is in both twice.
fn merge(a: &[Row], b: &[Row]) -> Vec<Row> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let (take_a, take_b) = (x <= y, y <= x);
        merged.push(*x.min(y));
        if take_a {
            a.next();
        }
        if take_b {
            b.next();
        }
    }
    merged.extend(a);
    merged.extend(b);
    merged
}

fn place((block, number): Row) -> u64 {
    u64::from(block) << NUMBER_BITS | u64::from(number)
}

/// `ginPostingListDecode`.
fn decode(segment: &[u8]) -> Result<Vec<Row>> {
    let bytes = usize::from(u16::from_le_bytes([segment[6], segment[7]]));
    let mut bytes = segment[SEGMENT_HEADER..SEGMENT_HEADER + bytes].iter();
    let first = (itup::block(segment), itup::offset(segment));
    let mut decoded = Vec::with_capacity(1 + bytes.len());
    decoded.push(first);
    let mut at = place(first);
    while bytes.len() > 0 {
        let (mut difference, mut shift) = (0, 0);
        loop {
            let byte = bytes.next().copied().filter(|_| shift < PLACE_BITS);
            let byte =
                byte.ok_or_else(|| Misfit::new("difference of rows", "at most seven bytes of a segment", "more"))?;
            difference |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at += difference;
        if at >> PLACE_BITS != 0 {
            return Err(Misfit::new("row of a segment", "one a table can have", at));
        }
        decoded.push(((at >> NUMBER_BITS) as u32, (at & ((1 << NUMBER_BITS) - 1)) as u16));
    }
    Ok(decoded)
}

/// `ginCompressPostingList`: a segment of all the rows, padded with a zero to an even length.
fn encode(rows: &[Row]) -> Result<Vec<u8>> {
    let first = rows.first().ok_or_else(|| Misfit::new("rows of a segment", "at least one", 0))?;
    let mut segment = Vec::with_capacity(SEGMENT_HEADER + 2 * rows.len());
    segment.extend_from_slice(&itup::item_pointer(first.0, first.1));
    segment.extend_from_slice(&[0, 0]);
    let mut before = place(*first);
    for row in &rows[1..] {
        let at = place(*row);
        let difference = at.checked_sub(before).filter(|difference| *difference > 0);
        let mut difference = difference.ok_or_else(|| Misfit::new("rows of a segment", "ascending ones", at))?;
        while difference > 0x7F {
            segment.push(0x80 | (difference & 0x7F) as u8);
            difference >>= 7;
        }
        segment.push(difference as u8);
        before = at;
    }
    let bytes = segment.len() - SEGMENT_HEADER;
    let stored = u16::try_from(bytes).map_err(|_| Misfit::new("bytes of a segment", "at most 65535", bytes))?;
    segment[6..SEGMENT_HEADER].copy_from_slice(&stored.to_le_bytes());
    if !bytes.is_multiple_of(2) {
        segment.push(0);
    }
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_a_segment() {
        let rows = [(0, 1), (0, 2), (0, 130), (1, 1), (70_000, 291), (u32::MAX - 1, 2047)];
        let segment = encode(&rows).unwrap();
        // One byte each for differences up to 127, then as many as seven bits at a time take.
        assert_eq!(&segment[..12], [0, 0, 0, 0, 1, 0, 16, 0, 1, 0x80, 1, 0xFF]);
        assert_eq!(decode(&segment).unwrap(), rows);
    }

    #[test]
    fn a_row_in_both_lists_is_taken_once() {
        assert_eq!(merge(&[(1, 1), (2, 2)], &[(1, 1), (1, 5), (3, 1)]), [(1, 1), (1, 5), (2, 2), (3, 1)]);
        assert_eq!(merge(&[], &[(1, 1)]), [(1, 1)]);
    }

    #[test]
    fn a_difference_without_end_is_a_misfit() {
        let mut segment = vec![0, 0, 0, 0, 1, 0, 8, 0];
        segment.extend_from_slice(&[0x80; 8]);
        assert_eq!(decode(&segment).unwrap_err().what, "difference of rows");
        segment[15] = 0;
        assert_eq!(decode(&segment).unwrap_err().what, "difference of rows");
    }
}
