//! Keys of GiST indexes that contain others: boxes, and ranges of whole numbers, dates and times.
//!
//! Source: gistproc.c (keys of points, circles and polygons are boxes, too), rangetypes.c (`range_serialize`), rangetypes_gist.c
//! (`range_super_union`: a flag says that there are empty ranges below).

use leadline_page::postgres::index_tuple::{IndexTuple, INDEX_NULL_MASK};
use leadline_rows::varlena::{self, Varlena};

use crate::index_pages::{u32_at, u64_at};
use crate::target::Target;

const FIRST_NORMAL_OID: u32 = 16384;
/// Flags of a range.
const EMPTY: u8 = 0x01;
const LOWER_INCLUSIVE: u8 = 0x02;
const UPPER_INCLUSIVE: u8 = 0x04;
const LOWER_INFINITE: u8 = 0x08;
const UPPER_INFINITE: u8 = 0x10;
const CONTAIN_EMPTY: u8 = 0x80;

/// What the keys of the first column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Box,
    /// Of whole numbers of so many bytes.
    Range(usize),
}

impl Sort {
    /// None: nobody knows here how its keys contain each other.
    pub(super) fn of(target: &Target<'_>) -> Option<Sort> {
        let is_built_in = target.index()?.keys.first()?.opclass < FIRST_NORMAL_OID;
        // box; int4range, daterange; int8range, tsrange, tstzrange
        match target.attributes().first()?.atttypid {
            _ if !is_built_in => None,
            603 => Some(Sort::Box),
            3904 | 3912 => Some(Sort::Range(4)),
            3926 | 3908 | 3910 => Some(Sort::Range(8)),
            _ => None,
        }
    }

    /// The first key of an item.
    pub(super) fn key(self, item: &[u8]) -> Key {
        let Some(tuple) = IndexTuple::parse(item) else { return Key::Unknown };
        // The null bitmap has a bit for each column that is not null.
        if tuple.t_info & INDEX_NULL_MASK != 0 && item.get(8).is_some_and(|bits| bits & 1 == 0) {
            return Key::Null;
        }
        let Some(data) = item.get(tuple.data_offset()..) else { return Key::Unknown };
        match self {
            // high.x, high.y, low.x, low.y
            Sort::Box => data.get(..32).map(|b| Key::Box([0, 8, 16, 24].map(|i| f64::from_bits(u64_at(b, i))))),
            Sort::Range(width) => match varlena::parse(data) {
                Some((Varlena::Plain(bytes), _)) => Range::parse(bytes, width).map(Key::Range),
                _ => None,
            },
        }
        .unwrap_or(Key::Unknown)
    }
}

/// A key of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Key {
    Null,
    Box([f64; 4]),
    Range(Range),
    Unknown,
}

/// A range, or one that contains several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    /// Where values begin and end; None if there are none.
    span: Option<(Lower, Upper)>,
    /// It is empty, or there are empty ones below.
    has_empty: bool,
}

/// In the order of ranges: from minus infinity on, and from a value on before behind a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lower {
    Infinite,
    At(i64, bool),
}

/// Up to a value before with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Upper {
    At(i64, bool),
    Infinite,
}

impl Range {
    /// Its type, its bounds as far as it has some, and its flags.
    fn parse(bytes: &[u8], width: usize) -> Option<Range> {
        let flags = *bytes.last()?;
        let has_empty = flags & (EMPTY | CONTAIN_EMPTY) != 0;
        if flags & EMPTY != 0 {
            return Some(Range { span: None, has_empty });
        }
        let number = |at: usize| {
            let bytes = bytes.get(at..at + width)?;
            Some(if width == 4 { i64::from(u32_at(bytes, 0) as i32) } else { u64_at(bytes, 0) as i64 })
        };
        let mut at = 4;
        let lower = if flags & LOWER_INFINITE != 0 {
            Lower::Infinite
        } else {
            at += width;
            Lower::At(number(4)?, flags & LOWER_INCLUSIVE == 0)
        };
        let upper = match flags & UPPER_INFINITE {
            0 => Upper::At(number(at)?, flags & UPPER_INCLUSIVE != 0),
            _ => Upper::Infinite,
        };
        Some(Range { span: Some((lower, upper)), has_empty })
    }

    fn add(self, other: Range) -> Range {
        let span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, two) => one.or(two),
        };
        Range { span, has_empty: self.has_empty || other.has_empty }
    }

    fn contains(&self, other: &Range) -> bool {
        let spans = match (self.span, other.span) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some((a, b)), Some((c, d))) => a <= c && b >= d,
        };
        spans && (self.has_empty || !other.has_empty)
    }
}

/// What contains the keys of a page, nulls aside.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Union {
    #[default]
    Nothing,
    Box([f64; 4]),
    Range(Range),
    /// There are keys that have no order.
    Unknown,
}

impl Union {
    pub(super) fn add(&mut self, key: Key) {
        *self = match (*self, key) {
            (union, Key::Null) => union,
            (Union::Nothing, Key::Box(b)) if b.iter().all(|n| !n.is_nan()) => Union::Box(b),
            (Union::Box([hx, hy, lx, ly]), Key::Box(b)) if b.iter().all(|n| !n.is_nan()) => {
                Union::Box([hx.max(b[0]), hy.max(b[1]), lx.min(b[2]), ly.min(b[3])])
            }
            (Union::Nothing, Key::Range(range)) => Union::Range(range),
            (Union::Range(union), Key::Range(range)) => Union::Range(union.add(range)),
            _ => Union::Unknown,
        };
    }

    pub(super) fn is_within(&self, key: &Key) -> bool {
        match (key, self) {
            (Key::Unknown, _) | (_, Union::Unknown | Union::Nothing) => true,
            (Key::Box(k), Union::Box(b)) => {
                k.iter().any(|n| n.is_nan()) || k[0] >= b[0] && k[1] >= b[1] && k[2] <= b[2] && k[3] <= b[3]
            }
            (Key::Range(key), Union::Range(union)) => key.contains(union),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_of_boxes_is_within_a_key_that_contains_it() {
        let mut union = Union::default();
        assert!(union.is_within(&Key::Null));
        union.add(Key::Box([2.0, 3.0, 0.0, 1.0]));
        union.add(Key::Null);
        assert!(union.is_within(&Key::Box([2.0, 3.0, 0.0, 1.0])) && !union.is_within(&Key::Null));
        assert!(!union.is_within(&Key::Box([2.0, 2.9, 0.0, 1.0])) && !union.is_within(&Key::Box([5.0, 5.0, 0.1, 0.0])));
        union.add(Key::Box([f64::NAN, 3.0, 0.0, 1.0]));
        assert!(union.is_within(&Key::Null));
    }

    #[test]
    fn a_union_of_ranges_is_within_a_key_that_contains_it() {
        let range = |lower: i32, upper: i32, flags: u8| {
            let mut item = vec![0, 0, 0, 0, 1, 0, 0, 0, 0, 0x40, 0x0f, 0, 0];
            item[8] = 14 << 1 | 1;
            item.extend(lower.to_le_bytes());
            item.extend(upper.to_le_bytes());
            item.push(flags);
            Sort::Range(4).key(&item)
        };
        let mut union = Union::default();
        union.add(range(-5, 7, LOWER_INCLUSIVE));
        union.add(range(0, 9, LOWER_INCLUSIVE));
        assert!(union.is_within(&range(-5, 9, LOWER_INCLUSIVE)) && union.is_within(&range(-6, 9, UPPER_INCLUSIVE)));
        assert!(!union.is_within(&range(-5, 9, 0)) && !union.is_within(&range(-5, 8, LOWER_INCLUSIVE)));
        assert!(union.is_within(&range(-5, 0, LOWER_INCLUSIVE | UPPER_INFINITE)));
        union.add(range(0, 0, EMPTY));
        assert!(!union.is_within(&range(-9, 9, 0)) && union.is_within(&range(-9, 9, CONTAIN_EMPTY)));
        assert!(!union.is_within(&range(0, 0, EMPTY)) && !union.is_within(&Key::Null));
    }
}
