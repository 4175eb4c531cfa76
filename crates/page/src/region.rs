//! The fields of a page side by side: every byte in exactly one named region.

use crate::part::{FieldKind, Part};

/// A run of bytes with one meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Offset in the page.
    pub start: usize,
    /// Where the next one begins.
    pub end: usize,
    /// Name of the part, e.g. `tuple`; empty between parts.
    pub part: &'static str,
    /// Number of the part.
    pub number: Option<u32>,
    /// Name of the field, e.g. `t_xmin`.
    pub field: &'static str,
    /// What sort of bytes.
    pub kind: FieldKind,
}

/// The regions of a page of `size` bytes, in order, without gap or overlap.
///
/// Where fields overlap (the page is then wrong, and says so elsewhere), the one that begins first keeps its bytes; of two
/// that begin at the same place the first in the order of the parts. Bytes of no field are `unused`.
pub fn regions(parts: &[Part], size: usize) -> Vec<Region> {
    let mut fields: Vec<_> = parts.iter().flat_map(|p| p.fields.iter().map(move |f| (p, f))).collect();
    fields.retain(|(_, f)| f.len > 0);
    fields.sort_by_key(|(_, f)| f.start);
    let mut out = Vec::with_capacity(fields.len() + 8);
    let mut at = 0;
    let unused = |start, end| Region { start, end, part: "", number: None, field: "unused", kind: FieldKind::Unused };
    for (part, field) in fields {
        let end = field.start.saturating_add(field.len).min(size);
        if end <= at.max(field.start) {
            continue;
        }
        if field.start > at {
            out.push(unused(at, field.start));
        }
        let start = field.start.max(at);
        out.push(Region { start, end, part: part.name, number: part.number, field: field.name, kind: field.kind });
        at = end;
    }
    if at < size {
        out.push(unused(at, size));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::{Field, Value};

    fn part(name: &'static str, fields: &[(usize, usize)]) -> Part {
        let field = |&(start, len): &(usize, usize)| Field {
            name: "f",
            start,
            len,
            kind: FieldKind::Data,
            value: Value::Number(0),
            flags: Vec::new(),
            words: String::new(),
        };
        Part { name, number: None, start: 0, end: 0, fields: fields.iter().map(field).collect() }
    }

    #[test]
    fn gaps_are_named_and_overlaps_are_cut() {
        let found = regions(&[part("a", &[(2, 4), (9, 0)]), part("b", &[(4, 4), (4, 2), (100, usize::MAX)])], 10);
        let found: Vec<_> = found.iter().map(|r| (r.start, r.end, r.part)).collect();
        assert_eq!(found, [(0, 2, ""), (2, 6, "a"), (6, 8, "b"), (8, 10, "")]);
        assert_eq!(regions(&[], 0), []);
    }
}
