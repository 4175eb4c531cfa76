//! Values made of values: arrays, composites, ranges, multiranges.
//!
//! Source: src/include/utils/{array,rangetypes,multirangetypes}.h, src/backend/utils/adt/rowtypes.c. Offsets in them count
//! from the varlena header of four bytes, which is not here.

use std::borrow::Cow;

use super::{fits, number, show, Text, Types};
use crate::tuple::{deform, value_at, Storage, Stored};
use crate::varlena::{self, Varlena};

/// A value's bytes; None for what cannot lie inside another value.
fn bytes_of(stored: Stored<'_>) -> Option<Cow<'_, [u8]>> {
    match stored {
        Stored::Fixed(b) | Stored::Varlena(Varlena::Plain(b)) => Some(Cow::Borrowed(b)),
        Stored::Varlena(Varlena::Compressed(size, method, packed)) => {
            varlena::unpack(size, method, packed).map(Cow::Owned)
        }
        Stored::Varlena(Varlena::External(_)) | Stored::Null | Stored::Missing => None,
    }
}

fn storage(types: &Types, oid: u32) -> Option<Storage> {
    let storage = types.by_oid.get(&oid)?.storage;
    // A type without width would make an endless array of nothing.
    (storage.attlen > 0 || storage.attlen == -1 || storage.attlen == -2).then_some(storage)
}

fn i32_at(b: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

/// The text of a value, in quotes with `doubled` or escaped characters when one of `special` or a space is in it.
fn quoted(value: &Text, special: &[u8], backslash: bool, out: &mut Text) {
    // All of them are ASCII, whose bytes are in no other character.
    let quotes = |c: &u8| matches!(c, b'"' | b'\\' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c) || special.contains(c);
    if value.len() > 0 && !value.as_bytes().iter().any(quotes) {
        out.push_text(value);
        return;
    }
    out.push('"');
    for part in value.as_bytes().split_inclusive(|c| matches!(c, b'"' | b'\\')) {
        match part.split_last() {
            Some((c @ (b'"' | b'\\'), before)) => {
                out.push_part(before);
                out.push_ascii([if backslash { b'\\' } else { *c }, *c]);
            }
            _ => out.push_part(part),
        }
    }
    out.push('"');
}

/// What is known of an array before its elements.
struct Head {
    dims: Vec<usize>,
    bounds: Vec<i32>,
    element: u32,
    count: usize,
    /// Where the bitmap and the elements begin.
    bitmap: Option<usize>,
    data: usize,
}

fn head(b: &[u8]) -> Option<Head> {
    let ndim = usize::try_from(i32_at(b, 0)?).ok().filter(|n| *n <= 6)?;
    let offset = i32_at(b, 4)?;
    let element = number::u32(b.get(8..)?)?;
    let dims = (0..ndim).map(|i| usize::try_from(i32_at(b, 12 + 4 * i)?).ok()).collect::<Option<Vec<_>>>()?;
    let bounds = (0..ndim).map(|i| i32_at(b, 12 + 4 * (ndim + i))).collect::<Option<Vec<_>>>()?;
    let count = dims.iter().try_fold(usize::from(ndim > 0), |n, d| n.checked_mul(*d))?;
    let end = 12 + 8 * ndim;
    let (bitmap, data) = match offset {
        // The header of four bytes counts for alignment.
        0 => (None, (end + 4).next_multiple_of(8) - 4),
        offset => (Some(end), usize::try_from(offset).ok()?.checked_sub(4)?),
    };
    // A bit or a byte for each element: no more of them than can be there.
    (count <= b.len().saturating_mul(8)).then_some(Head { dims, bounds, element, count, bitmap, data })
}

/// The bytes of the first element of an array; it is how the catalog keeps the value of a column added later.
pub(crate) fn first_element(b: &[u8], storage: Storage) -> Option<Option<Vec<u8>>> {
    let head = head(b)?;
    if head.count == 0 || head.bitmap.is_some_and(|at| b.get(at).is_none_or(|bits| bits & 1 == 0)) {
        return Some(None);
    }
    let (stored, _) = value_at(b.get(head.data..)?, 0, storage)?;
    Some(Some(bytes_of(stored)?.into_owned()))
}

pub(super) fn array(types: &Types, b: &[u8], out: &mut Text, depth: u32) -> Option<()> {
    let head = head(b)?;
    if head.count == 0 {
        return show("{}", out);
    }
    if head.bounds.iter().any(|n| *n != 1) {
        for (dim, bound) in head.dims.iter().zip(&head.bounds) {
            show(format_args!("[{bound}:{}]", i64::from(*bound) + *dim as i64 - 1), out)?;
        }
        out.push('=');
    }
    let storage = storage(types, head.element)?;
    let separator = if head.element == 603 { ';' } else { ',' }; // typdelim: only box has another
    let special = if separator == ';' { b"{};" } else { b"{}," };
    let data = b.get(head.data..)?;
    let mut at = 0;
    let mut text = out.another();
    for i in 0..head.count {
        if i > 0 {
            out.push(separator);
        }
        // A brace for each dimension that begins or ends here.
        let mut edges = 0;
        let mut inside = 1;
        for dim in head.dims.iter().rev() {
            inside *= dim;
            if i % inside == 0 {
                edges += 1;
            }
        }
        out.extend((0..edges).map(|_| '{'));
        let is_null = match head.bitmap {
            Some(bits) => b.get(bits + i / 8)? >> (i % 8) & 1 == 0,
            None => false,
        };
        if is_null {
            out.push_str("NULL");
        } else {
            let (stored, end) = value_at(data, at, storage)?;
            at = end;
            text.clear();
            types.write(head.element, &bytes_of(stored)?, &mut text, depth)?;
            if text.as_bytes().eq_ignore_ascii_case(b"null") {
                out.push('"');
                out.push_text(&text);
                out.push('"');
            } else {
                quoted(&text, special, true, out);
            }
        }
        let mut inside = 1;
        for dim in head.dims.iter().rev() {
            inside *= dim;
            if (i + 1) % inside == 0 {
                out.push('}');
            }
        }
        fits(out)?;
    }
    Some(())
}

/// int2vector and oidvector: an array printed without its braces.
pub(super) fn vector(b: &[u8], width: usize, out: &mut Text) -> Option<()> {
    let head = head(b)?;
    for i in 0..head.count {
        if i > 0 {
            out.push(' ');
        }
        let element = b.get(head.data + width * i..)?;
        match width {
            2 => show(i16::from_le_bytes(*element.first_chunk()?), out)?,
            _ => show(number::u32(element)?, out)?,
        }
    }
    Some(())
}

/// A tuple whose first four bytes, its length, are not here.
pub(super) fn composite(types: &Types, fields: &[(u32, Storage)], b: &[u8], out: &mut Text, depth: u32) -> Option<()> {
    let u16_at = |at: usize| b.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b));
    let natts = usize::from(u16_at(14)? & 0x07ff);
    let bitmap = if u16_at(16)? & 1 != 0 { Some(b.get(19..)?) } else { None };
    let data = b.get(usize::from(*b.get(18)?).checked_sub(4)?..)?;
    let storages: Vec<Storage> = fields.iter().map(|f| f.1).collect();
    let mut values = Vec::new();
    deform(data, bitmap, natts, &storages, &mut values)?;
    let mut text = out.another();
    let mut before = '(';
    for ((oid, _), stored) in fields.iter().zip(values).filter(|(f, _)| f.0 != 0) {
        out.push(before);
        before = ',';
        if !matches!(stored, Stored::Null | Stored::Missing) {
            text.clear();
            types.write(*oid, &bytes_of(stored)?, &mut text, depth)?;
            quoted(&text, b"(),", false, out);
            fits(out)?;
        }
    }
    if before == '(' {
        out.push('(');
    }
    out.push(')');
    Some(())
}

const EMPTY: u8 = 1;
const LOWER_INCLUDED: u8 = 2;
const UPPER_INCLUDED: u8 = 4;
const NO_LOWER: u8 = 8 | 0x20;
const NO_UPPER: u8 = 0x10 | 0x40;

/// The bounds of one range from `at` on; where they end.
#[allow(clippy::too_many_arguments)]
fn bounds(types: &Types, of: u32, flags: u8, data: &[u8], at: usize, out: &mut Text, depth: u32) -> Option<usize> {
    if flags & EMPTY != 0 {
        out.push_str("empty");
        return Some(at);
    }
    let storage = storage(types, of)?;
    let mut at = at;
    let mut text = out.another();
    out.push(if flags & LOWER_INCLUDED != 0 { '[' } else { '(' });
    for absent in [NO_LOWER, NO_UPPER] {
        if flags & absent == 0 {
            let (stored, end) = value_at(data, at, storage)?;
            at = end;
            text.clear();
            types.write(of, &bytes_of(stored)?, &mut text, depth)?;
            quoted(&text, b"()[],", false, out);
        }
        if absent == NO_LOWER {
            out.push(',');
        }
    }
    out.push(if flags & UPPER_INCLUDED != 0 { ']' } else { ')' });
    Some(at)
}

/// Type, bounds, and in the last byte what bounds there are.
pub(super) fn range(types: &Types, of: u32, b: &[u8], out: &mut Text, depth: u32) -> Option<()> {
    let (flags, rest) = b.split_last()?;
    bounds(types, of, *flags, rest.get(4..)?, 0, out, depth).map(|_| ())
}

/// Type, number of ranges, where each but the first begins, the flags of each, and the bounds one after the other.
pub(super) fn multirange(types: &Types, of: u32, b: &[u8], out: &mut Text, depth: u32) -> Option<()> {
    let count = number::u32(b.get(4..)?)? as usize;
    out.push('{');
    if count > 0 {
        let flags_at = 8usize.checked_add((count - 1).checked_mul(4)?)?;
        let flags = b.get(flags_at..flags_at.checked_add(count)?)?;
        let storage = storage(types, of)?;
        // Positions count from the header that is not here, whose four bytes do not matter to alignment by 8 alone.
        let start = crate::tuple::align(flags_at + count + 4, storage.attalign) - 4;
        let data = b.get(start..)?;
        let mut at = 0;
        for (i, flags) in flags.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            at = bounds(types, of, *flags, data, crate::tuple::align(at, storage.attalign), out, depth)?;
            fits(out)?;
        }
    }
    out.push('}');
    Some(())
}
