//! A row's values, cut out of its tuple by the attributes of its relation.
//!
//! Source: src/include/access/tupmacs.h, src/backend/access/common/heaptuple.c (`heap_deform_tuple`).

use crate::varlena::{self, Varlena};

/// How values of a type lie in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Storage {
    /// Bytes, -1 for varlena, -2 for a C string.
    pub attlen: i16,
    /// c, s, i or d.
    pub attalign: u8,
}

/// One value, still as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<'a> {
    /// NULL.
    Null,
    /// The tuple is older than the column.
    Missing,
    /// Of fixed width, or a C string without its end.
    Fixed(&'a [u8]),
    /// Of variable width.
    Varlena(Varlena<'a>),
}

/// What alignments are less one, by the lowest five bits of their letters; any other letter is c.
const MASKS: [u8; 32] = {
    let mut masks = [0; 32];
    masks[b's' as usize & 31] = 1;
    masks[b'i' as usize & 31] = 3;
    masks[b'd' as usize & 31] = 7;
    masks
};

/// The next multiple of an alignment.
#[inline]
pub fn align(at: usize, attalign: u8) -> usize {
    let mask = usize::from(MASKS[usize::from(attalign & 31)]);
    (at + mask) & !mask
}

/// The value at `at` in `data` and where it ends; None when it is not all there.
#[inline]
pub fn value_at(data: &[u8], at: usize, storage: Storage) -> Option<(Stored<'_>, usize)> {
    match storage.attlen {
        -1 => {
            // A header of one byte needs no alignment, and padding is always zero.
            let at = if *data.get(at)? != 0 { at } else { align(at, storage.attalign) };
            let (value, len) = varlena::parse(data.get(at..)?)?;
            Some((Stored::Varlena(value), at + len))
        }
        -2 => {
            let at = align(at, storage.attalign);
            let rest = data.get(at..)?;
            let len = rest.iter().position(|b| *b == 0)?;
            Some((Stored::Fixed(&rest[..len]), at + len + 1))
        }
        len => {
            let (at, len) = (align(at, storage.attalign), usize::try_from(len).ok()?);
            Some((Stored::Fixed(data.get(at..at + len)?), at + len))
        }
    }
}

/// All values of a tuple whose bitmap (one bit for each of its `natts`, set when there is a value) and data are given.
///
/// None when the data ends before its last value.
pub fn deform<'a>(
    data: &'a [u8],
    bitmap: Option<&[u8]>,
    natts: usize,
    attributes: &[Storage],
    out: &mut Vec<Stored<'a>>,
) -> Option<()> {
    out.clear();
    let mut at = 0;
    for (i, storage) in attributes.iter().enumerate() {
        if i >= natts {
            out.push(Stored::Missing);
            continue;
        }
        if let Some(bitmap) = bitmap {
            if bitmap.get(i / 8)? >> (i % 8) & 1 == 0 {
                out.push(Stored::Null);
                continue;
            }
        }
        let (value, end) = value_at(data, at, *storage)?;
        out.push(value);
        at = end;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: Storage = Storage { attlen: 4, attalign: b'i' };
    const TEXT: Storage = Storage { attlen: -1, attalign: b'i' };

    #[test]
    fn short_values_are_not_aligned_and_new_columns_are_missing() {
        let data = [7, 0, 0, 0, 2 << 1 | 1, b'x', 0, 0, 9, 0, 0, 0];
        let x = Stored::Varlena(Varlena::Plain(b"x"));
        let mut out = Vec::new();
        assert_eq!(deform(&data[..10], None, 3, &[INT, TEXT, INT], &mut out), None);
        deform(&data, Some(&[0b0111]), 3, &[INT, TEXT, INT, INT], &mut out).unwrap();
        assert_eq!(out, [Stored::Fixed(&data[..4]), x, Stored::Fixed(&data[8..12]), Stored::Missing]);
        deform(&data, Some(&[0b0101]), 3, &[INT, TEXT, INT], &mut out).unwrap();
        assert_eq!(out[1], Stored::Null);
    }
}
