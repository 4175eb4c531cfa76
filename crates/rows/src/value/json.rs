//! jsonb: containers of entries, each a string, a number, a truth value, null or a container again.
//!
//! Source: src/include/utils/jsonb.h.

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
    let values = b.get(4 + 4 * entries..)?;
    if depth > DEEPEST || header & (OBJECT | ARRAY) == 0 {
        return None;
    }
    if header & SCALAR != 0 {
        let (kind, end) = entry(b, 0, 0)?;
        return value(kind, values, 0, end, out, depth).filter(|()| count == 1);
    }
    if header & ARRAY != 0 {
        out.push('[');
        let mut start = 0;
        for i in 0..count {
            if i > 0 {
                out.push_str(", ");
            }
            let (kind, end) = entry(b, i, start)?;
            value(kind, values, start, end, out, depth)?;
            fits(out)?;
            start = end;
        }
        out.push(']');
        return Some(());
    }
    // All names come first, then all values.
    let mut names = 0;
    let mut start = 0;
    for i in 0..count {
        start = entry(b, i, start)?.1;
    }
    out.push('{');
    for i in 0..count {
        if i > 0 {
            out.push_str(", ");
        }
        let (_, end) = entry(b, i, names)?;
        string(values.get(names..end)?, out)?;
        names = end;
        out.push_str(": ");
        let (kind, end) = entry(b, count + i, start)?;
        value(kind, values, start, end, out, depth)?;
        fits(out)?;
        start = end;
    }
    out.push('}');
    Some(())
}

/// Kind of an entry and where its value, which begins at `start`, ends.
fn entry(b: &[u8], i: usize, start: usize) -> Option<(u32, usize)> {
    let entry = number::u32(b.get(4 + 4 * i..)?)?;
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

fn string(b: &[u8], out: &mut Text) -> Option<()> {
    out.push('"');
    // Most strings are ASCII that stands for itself. Without a way out on the first hit the compiler looks at many bytes at once.
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
