//! What a row of a relation looks like when it is written now, and which rows of a page look otherwise.
//!
//! Source: src/include/access/htup_details.h, src/backend/access/common/heaptuple.c, src/include/varatt.h.

use leadline_page::postgres::heap::infomask::MOVED;
use leadline_page::postgres::heap::{TupleHeader, HEAP_HASNULL, HEAP_HASOID_OLD, HEAP_NATTS_MASK, SIZE};
use leadline_page::postgres::line_pointer::{line_pointers, LP_NORMAL};
use leadline_page::postgres::{is_new, Header};
use leadline_rows::catalog::Attribute;
use leadline_rows::tuple::{align, value_at, Storage, Stored};
use leadline_rows::varlena::{is_short, Varlena};

use crate::reason::Reason;

const HEAP_HASVARWIDTH: u16 = 0x0002;

/// A multixact that neither says how strong its lock is nor that it only locks: what `pg_upgrade` from 9.2 leaves.
const MULTIXACT_BITS: u16 = 0x1000 | 0x0080 | 0x0040 | 0x0010;
const MULTIXACT_OF_9_2: u16 = 0x1000;

/// What a row looks like when it is written now.
#[derive(Debug, Clone)]
pub struct Form {
    columns: Vec<Column>,
    /// Places of the dropped columns.
    dropped: Vec<usize>,
    /// Columns up to the last one that asks for a method of compression.
    packed: usize,
    /// Columns up to the last one that is dropped or asks for a method.
    walked: usize,
    /// The last column that every row without NULLs has at the same offset, of those up to the first that is dropped or asks for a
    /// method; and that offset.
    start: (usize, usize),
    /// The bits at the end of a header that tell: `t_infomask2` from bit 16, `t_infomask` from bit 32, `t_hoff` from bit 48, the first
    /// byte of the null bitmap from bit 56.
    form_bits: u64,
}

/// What the header of a tuple tells alone, and the bits by which it does.
#[derive(Debug, Clone, Copy)]
struct Told<'f> {
    bits: u64,
    /// Nothing more has to be looked at.
    is_current: bool,
    /// Its values must be looked at to say whether it is.
    may_be_packed: bool,
    /// Bits of [`Reason`].
    reasons: u16,
    /// The columns whose values are looked at, the number of the first and the offset that its value is at or behind.
    columns: &'f [Column],
    first: usize,
    at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    storage: Storage,
    is_dropped: bool,
    /// 0 pglz, 1 lz4, None: no matter.
    method: Option<u8>,
    /// Bytes of the value of rows that are older than the column; None: NULL.
    missing: Option<usize>,
}

/// A row that is in an old form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OldRow {
    pub lp: u16,
    pub header: TupleHeader,
    /// Bits of [`Reason`].
    pub reasons: u16,
    /// Bytes of the tuple.
    pub len: u16,
    /// Bytes of values of dropped columns, in the row, with their padding.
    pub dropped_in_row: u16,
    /// Of values of dropped columns, in the row and in the toast table.
    pub dropped_bytes: u64,
    /// Of values packed otherwise, as stored now.
    pub packed_bytes: u64,
}

/// What a page has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Room for tuples and their line pointers.
    pub room: usize,
    /// It is no page of a table.
    pub unread: bool,
    /// Tuples whose bytes do not fit the columns.
    pub unread_rows: u64,
}

/// Where a value is in the bytes of a row, behind its padding.
#[derive(Default)]
struct Place {
    start: usize,
    end: usize,
    /// Bytes in the toast table.
    outside: u64,
    /// What it is packed with.
    method: Option<u8>,
}

#[derive(Default)]
struct Sizes {
    dropped_in_row: usize,
    dropped: u64,
    packed: u64,
}

impl Told<'_> {
    /// No header has these bits: the first of them are of `t_ctid`, which tells nothing.
    const NOTHING: Self =
        Told { bits: u64::MAX, is_current: false, may_be_packed: false, reasons: 0, columns: &[], first: 0, at: 0 };
}

impl Place {
    /// Of a value at `at`, whatever it is; None when it is not all there. Apart, since most values are short.
    #[cold]
    #[inline(never)]
    fn of(data: &[u8], at: usize, storage: Storage) -> Option<Place> {
        let (value, end) = value_at(data, at, storage)?;
        let (outside, method) = match value {
            Stored::Varlena(Varlena::Compressed(_, method, _)) => (0, Some(method)),
            Stored::Varlena(Varlena::External(e)) => {
                (e.stored() as u64, e.is_compressed().then_some((e.va_extinfo >> 30) as u8))
            }
            _ => (0, None),
        };
        // A header of one byte needs no alignment, and padding is always zero.
        let is_unaligned = storage.attlen == -1 && data.get(at) != Some(&0);
        let start = if is_unaligned { at } else { align(at, storage.attalign) };
        Some(Place { start: start.min(end), end, outside, method })
    }
}

impl Form {
    /// `attributes` are all of the relation, dropped ones included.
    pub fn new(attributes: &[Attribute]) -> Form {
        let column = |a: &Attribute| Column {
            storage: a.storage,
            is_dropped: a.attisdropped,
            method: match a.attcompression {
                b'p' if !a.attisdropped => Some(0),
                b'l' if !a.attisdropped => Some(1),
                _ => None,
            },
            missing: a.missing.as_ref().map(Vec::len),
        };
        let columns: Vec<Column> = attributes.iter().map(column).collect();
        let past_last = |is: &dyn Fn(&Column) -> bool| columns.iter().rposition(is).map_or(0, |i| i + 1);
        let packed = past_last(&|c| c.method.is_some());
        let walked = past_last(&|c| c.method.is_some() || c.is_dropped);
        let dropped = (0..columns.len()).filter(|i| columns[*i].is_dropped).collect();
        let mut start = (0, 0);
        for (i, column) in columns.iter().enumerate().take(walked) {
            match usize::try_from(column.storage.attlen) {
                Ok(len) if column.method.is_none() && !column.is_dropped => {
                    start = (i + 1, align(start.1, column.storage.attalign) + len);
                }
                _ => break,
            }
        }
        let infomask = HEAP_HASNULL | HEAP_HASVARWIDTH | MOVED | HEAP_HASOID_OLD | MULTIXACT_BITS;
        let in_bitmap = columns.iter().zip(0..8).filter(|(c, _)| c.is_dropped).fold(0, |bits, (_, i)| bits | 1u64 << i);
        let form_bits = u64::from(HEAP_NATTS_MASK) << 16 | u64::from(infomask) << 32 | 0xff << 48 | in_bitmap << 56;
        Form { columns, dropped, packed, walked, start, form_bits }
    }

    /// Calls `each` with the rows of a page that are old and that `counts` is true of.
    pub(crate) fn old_rows(
        &self,
        page: &[u8],
        mut counts: impl FnMut(&TupleHeader) -> bool,
        mut each: impl FnMut(OldRow),
    ) -> Looked {
        let mut looked = Looked::default();
        let Some(header) = Header::parse(page) else {
            return Looked { unread: true, ..looked };
        };
        if is_new(page, &header) {
            return looked; // the file was extended, the page not used yet
        }
        if header.wrong(page.len()).is_some() {
            return Looked { unread: true, ..looked };
        }
        looked.room = usize::from(header.pd_upper - header.pd_lower);
        let mut known = [Told::NOTHING; 2];
        for (lp, pointer) in line_pointers(page, &header) {
            if pointer.flags() != LP_NORMAL {
                continue;
            }
            let Some(tuple) = pointer.item(page) else {
                looked.unread_rows += 1;
                continue;
            };
            // A sound header has them: t_hoff is a multiple of 8.
            let end = tuple.get(16..24).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b));
            let told = &mut known[(end >> 32) as usize & usize::from(HEAP_HASNULL)];
            let is_told = end & self.form_bits == told.bits && tuple.len() >= usize::from((end >> 48) as u8);
            if !is_told && !self.tell(tuple, end & self.form_bits, told) {
                looked.unread_rows += 1;
                continue;
            }
            if told.is_current {
                continue;
            }
            let Told { mut reasons, may_be_packed, .. } = *told;
            let header = || TupleHeader::parse(tuple).unwrap_or_default();
            if !may_be_packed && !counts(&header()) {
                continue;
            }
            let Some(sizes) = walk(tuple, told) else {
                looked.unread_rows += 1;
                continue;
            };
            if may_be_packed {
                reasons |= if sizes.packed > 0 { Reason::Compression.bit() } else { 0 };
                if reasons == 0 || !counts(&header()) {
                    continue;
                }
            }
            each(OldRow {
                lp: lp as u16,
                header: header(),
                reasons,
                len: tuple.len() as u16,
                dropped_in_row: sizes.dropped_in_row as u16,
                dropped_bytes: sizes.dropped,
                packed_bytes: sizes.packed,
            });
        }
        looked
    }

    /// What a header tells; false when it cannot be one. Not asked for most rows: it tells what the last one of their page told.
    #[cold]
    #[inline(never)]
    fn tell<'f>(&'f self, tuple: &[u8], bits: u64, told: &mut Told<'f>) -> bool {
        let Some(header) = TupleHeader::parse(tuple).filter(|h| h.is_sound(tuple.len())) else { return false };
        let is_all = header.t_infomask & HEAP_HASNULL == 0 || self.dropped.last().is_none_or(|i| *i < 8);
        let reasons = self.by_header(tuple, &header);
        let may_be_packed = self.packed > 0 && header.t_infomask & HEAP_HASVARWIDTH != 0;
        let has_values = may_be_packed || reasons & Reason::Dropped.bit() != 0;
        let past = if has_values { self.walked.min(usize::from(header.natts())) } else { 0 };
        let (first, at) = if header.t_infomask & HEAP_HASNULL != 0 { (0, 0) } else { self.start };
        *told = Told {
            bits: if is_all { bits } else { Told::NOTHING.bits },
            is_current: reasons == 0 && !may_be_packed,
            may_be_packed,
            reasons,
            columns: self.columns.get(first..past).unwrap_or(&[]),
            first,
            at,
        };
        true
    }

    fn by_header(&self, tuple: &[u8], header: &TupleHeader) -> u16 {
        let natts = usize::from(header.natts());
        let mask = header.t_infomask;
        let mut reasons = 0;
        if natts < self.columns.len() {
            reasons |= Reason::Short.bit();
        }
        if self.dropped.iter().any(|i| *i < natts && !is_null(tuple, header, *i)) {
            reasons |= Reason::Dropped.bit();
        }
        if mask & (MOVED | HEAP_HASOID_OLD) != 0 {
            reasons |= if mask & MOVED != 0 { Reason::Moved.bit() } else { 0 };
            reasons |= if mask & HEAP_HASOID_OLD != 0 { Reason::Oid.bit() } else { 0 };
        }
        if mask & MULTIXACT_BITS == MULTIXACT_OF_9_2 {
            reasons |= Reason::Multixact.bit();
        }
        reasons
    }

    /// About the bytes of a row once it is rewritten: without what was dropped, with what was added since; of a value that is packed
    /// otherwise, as if its bytes stayed as many.
    pub(crate) fn new_len(&self, row: &OldRow) -> usize {
        let (len, header, dropped) = (usize::from(row.len), &row.header, usize::from(row.dropped_in_row));
        let natts = usize::from(header.natts()).min(self.columns.len());
        let added = &self.columns[natts..];
        let has_null = header.t_infomask & HEAP_HASNULL != 0
            || !self.dropped.is_empty()
            || added.iter().any(|c| c.missing.is_none());
        let bitmap = if has_null { self.columns.len().div_ceil(8) } else { 0 };
        let mut data = len.saturating_sub(usize::from(header.t_hoff)).saturating_sub(dropped);
        for column in added {
            if let Some(bytes) = column.missing {
                let header = if column.storage.attlen == -1 { 1 + 3 * usize::from(bytes > 126) } else { 0 };
                data = if header == 1 { data } else { align(data, column.storage.attalign) } + header + bytes;
            }
        }
        ((SIZE + bitmap).next_multiple_of(8) + data).next_multiple_of(8).min(usize::from(u16::MAX))
    }
}

/// Bytes of values of dropped columns and of those packed otherwise; None when the values do not fit the tuple.
#[inline(always)]
fn walk(tuple: &[u8], told: &Told<'_>) -> Option<Sizes> {
    let header = TupleHeader::parse(tuple)?;
    let data = tuple.get(usize::from(header.t_hoff)..)?;
    let has_nulls = header.t_infomask & HEAP_HASNULL != 0;
    let mut at = told.at;
    let mut sizes = Sizes::default();
    for (i, column) in (told.first..).zip(told.columns) {
        if has_nulls && is_null(tuple, &header, i) {
            continue;
        }
        let value = match column.storage.attlen {
            -1 => match data.get(at).filter(|first| is_short(**first)) {
                Some(first) => Place { start: at, end: at + usize::from(first >> 1), ..Place::default() },
                None => Place::of(data, at, column.storage)?,
            },
            -2 => Place::of(data, at, column.storage)?,
            len => {
                let start = align(at, column.storage.attalign);
                Place { start, end: start + usize::try_from(len).ok()?, ..Place::default() }
            }
        };
        if value.end > data.len() {
            return None;
        }
        let inside = (value.end - value.start) as u64;
        if column.is_dropped {
            sizes.dropped_in_row += value.end - at;
            sizes.dropped += inside + value.outside;
        }
        if column.method.is_some() && value.method.is_some() && value.method != column.method {
            sizes.packed += if value.outside > 0 { value.outside } else { inside };
        }
        at = value.end;
    }
    Some(sizes)
}

/// Whether the bitmap says that a value is NULL. The tuple is sound: its bitmap is inside.
#[inline]
fn is_null(tuple: &[u8], header: &TupleHeader, i: usize) -> bool {
    header.t_infomask & HEAP_HASNULL != 0 && tuple.get(SIZE + i / 8).is_some_and(|bits| bits >> (i % 8) & 1 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 8192;

    fn attribute(attlen: i16, attisdropped: bool, attcompression: u8, missing: Option<Vec<u8>>) -> Attribute {
        let storage = Storage { attlen, attalign: b'i' };
        Attribute {
            attname: String::new(),
            atttypid: 0,
            attnum: 0,
            atttypmod: -1,
            storage,
            attisdropped,
            attgenerated: 0,
            missing,
            attcompression,
            attnotnull: false,
        }
    }

    /// id int, gone text (dropped), note text compression lz4, late int default
    fn form() -> Form {
        Form::new(&[
            attribute(4, false, 0, None),
            attribute(-1, true, 0, None),
            attribute(-1, false, b'l', None),
            attribute(4, false, 0, Some(vec![7, 0, 0, 0])),
        ])
    }

    /// A tuple with these bits: of t_infomask, attributes, which of them are there (None: no bitmap), and their bytes.
    fn tuple(mask: u16, natts: u16, bits: Option<u8>, data: &[u8]) -> Vec<u8> {
        let mut t = vec![0; 24];
        t[18..20].copy_from_slice(&natts.to_le_bytes());
        t[20..22].copy_from_slice(&(mask | 0x0900 | 2 | u16::from(bits.is_some())).to_le_bytes());
        t[22] = 24;
        t[23] = bits.unwrap_or(0);
        t.extend(data);
        t
    }

    fn page(tuples: &[Vec<u8>]) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let mut upper = PAGE;
        for (i, t) in tuples.iter().enumerate() {
            upper -= t.len().next_multiple_of(8);
            page[upper..upper + t.len()].copy_from_slice(t);
            let pointer = upper as u32 | 1 << 15 | (t.len() as u32) << 17;
            page[24 + 4 * i..28 + 4 * i].copy_from_slice(&pointer.to_le_bytes());
        }
        let lower = 24 + 4 * tuples.len();
        for (at, n) in [(12, lower), (14, upper), (16, PAGE), (18, PAGE | 4)] {
            page[at..at + 2].copy_from_slice(&(n as u16).to_le_bytes());
        }
        page
    }

    fn found(tuples: &[Vec<u8>]) -> (Looked, Vec<OldRow>) {
        let mut rows = Vec::new();
        let looked = form().old_rows(&page(tuples), |_| true, |row| rows.push(row));
        (looked, rows)
    }

    const ID: [u8; 4] = [1, 0, 0, 0];

    /// id, gone 'x' (where it is there), note.
    fn data(gone: bool, note: &[u8]) -> Vec<u8> {
        let mut data = ID.to_vec();
        data.extend(if gone { &[2 << 1 | 1, b'x'][..] } else { &[] });
        if !note.is_empty() && note[0] & 1 == 0 {
            data.resize(data.len().next_multiple_of(4), 0);
        }
        data.extend(note);
        data
    }

    /// A varlena of 4 bytes header packed by a method, with three bytes.
    fn packed(method: u32) -> Vec<u8> {
        let mut v = ((11u32 << 2) | 2).to_le_bytes().to_vec();
        v.extend((100 | method << 30).to_le_bytes());
        v.extend([1, 2, 3]);
        v
    }

    #[test]
    fn rows_are_old_for_what_they_lack_and_for_what_they_keep() {
        let late = [9, 0, 0, 0];
        let current = [data(false, &[2 << 1 | 1, b'n']), vec![0; 2], late.to_vec()].concat();
        let tuples = [
            tuple(0, 4, Some(0b1101), &current),
            tuple(0, 3, None, &data(true, &[2 << 1 | 1, b'n'])),
            tuple(0, 3, Some(0b101), &data(false, &packed(0))),
            tuple(0, 4, Some(0b0101), &data(false, &packed(1))),
            tuple(0x4000, 4, Some(0b0001), &ID),
            tuple(0x1000, 4, Some(0b0001), &ID),
            tuple(0x1040, 4, Some(0b0001), &ID),
            tuple(0, 3, Some(0b110), &data(true, &[2 << 1 | 1, b'n'])[4..]),
        ];
        let (looked, rows) = found(&tuples);
        assert_eq!((looked.unread, looked.unread_rows), (false, 0));
        let seen: Vec<_> = rows.iter().map(|r| (r.lp, r.reasons, r.dropped_bytes, r.packed_bytes)).collect();
        let (short, dropped, compression) = (Reason::Short.bit(), Reason::Dropped.bit(), Reason::Compression.bit());
        assert_eq!(
            seen,
            [
                (2, short | dropped, 2, 0),
                (3, short | compression, 0, 11),
                (5, Reason::Moved.bit(), 0, 0),
                (6, Reason::Multixact.bit(), 0, 0),
                (8, short | dropped, 2, 0),
            ]
        );
        // 24 bytes of header (the bitmap fits), 4 of id, 2 of note, 2 of padding, 4 of late; MAXALIGNed.
        assert_eq!((rows[0].len, form().new_len(&rows[0])), (32, 40));
        let used: usize = tuples.iter().map(|t| 4 + t.len().next_multiple_of(8)).sum();
        assert_eq!(looked.room, PAGE - 24 - used);
    }

    #[test]
    fn rows_that_do_not_count_are_passed_over_and_broken_ones_are_counted() {
        let mut broken = tuple(0, 3, None, &data(true, &[]));
        broken[22] = 200;
        let cut = tuple(0, 3, None, &[1, 0, 0, 0, 0xff]);
        let whole = tuple(0, 1, None, &ID);
        let mut rows = 0;
        let looked = form().old_rows(&page(&[broken, cut, whole]), |_| false, |_| rows += 1);
        assert_eq!((rows, looked.unread_rows), (0, 2));
        assert!(form().old_rows(&[7; PAGE], |_| true, |_| ()).unread);
        assert_eq!(form().old_rows(&[0; PAGE], |_| true, |_| ()), Looked::default());
    }

    fn random_numbers() -> impl FnMut() -> usize {
        let mut state = 7u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        }
    }

    #[test]
    fn a_row_is_told_beside_others_as_it_is_told_alone() {
        let mut random = random_numbers();
        let mut pick = |from: &[usize]| from[random() % from.len()];
        let tuples: Vec<Vec<u8>> = (0..150)
            .map(|_| {
                let (mask, natts, has_nulls) = (pick(&[0, 0, 0x4000]), pick(&[8, 10, 10]), pick(&[0, 1, 1]));
                // The first two columns of either byte of the bitmap: none is there, one, the other.
                let bits = [pick(&[0, 1, 2]) as u8, pick(&[0, 1, 2]) as u8];
                let mut t = tuple(mask as u16, natts as u16, (has_nulls == 1).then_some(bits[0]), &[bits[1]]);
                let hoff = if has_nulls == 1 && natts > 8 { 32 } else { 24 };
                t[22] = hoff as u8;
                t.resize(hoff, 0);
                t.extend([3; 10]);
                t.truncate(pick(&[hoff + 10, hoff + 10, hoff + 10, hoff - 2])); // the shortest ends before its t_hoff
                t
            })
            .collect();
        for dropped in [&[1][..], &[1, 9], &[]] {
            let columns: Vec<_> = (0..10).map(|i| attribute(-1, dropped.contains(&i), 0, None)).collect();
            let form = Form::new(&columns);
            let told = |tuples: &[Vec<u8>]| {
                let mut rows = Vec::new();
                let looked = form.old_rows(&page(tuples), |_| true, |row| rows.push(OldRow { lp: 0, ..row }));
                (looked.unread_rows, rows)
            };
            let alone: Vec<_> = tuples.iter().map(|t| told(std::slice::from_ref(t))).collect();
            let (unread, rows) = told(&tuples);
            assert_eq!(unread, alone.iter().map(|a| a.0).sum::<u64>());
            assert_eq!(rows, alone.into_iter().flat_map(|a| a.1).collect::<Vec<_>>());
            assert!(unread > 20 && rows.len() > 40 && rows.len() + (unread as usize) < 140, "{unread} {}", rows.len());
        }
    }

    #[test]
    fn whatever_the_bytes_nothing_panics() {
        let mut random = random_numbers();
        let sound =
            page(&[tuple(0, 3, None, &data(true, &packed(0))), tuple(0, 4, Some(0b0101), &data(false, &packed(1)))]);
        let (mut old, mut unread) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = sound.clone();
            for _ in 0..1 + random() % 8 {
                let at = if random().is_multiple_of(2) { random() % 40 } else { PAGE - 1 - random() % 96 };
                bytes[at] = random() as u8;
            }
            let looked = form().old_rows(&bytes, |_| true, |_| old += 1);
            unread += u64::from(looked.unread) + looked.unread_rows;
            form().old_rows(&bytes[..random() % PAGE], |_| true, |_| ());
        }
        assert!(old > 5_000 && unread > 5_000, "{old} {unread}");
    }
}
