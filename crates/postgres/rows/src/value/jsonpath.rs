//! jsonpath: items that name each other by their distance; a path is a chain of them.
//!
//! Source: src/include/utils/jsonpath.h, src/backend/utils/adt/jsonpath.c.

use super::{fits, json, number, show, Text};
use crate::varlena::{self, Varlena};

const LAX: u32 = 0x8000_0000;
/// The stack of this program ends somewhere; so does that of the server.
const DEEPEST: u32 = 1000;

/// What an item is, by its number; new ones come at the end (the last eleven since 17).
#[derive(Clone, Copy)]
enum Item {
    Null,
    String,
    Numeric,
    Bool,
    /// Between two others: how it is written, and how strongly it binds.
    Between(&'static str, u8),
    /// Behind and before another.
    Around(&'static str, &'static str),
    Sign(&'static str),
    Word(&'static str),
    /// Behind a point, when it is not the first of its path.
    AnyKey,
    Key,
    Subscripts,
    AnyDepth,
    Variable,
    Regex,
    /// With up to so many arguments.
    Method(&'static str, u8),
    /// Is never an item of its own.
    None,
}

const ITEMS: [Item; 54] = {
    use Item::*;
    [
        Null,
        String,
        Numeric,
        Bool,
        Between("&&", 1),
        Between("||", 0),
        Around("!(", ")"),
        Around("(", ") is unknown"),
        Between("==", 2),
        Between("!=", 2),
        Between("<", 2),
        Between(">", 2),
        Between("<=", 2),
        Between(">=", 2),
        Between("+", 3),
        Between("-", 3),
        Between("*", 4),
        Between("/", 4),
        Between("%", 4),
        Sign("+"),
        Sign("-"),
        Word("[*]"),
        AnyKey,
        Subscripts,
        AnyDepth,
        Key,
        Word("@"),
        Word("$"),
        Variable,
        Around("?(", ")"),
        Around("exists (", ")"),
        Word(".type()"),
        Word(".size()"),
        Word(".abs()"),
        Word(".floor()"),
        Word(".ceiling()"),
        Word(".double()"),
        Method("datetime", 1),
        Word(".keyvalue()"),
        None,
        Word("last"),
        Between("starts with", 2),
        Regex,
        Word(".bigint()"),
        Word(".boolean()"),
        Word(".date()"),
        Method("decimal", 2),
        Word(".integer()"),
        Word(".number()"),
        Word(".string()"),
        Method("time", 1),
        Method("time_tz", 1),
        Method("timestamp", 1),
        Method("timestamp_tz", 1),
    ]
};

/// How strongly an item binds what is beside it.
fn strength(item: Item) -> u8 {
    match item {
        Item::Between(_, strength) => strength,
        Item::Sign(_) => 5,
        _ => 6,
    }
}

pub(super) fn jsonpath(b: &[u8], out: &mut Text) -> Option<()> {
    let (header, items) = b.split_first_chunk()?;
    if u32::from_le_bytes(*header) & LAX == 0 {
        out.push_str("strict ");
    }
    // Each item has eight bytes at least. Damaged ones may name each other.
    Path { items, left: items.len() / 8 }.chain(0, true, out, 0)
}

struct Path<'a> {
    items: &'a [u8],
    /// Items that may still come.
    left: usize,
}

impl<'a> Path<'a> {
    fn item(&self, at: usize) -> Option<Item> {
        ITEMS.get(usize::from(*self.items.get(at)?)).copied()
    }

    fn u32(&self, at: usize) -> Option<u32> {
        number::u32(self.items.get(at..)?)
    }

    /// Bytes behind their number.
    fn counted(&self, at: usize) -> Option<&'a [u8]> {
        let len = self.u32(at)? as usize;
        self.items.get(at + 4..)?.get(..len)
    }

    /// An item and those behind it in its path. `in_brackets`: whether what has operators is put into brackets.
    fn chain(&mut self, mut at: usize, mut in_brackets: bool, out: &mut Text, depth: u32) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let mut is_first = true;
        loop {
            self.left = self.left.checked_sub(1)?;
            // The type is one byte; numbers are at multiples of four from the beginning of all items.
            let fields = (at + 1).next_multiple_of(4);
            let next = self.u32(fields)? as usize;
            self.print(at, fields + 4, is_first, in_brackets, next > 0, out, depth)?;
            fits(out)?;
            if next == 0 {
                return Some(());
            }
            at = at.checked_add(next)?;
            (is_first, in_brackets) = (false, true);
        }
    }

    /// `fields`: where they begin that not all items have.
    #[allow(clippy::too_many_arguments)]
    fn print(
        &mut self,
        at: usize,
        fields: usize,
        is_first: bool,
        in_brackets: bool,
        has_next: bool,
        out: &mut Text,
        depth: u32,
    ) -> Option<()> {
        let item = self.item(at)?;
        let below = depth + 1;
        // Other items by their distance from this one; 0 is none.
        let other =
            |path: &Path<'_>, field: usize| Some((path.u32(field)? as usize).checked_add(at)?).filter(|to| *to != at);
        let dot = if is_first { "" } else { "." };
        let (open, close) = if in_brackets { ("(", ")") } else { ("", "") };
        match item {
            Item::Null => out.push_str("null"),
            Item::String => json::string(self.counted(fields)?, *b"\"", out)?,
            Item::Bool => out.push_str(if *self.items.get(fields)? != 0 { "true" } else { "false" }),
            Item::Numeric => {
                let (Varlena::Plain(digits), _) = varlena::parse(self.items.get(fields..)?)? else { return None };
                // 13 and 14 print it without the brackets, which cannot be read back.
                out.push_str(if has_next { "(" } else { "" });
                number::numeric(digits, out)?;
                out.push_str(if has_next { ")" } else { "" });
            }
            Item::Between(operator, strongly) => {
                out.push_str(open);
                for (i, field) in [fields, fields + 4].into_iter().enumerate() {
                    if i > 0 {
                        show(format_args!(" {operator} "), out)?;
                    }
                    let to = other(self, field)?;
                    self.chain(to, strength(self.item(to)?) <= strongly, out, below)?;
                }
                out.push_str(close);
            }
            Item::Around(before, behind) => {
                out.push_str(before);
                self.chain(other(self, fields)?, false, out, below)?;
                out.push_str(behind);
            }
            Item::Sign(sign) => {
                out.push_str(open);
                out.push_str(sign);
                let to = other(self, fields)?;
                self.chain(to, strength(self.item(to)?) <= strength(item), out, below)?;
                out.push_str(close);
            }
            Item::Word(word) => out.push_str(word),
            Item::AnyKey => show(format_args!("{dot}*"), out)?,
            Item::Key => {
                out.push_str(dot);
                json::string(self.counted(fields)?, *b"\"", out)?;
            }
            Item::Variable => {
                out.push('$');
                json::string(self.counted(fields)?, *b"\"", out)?;
            }
            Item::Subscripts => {
                for i in 0..self.u32(fields)? as usize {
                    out.push(if i > 0 { ',' } else { '[' });
                    let place = fields + 4 + 8 * i;
                    self.chain(other(self, place)?, false, out, below)?;
                    if self.u32(place + 4)? > 0 {
                        out.push_str(" to ");
                        self.chain(other(self, place + 4)?, false, out, below)?;
                    }
                }
                out.push(']');
            }
            Item::AnyDepth => {
                const LAST: u32 = u32::MAX;
                show(format_args!("{dot}**"), out)?;
                match (self.u32(fields)?, self.u32(fields + 4)?) {
                    (0, LAST) => {}
                    (LAST, LAST) => out.push_str("{last}"),
                    (from, to) if from == to => show(format_args!("{{{from}}}"), out)?,
                    (LAST, to) => show(format_args!("{{last to {to}}}"), out)?,
                    (from, LAST) => show(format_args!("{{{from} to last}}"), out)?,
                    (from, to) => show(format_args!("{{{from} to {to}}}"), out)?,
                }
            }
            Item::Regex => {
                out.push_str(open);
                let to = other(self, fields + 4)?;
                self.chain(to, strength(self.item(to)?) <= strength(item), out, below)?;
                out.push_str(" like_regex ");
                json::string(self.counted(fields + 8)?, *b"\"", out)?;
                let flags = self.u32(fields)?;
                if flags != 0 {
                    out.push_str(" flag \"");
                    out.extend("ismxq".chars().enumerate().filter(|(bit, _)| flags >> bit & 1 != 0).map(|(_, c)| c));
                    out.push('"');
                }
                out.push_str(close);
            }
            Item::Method(name, arguments) => {
                show(format_args!(".{name}("), out)?;
                for i in 0..usize::from(arguments) {
                    if let Some(to) = other(self, fields + 4 * i) {
                        out.push_str(if i > 0 { "," } else { "" });
                        self.chain(to, false, out, below)?;
                    }
                }
                out.push(')');
            }
            Item::None => return None,
        }
        Some(())
    }
}
