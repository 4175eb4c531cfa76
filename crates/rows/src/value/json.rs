//! jsonb: containers of entries, each a string, a number, a truth value, null or a container again.
//!
//! Source: src/include/utils/jsonb.h.

use leadline_parquet::word;

use super::{fits, number, show, Text};
use crate::tuple::align;
use crate::varlena;

const SCALAR: u32 = 0x1000_0000;
const OBJECT: u32 = 0x2000_0000;
const ARRAY: u32 = 0x4000_0000;
/// The entry says where its value ends, not how long it is.
const HAS_OFFSET: u32 = 0x8000_0000;
/// The stack of this program ends somewhere; so does that of the server.
const DEEPEST: u32 = 2000;

pub(super) fn jsonb(b: &[u8], out: &mut Text) -> Option<()> {
    container(b, out, 0)
}

fn container(b: &[u8], out: &mut Text, depth: u32) -> Option<()> {
    let header = number::u32(b)?;
    let count = (header & 0x0fff_ffff) as usize;
    let entries = if header & OBJECT != 0 { count * 2 } else { count };
    let (entries, values) = b[4..].split_at_checked(4 * entries)?;
    if depth > DEEPEST || header & (OBJECT | ARRAY) == 0 {
        return None;
    }
    if header & SCALAR != 0 {
        let (kind, end) = entry(entries.get(..4)?, 0)?;
        return value(kind, values, 0, end, out, depth).filter(|()| count == 1);
    }
    if header & ARRAY != 0 {
        out.push('[');
        let mut start = 0;
        for (i, of_value) in entries.chunks_exact(4).enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            let (kind, end) = entry(of_value, start)?;
            value(kind, values, start, end, out, depth)?;
            fits(out)?;
            start = end;
        }
        out.push(']');
        return Some(());
    }
    // All names come first, then all values.
    let (of_names, of_values) = entries.split_at(4 * count);
    let mut names = 0;
    let mut start = 0;
    for of_name in of_names.chunks_exact(4) {
        start = entry(of_name, start)?.1;
    }
    out.push('{');
    for (i, (of_name, of_value)) in of_names.chunks_exact(4).zip(of_values.chunks_exact(4)).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        let (_, end) = entry(of_name, names)?;
        string(values.get(names..end)?, out)?;
        names = end;
        out.push_str(": ");
        let (kind, end) = entry(of_value, start)?;
        value(kind, values, start, end, out, depth)?;
        fits(out)?;
        start = end;
    }
    out.push('}');
    Some(())
}

/// Kind of an entry and where its value, which begins at `start`, ends.
#[inline]
fn entry(entry: &[u8], start: usize) -> Option<(u32, usize)> {
    let entry = number::u32(entry)?;
    let len = (entry & 0x0fff_ffff) as usize;
    let end = if entry & HAS_OFFSET != 0 { len } else { start + len };
    (end >= start).then_some((entry >> 28 & 7, end))
}

fn value(kind: u32, values: &[u8], start: usize, end: usize, out: &mut Text, depth: u32) -> Option<()> {
    match kind {
        0 => string(values.get(start..end)?, out),
        1 => {
            let (digits, _) = varlena::inner(values.get(align(start, b'i')..end)?)?;
            number::numeric(&digits, out)
        }
        2 => put("false", out),
        3 => put("true", out),
        4 => put("null", out),
        5 => container(values.get(align(start, b'i')..end)?, out, depth + 1),
        _ => None,
    }
}

fn put(text: &str, out: &mut Text) -> Option<()> {
    out.push_str(text);
    Some(())
}

/// A string in quotes.
#[inline]
fn string(b: &[u8], out: &mut Text) -> Option<()> {
    // Most strings are short, and ASCII that stands for itself.
    match word(b) {
        Some(word) if stands_for_itself(word, b.len()) => {
            let room: &mut [u8; 18] = out.room(18).first_chunk_mut()?;
            room[0] = b'"';
            room[1..17].copy_from_slice(&word);
            room[1 + b.len()] = b'"';
            out.used(2 + b.len());
            Some(())
        }
        _ => long_string(b, out),
    }
}

/// Whether the first bytes of a word are ASCII that needs no escape: all are looked at in one go, by the highest bit of each.
#[inline]
fn stands_for_itself(word: [u8; 16], len: usize) -> bool {
    const EACH: u128 = u128::MAX / 255;
    const HIGHEST: u128 = EACH << 7;
    let word = u128::from_le_bytes(word);
    // A subtraction or an addition carries from a byte into the next one only when that byte is found itself.
    let is = |c: u8| {
        let other = word ^ EACH * u128::from(c);
        other.wrapping_sub(EACH) & !other
    };
    let below_space = word.wrapping_sub(EACH * 0x20) & !word;
    let above_tilde = word | word.wrapping_add(EACH);
    let found = (below_space | above_tilde | is(b'"') | is(b'\\')) & HIGHEST;
    found & u128::MAX.checked_shr(128 - 8 * len as u32).unwrap_or(0) == 0
}

fn long_string(b: &[u8], out: &mut Text) -> Option<()> {
    out.push('"');
    // Without a way out on the first hit the compiler looks at many bytes at once.
    let special = |found, c: &u8| found | (*c < b' ') | (*c > b'~') | (*c == b'"') | (*c == b'\\');
    if !b.iter().fold(false, special) {
        out.push_part(b);
        out.push('"');
        return Some(());
    }
    for c in String::from_utf8_lossy(b).chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c].into_iter()),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => show(format_args!("\\u{:04x}", u32::from(c)), out)?,
            c => out.push(c),
        }
    }
    out.push('"');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_strings_are_printed_as_long_ones() {
        for special in 0..=255 {
            for (len, at) in (1..18).flat_map(|len| (0..len).map(move |at| (len, at))) {
                let mut b = vec![b'a'; len];
                b[at] = special;
                let (mut short, mut long) = (Text::new(), Text::new());
                string(&b, &mut short).unwrap();
                long_string(&b, &mut long).unwrap();
                assert_eq!(short.as_bytes(), long.as_bytes(), "{special} {len} {at}");
                let word = word(&b).is_some_and(|word| stands_for_itself(word, len));
                let plain = (b' '..=b'~').contains(&special) && special != b'"' && special != b'\\';
                assert_eq!(word, plain && len <= 16);
            }
        }
        let mut none = Text::new();
        string(b"", &mut none).unwrap();
        assert_eq!(none.as_bytes(), b"\"\"");
    }
}
