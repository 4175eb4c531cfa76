//! tsvector: words in order, each with where it stands.
//!
//! Source: src/include/tsearch/ts_type.h.

use super::{fits, number, show, Text};

pub(super) fn tsvector(b: &[u8], out: &mut Text) -> Option<()> {
    let count = number::u32(b)? as usize;
    let words = b.get(4usize.checked_add(count.checked_mul(4)?)?..)?;
    for i in 0..count {
        let entry = number::u32(b.get(4 + 4 * i..)?)?;
        let (has_positions, len, at) = (entry & 1 == 1, (entry >> 1 & 0x7ff) as usize, (entry >> 12) as usize);
        if i > 0 {
            out.push(' ');
        }
        out.push('\'');
        for c in String::from_utf8_lossy(words.get(at..at + len)?).chars() {
            if matches!(c, '\'' | '\\') {
                out.push(c);
            }
            out.push(c);
        }
        out.push('\'');
        if has_positions {
            positions(words.get((at + len).next_multiple_of(2)..)?, out)?;
        }
        fits(out)?;
    }
    Some(())
}

/// Two bytes each: the number in 14 bits, the weight in two.
fn positions(b: &[u8], out: &mut Text) -> Option<()> {
    let u16_at = |i: usize| b.get(2 * i..).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b));
    for i in 1..=usize::from(u16_at(0)?) {
        let position = u16_at(i)?;
        out.push(if i == 1 { ':' } else { ',' });
        show(position & 0x3fff, out)?;
        out.push_str(["", "C", "B", "A"][usize::from(position >> 14)]);
    }
    Some(())
}
