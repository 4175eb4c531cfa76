//! jsonb: containers of entries, each a string, a number, a truth value, null or a container again.
//!
//! Source: src/include/utils/jsonb.h.

use leadline_parquet::ends;

use super::{fits, number, show, Text};
use crate::tuple::align;
use crate::varlena::{self, Varlena};

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
    // Exactly one of them: with both, or none, the server says "unknown type of jsonb container".
    if depth > DEEPEST || !matches!(header & (OBJECT | ARRAY), OBJECT | ARRAY) {
        return None;
    }
    if header & SCALAR != 0 {
        let (kind, end) = entry(entries, 0, 0)?;
        return value(kind, values, 0, end, out, depth).filter(|()| count == 1);
    }
    if header & ARRAY != 0 {
        out.push_ascii(*b"[");
        let mut start = 0;
        for i in 0..count {
            if i > 0 {
                out.push_ascii(*b", ");
            }
            let (kind, end) = entry(entries, i, start)?;
            value(kind, values, start, end, out, depth)?;
            fits(out)?;
            start = end;
        }
        out.push_ascii(*b"]");
        return Some(());
    }
    // All names come first, then all values.
    let mut names = 0;
    let mut start = 0;
    for i in 0..count {
        start = entry(entries, i, start)?.1;
    }
    out.push_ascii(*b"{");
    for i in 0..count {
        if i > 0 {
            out.push_ascii(*b", ");
        }
        let (_, end) = entry(entries, i, names)?;
        string(values.get(names..end)?, *b"\": ", out)?;
        names = end;
        let (kind, end) = entry(entries, count + i, start)?;
        value(kind, values, start, end, out, depth)?;
        fits(out)?;
        start = end;
    }
    out.push_ascii(*b"}");
    Some(())
}

/// Kind of an entry and where its value, which begins at `start`, ends.
#[inline]
fn entry(entries: &[u8], i: usize, start: usize) -> Option<(u32, usize)> {
    let entry = number::u32(entries.get(4 * i..)?)?;
    let len = (entry & 0x0fff_ffff) as usize;
    let end = if entry & HAS_OFFSET != 0 { len } else { start + len };
    (end >= start).then_some((entry >> 28 & 7, end))
}

fn value(kind: u32, values: &[u8], start: usize, end: usize, out: &mut Text, depth: u32) -> Option<()> {
    match kind {
        0 => string(values.get(start..end)?, *b"\"", out),
        1 => {
            let value = values.get(align(start, b'i')..end)?;
            match varlena::parse(value)? {
                (Varlena::Plain(digits), _) => number::numeric(digits, out),
                _ => number::numeric(&varlena::inner(value)?.0, out),
            }
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

/// A string in quotes, the second one with what comes behind it. Most are short.
#[inline]
pub(super) fn string<const M: usize>(b: &[u8], end: [u8; M], out: &mut Text) -> Option<()> {
    let printed = match b.len() {
        1 => short_string::<1, M>(b, end, out),
        2..4 => short_string::<2, M>(b, end, out),
        4..8 => short_string::<4, M>(b, end, out),
        8..=16 => short_string::<8, M>(b, end, out),
        _ => None,
    };
    printed.or_else(|| {
        long_string(b, out)?;
        out.push_ascii(end);
        Some(())
    })
}

/// Of N to 2 N bytes, when all are ASCII that stands for itself.
#[inline]
fn short_string<const N: usize, const M: usize>(b: &[u8], end: [u8; M], out: &mut Text) -> Option<()> {
    let (first, last) = ends::<N>(b)?;
    let mut words = [[b' '; 8]; 2];
    words[0][..N].copy_from_slice(&first);
    if N < 8 {
        words[0][8 - N..].copy_from_slice(&last);
    } else {
        words[1].copy_from_slice(&last[..8]);
    }
    if !stands_for_itself(words[0]) || N == 8 && !stands_for_itself(words[1]) {
        return None;
    }
    let len = b.len();
    let room = out.room(len + 1 + M);
    room[0] = b'"';
    room[1..=N].copy_from_slice(&first);
    room[len + 1 - N..=len].copy_from_slice(&last);
    room[len + 1..].copy_from_slice(&end);
    out.used(len + 1 + M);
    Some(())
}

/// Whether all are ASCII and need no escape. They are looked at in one go: what is found has its highest bit set, and a subtraction or
/// an addition carries into the next byte only from one that is found itself.
#[inline]
fn stands_for_itself(bytes: [u8; 8]) -> bool {
    const EACH: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(bytes);
    let is = |c: u8| {
        let other = word ^ (EACH * u64::from(c));
        other.wrapping_sub(EACH) & !other
    };
    let below_space = word.wrapping_sub(EACH * 0x20) & !word;
    let above_tilde = word | word.wrapping_add(EACH);
    (below_space | above_tilde | is(b'"') | is(b'\\')) & EACH << 7 == 0
}

/// A string behind a quote.
fn long_string(b: &[u8], out: &mut Text) -> Option<()> {
    out.push('"');
    // Without a way out on the first hit the compiler looks at many bytes at once.
    let special = |found, c: &u8| found | (*c < b' ') | (*c > b'~') | (*c == b'"') | (*c == b'\\');
    if !b.iter().fold(false, special) {
        out.push_part(b);
        return Some(());
    }
    // All that is escaped is ASCII, whose bytes are in no other character.
    let mut rest = b;
    while let Some(c) = rest.first() {
        let mut len = 1;
        match c {
            b'"' | b'\\' => out.push_ascii([b'\\', *c]),
            b'\n' => out.push_ascii(*b"\\n"),
            b'\r' => out.push_ascii(*b"\\r"),
            b'\t' => out.push_ascii(*b"\\t"),
            0x08 => out.push_ascii(*b"\\b"),
            0x0c => out.push_ascii(*b"\\f"),
            c if *c < b' ' => show(format_args!("\\u{c:04x}"), out)?,
            c if c.is_ascii() => out.push_ascii([*c]),
            _ => {
                len = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
                out.push_bytes(&rest[..len]);
            }
        }
        rest = &rest[len..];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_strings_are_printed_as_long_ones() {
        for special in 0..=255 {
            for (len, at) in (1..20).flat_map(|len| (0..len).map(move |at| (len, at))) {
                let mut b = vec![b'a'; len];
                b[at] = special;
                let (mut short, mut long) = (Text::new(), Text::new());
                string(&b, *b"\"", &mut short).unwrap();
                long_string(&b, &mut long).unwrap();
                long.push('"');
                assert_eq!(short.as_bytes(), long.as_bytes(), "{special} {len} {at}");
                let word = <[u8; 8]>::try_from(b.as_slice()).ok().map(stands_for_itself);
                let plain = (b' '..=b'~').contains(&special) && special != b'"' && special != b'\\';
                assert_eq!(word.unwrap_or(plain), plain);
            }
        }
        let mut none = Text::new();
        string(b"", *b"\": ", &mut none).unwrap();
        assert_eq!(none.as_bytes(), b"\"\": ");
    }

    #[test]
    fn a_container_is_either_an_object_or_an_array() {
        let printed = |header: u32| {
            let mut out = Text::new();
            // One entry: the string "a".
            let bytes = [header | 1, 1].map(u32::to_le_bytes).concat();
            jsonb(&[&bytes[..], b"a"].concat(), &mut out).map(|()| out.into_string())
        };
        assert_eq!(printed(ARRAY).as_deref(), Some("[\"a\"]"));
        assert_eq!(printed(ARRAY | SCALAR).as_deref(), Some("\"a\""));
        for header in [0, SCALAR, ARRAY | OBJECT, ARRAY | OBJECT | SCALAR] {
            assert_eq!(printed(header), None, "{header:#x}");
        }
    }
}
