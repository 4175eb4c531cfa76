//! tsvector: words in order, each with where it stands. tsquery: words and operators, each operator before what it joins.
//!
//! Source: src/include/tsearch/ts_type.h, src/backend/utils/adt/tsquery.c.

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
        word(words.get(at..at + len)?, out);
        if has_positions {
            positions(words.get((at + len).next_multiple_of(2)..)?, out)?;
        }
        fits(out)?;
    }
    Some(())
}

/// In quotes.
fn word(bytes: &[u8], out: &mut Text) {
    out.push('\'');
    for part in bytes.split_inclusive(|c| matches!(c, b'\'' | b'\\')) {
        out.push_bytes(part);
        if let Some(c @ (b'\'' | b'\\')) = part.last() {
            out.push_ascii([*c]);
        }
    }
    out.push('\'');
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

/// What is still to be printed of a query.
enum Next {
    /// An item by its number, below an operator that binds so strongly; whether as what is to the right of a phrase operator.
    Item(usize, u8, bool),
    Word(&'static str),
    /// A phrase operator over so many words.
    Phrase(i16),
}

/// Items of 12 bytes, then their words. The right one of what an operator joins is behind it, the left one as far as it says.
pub(super) fn tsquery(b: &[u8], out: &mut Text) -> Option<()> {
    const ITEM: usize = 12;
    let count = number::u32(b)? as usize;
    let (items, words) = b.get(4..)?.split_at_checked(count.checked_mul(ITEM)?)?;
    let mut next = if count > 0 { vec![Next::Item(0, 0, false)] } else { vec![] };
    // Each item is printed once. Damaged ones may name each other.
    let mut left = count;
    while let Some(one) = next.pop() {
        let (at, outer, right_of_phrase) = match one {
            Next::Item(at, outer, right_of_phrase) => (at, outer, right_of_phrase),
            Next::Word(word) => {
                out.push_str(word);
                continue;
            }
            Next::Phrase(1) => {
                out.push_str(" <-> ");
                continue;
            }
            Next::Phrase(distance) => {
                show(format_args!(" <{distance}> "), out)?;
                continue;
            }
        };
        left = left.checked_sub(1)?;
        let item: &[u8; ITEM] = items.get(at * ITEM..)?.first_chunk()?;
        match item[..2] {
            [1, weights] => {
                let last = number::u32(&item[8..])?;
                let (len, distance) = ((last & 0xfff) as usize, (last >> 12) as usize);
                word(words.get(distance..distance + len)?, out);
                if weights != 0 || item[2] != 0 {
                    out.push_str(if item[2] != 0 { ":*" } else { ":" });
                    out.extend(
                        [(8, 'A'), (4, 'B'), (2, 'C'), (1, 'D')]
                            .into_iter()
                            .filter(|w| weights & w.0 != 0)
                            .map(|w| w.1),
                    );
                }
            }
            [2, operator] => {
                let left_one = number::u32(&item[4..])? as usize;
                let (strength, between) = match operator {
                    1 => (4, None),
                    2 => (2, Some(Next::Word(" & "))),
                    3 => (1, Some(Next::Word(" | "))),
                    4 => (3, Some(Next::Phrase(i16::from_le_bytes([item[2], item[3]])))),
                    _ => return None,
                };
                let is_phrase = operator == 4;
                if strength < outer || is_phrase && right_of_phrase {
                    out.push_str("( ");
                    next.push(Next::Word(" )"));
                }
                next.push(Next::Item(at + 1, strength, is_phrase));
                match between {
                    None => out.push('!'),
                    Some(between) => next.extend([between, Next::Item(at.checked_add(left_one)?, strength, false)]),
                }
            }
            _ => return None,
        }
        fits(out)?;
    }
    Some(())
}
