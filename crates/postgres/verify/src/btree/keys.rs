//! The order of the tuples of an index.

use std::borrow::Cow;
use std::cmp::Ordering;

use leadline_page::Tid;
use leadline_rows::tuple::{value_at, Storage, Stored};
use leadline_rows::varlena::{self, Varlena};

use super::tuple::{hash_bytes, hash_word, Form, Tuple};
use crate::index::Key;
use crate::order::Order;

/// A column that an index is ordered by. Without an order nothing is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub order: Option<Order>,
    pub is_descending: bool,
    pub nulls_first: bool,
}

impl Column {
    pub(crate) fn of(key: &Key, order: Option<Order>) -> Column {
        Column { order, is_descending: key.is_descending, nulls_first: key.nulls_first }
    }

    fn directed(&self, ordering: Ordering) -> Ordering {
        if self.is_descending {
            ordering.reverse()
        } else {
            ordering
        }
    }
}

/// How the tuples of an index lie and are ordered.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// How the columns are stored, those of INCLUDE too.
    pub storages: Vec<Storage>,
    pub columns: Vec<Column>,
    /// Since version 4 the row's number is the last column.
    pub has_tids: bool,
}

/// The bytes of a value without a header, unpacked; None when there are none.
pub(crate) fn payload(stored: Stored<'_>) -> Option<Cow<'_, [u8]>> {
    match stored {
        Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => Some(Cow::Borrowed(bytes)),
        Stored::Varlena(Varlena::Compressed(size, method, packed)) => {
            varlena::unpack(size, method, packed).map(Cow::Owned)
        }
        _ => None,
    }
}

/// Reads the values of a tuple one after the other.
struct Values<'a> {
    tuple: &'a Tuple<'a>,
    at: usize,
    column: usize,
}

impl<'a> Values<'a> {
    fn of(tuple: &'a Tuple<'a>) -> Values<'a> {
        Values { tuple, at: 0, column: 0 }
    }

    #[inline]
    fn next(&mut self, storage: Storage) -> Option<Stored<'a>> {
        let column = self.column;
        self.column += 1;
        if let Some(bitmap) = self.tuple.bitmap {
            if bitmap.get(column / 8)? >> (column % 8) & 1 == 0 {
                return Some(Stored::Null);
            }
        }
        let (value, end) = value_at(self.tuple.data, self.at, storage)?;
        self.at = end;
        Some(value)
    }
}

impl Keys {
    /// Columns in all.
    pub(crate) fn natts(&self) -> usize {
        self.storages.len()
    }

    /// Compares two tuples by their keys, and by the numbers of their rows where these are a part of the key. What a pivot lacks is less
    /// than anything. None when it is not known. `a` stands for its last row, `b` for its first one.
    pub(crate) fn compare(&self, a: &Tuple<'_>, b: &Tuple<'_>) -> Option<Ordering> {
        let (a_natts, b_natts) = (a.natts(self.natts()), b.natts(self.natts()));
        let (a_keys, b_keys) = (a_natts.min(self.columns.len()), b_natts.min(self.columns.len()));
        let keys = self.compare_columns(a, b, a_keys.min(b_keys))?;
        if keys != Ordering::Equal || !self.has_tids {
            return Some(keys);
        }
        Some(a_keys.cmp(&b_keys).then_with(|| match (a.last_tid(), b.first_tid()) {
            (Some(a), Some(b)) => place(a).cmp(&place(b)),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }))
    }

    /// Compares the first `count` columns.
    pub(crate) fn compare_columns(&self, a: &Tuple<'_>, b: &Tuple<'_>, count: usize) -> Option<Ordering> {
        let (mut a, mut b) = (Values::of(a), Values::of(b));
        for (column, storage) in self.columns.iter().zip(&self.storages).take(count) {
            let ordering = match (a.next(*storage)?, b.next(*storage)?) {
                (Stored::Null, Stored::Null) => Ordering::Equal,
                (Stored::Null, _) if column.nulls_first => Ordering::Less,
                (Stored::Null, _) => Ordering::Greater,
                (_, Stored::Null) if column.nulls_first => Ordering::Greater,
                (_, Stored::Null) => Ordering::Less,
                (a, b) => {
                    let order = column.order.as_ref()?;
                    column.directed(order.compare(&payload(a)?, &payload(b)?)?)
                }
            };
            if ordering != Ordering::Equal {
                return Some(ordering);
            }
        }
        Some(Ordering::Equal)
    }

    /// Whether a key has a null.
    pub(crate) fn has_null(&self, tuple: &Tuple<'_>) -> bool {
        let is_null = |i: usize| tuple.bitmap.is_some_and(|b| b.get(i / 8).is_some_and(|b| b >> (i % 8) & 1 == 0));
        (0..self.columns.len()).any(is_null)
    }

    /// A number for the values of a tuple that has all columns, whatever form they are stored in; None when it cannot be told.
    #[inline]
    pub(crate) fn fingerprint(&self, tuple: &Tuple<'_>) -> Option<u16> {
        let mut values = Values::of(tuple);
        let mut hash = 0;
        for storage in &self.storages {
            hash = add_value(hash, values.next(*storage)?)?;
        }
        Some(shortened(hash))
    }

    /// For the order of most indexes of one column: a number at the beginning of the key, in the same order as the keys.
    pub(crate) fn fast(&self) -> Option<Fast> {
        let first = self.columns.first()?;
        let order = match first.order.as_ref()? {
            Order::Int4 => Fast::Int4,
            Order::Int8 => Fast::Int8,
            Order::Unsigned4 => Fast::Unsigned4,
            _ => return None,
        };
        (!first.is_descending).then_some(order)
    }
}

/// Numbers that are compared without taking a tuple apart.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fast {
    Int4,
    Int8,
    Unsigned4,
}

impl Fast {
    /// The first column; None when it is null or cut off.
    #[inline(always)]
    pub(crate) fn of(self, tuple: &Tuple<'_>) -> Option<i64> {
        if tuple.bitmap.is_some() {
            return None;
        }
        match self {
            Fast::Int4 => tuple.data.first_chunk().map(|b| i32::from_le_bytes(*b).into()),
            Fast::Int8 => tuple.data.first_chunk().map(|b| i64::from_le_bytes(*b)),
            Fast::Unsigned4 => tuple.data.first_chunk().map(|b| u32::from_le_bytes(*b).into()),
        }
    }
}

/// Where a row is, in order.
pub(crate) fn place(tid: Tid) -> u64 {
    u64::from(tid.block) << 16 | u64::from(tid.posid)
}

/// Adds a value to a fingerprint.
#[inline]
pub(crate) fn add_value(hash: u64, stored: Stored<'_>) -> Option<u64> {
    match stored {
        Stored::Null => Some(hash_word(hash, 1)),
        Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => Some(hash_bytes(hash, bytes)),
        other => Some(hash_bytes(hash, &payload(other)?)),
    }
}

/// A fingerprint as it is kept: 15 bits, and 0 stands for none.
#[inline]
pub(crate) fn shortened(hash: u64) -> u16 {
    ((hash >> 49) as u16).max(1)
}

/// Whether a tuple of an inner page has a key.
pub(crate) fn is_minus_infinity(tuple: &Tuple<'_>) -> bool {
    matches!(tuple.form, Form::Pivot(0, _))
}
