//! The order of keys, by the function of the operator class that compares them: from bytes alone.
//!
//! Functions that come with PostgreSQL have the same oids in each major (src/include/catalog/pg_proc.dat). What they do is in
//! src/backend/utils/adt/, as named below.

mod collations;
mod net;
mod numeric;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use leadline_errors::Result;
use leadline_rows::catalog::{number, Catalog};

pub(crate) use collations::Collations;

const PG_ENUM: u32 = 3501;
const USECS_PER_DAY: i128 = 86_400_000_000;

/// Where each value of all enums stands in the order of its type.
pub(crate) type Enums = Arc<HashMap<u32, f32>>;

/// How the values of a column are ordered.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    Int2,
    Int4,
    Int8,
    Unsigned4,
    Unsigned8,
    Float4,
    Float8,
    /// The bytes of the value, one by one.
    Bytes,
    /// The same without the spaces at the end.
    Padded,
    Interval,
    Timetz,
    Numeric,
    Network,
    Bits,
    Tid,
    Oids,
    Enum(Enums),
    /// Values are equal when their bytes are, and nothing else is known.
    SameBytes,
}

/// Collation matters to these: names, texts and texts padded with spaces.
const NAME_CMP: u32 = 359;
const TEXT_CMP: u32 = 360;
const BPCHAR_CMP: u32 = 1078;

impl Order {
    /// By the oid of the function; None when it is not known.
    pub(crate) fn of(function: u32, collation: u32, collations: &Collations, enums: &Enums) -> Option<Order> {
        Some(match function {
            350 => Order::Int2,
            351 | 1092 => Order::Int4,                     // int4, date
            842 | 377 | 1107 | 1314 | 2045 => Order::Int8, // int8, money, time, timestamptz, timestamp
            356 => Order::Unsigned4,                       // oid
            3251 | 5096 => Order::Unsigned8,               // pg_lsn, xid8
            354 => Order::Float4,
            355 => Order::Float8,
            // "char", bytea, uuid, bool, macaddr, macaddr8, text_pattern_ops
            358 | 1954 | 2960 | 1693 | 836 | 4119 | 2166 => Order::Bytes,
            2180 => Order::Padded, // bpchar_pattern_ops
            NAME_CMP | TEXT_CMP if collations.is_bytewise(collation) => Order::Bytes,
            BPCHAR_CMP if collations.is_bytewise(collation) => Order::Padded,
            NAME_CMP | TEXT_CMP if collations.is_deterministic(collation) => Order::SameBytes,
            1315 => Order::Interval,
            1358 => Order::Timetz,
            1769 => Order::Numeric,
            926 => Order::Network,
            1596 | 1672 => Order::Bits,
            2794 => Order::Tid,
            404 => Order::Oids,
            3514 => Order::Enum(Arc::clone(enums)),
            _ => return None,
        })
    }

    /// Why a column's order is not known, in words.
    pub(crate) fn why_unknown(function: u32, collation: u32, collations: &Collations) -> String {
        match function {
            NAME_CMP | TEXT_CMP | BPCHAR_CMP => {
                format!("order of keys with the collation \"{}\"", collations.name(collation))
            }
            _ => "order of keys of an operator class that is not known".into(),
        }
    }

    /// Compares two values: their bytes without a header, unpacked. None when the order is not known, or one of them is no such value.
    #[inline]
    pub(crate) fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        match self {
            Order::Int2 => Some(i16::from_le_bytes(*a.first_chunk()?).cmp(&i16::from_le_bytes(*b.first_chunk()?))),
            Order::Int4 => Some(i32::from_le_bytes(*a.first_chunk()?).cmp(&i32::from_le_bytes(*b.first_chunk()?))),
            Order::Int8 => Some(i64::from_le_bytes(*a.first_chunk()?).cmp(&i64::from_le_bytes(*b.first_chunk()?))),
            Order::Unsigned4 => Some(u32_at(a, 0)?.cmp(&u32_at(b, 0)?)),
            Order::Unsigned8 => Some(u64::from_le_bytes(*a.first_chunk()?).cmp(&u64::from_le_bytes(*b.first_chunk()?))),
            Order::Float4 => {
                Some(floats(f32::from_le_bytes(*a.first_chunk()?).into(), f32::from_le_bytes(*b.first_chunk()?).into()))
            }
            Order::Float8 => Some(floats(f64::from_le_bytes(*a.first_chunk()?), f64::from_le_bytes(*b.first_chunk()?))),
            Order::Bytes => Some(a.cmp(b)),
            Order::Padded => Some(unpadded(a).cmp(unpadded(b))),
            Order::Interval => Some(interval(a)?.cmp(&interval(b)?)),
            Order::Timetz => Some(timetz(a)?.cmp(&timetz(b)?)),
            Order::Numeric => numeric::compare(a, b),
            Order::Network => net::compare(a, b),
            Order::Bits => bits(a, b),
            Order::Tid => Some(tid(a)?.cmp(&tid(b)?)),
            Order::Oids => oids(a, b),
            Order::Enum(all) => enums(all, u32_at(a, 0)?, u32_at(b, 0)?),
            Order::SameBytes => (a == b).then_some(Ordering::Equal),
        }
    }
}

/// The enums of a database.
pub(crate) fn read_enums(catalog: &mut Catalog) -> Result<Enums> {
    let rows = catalog.rows(PG_ENUM, &["oid", "enumsortorder"])?;
    Ok(Arc::new(rows.iter().map(|row| (number(&row[0]), f32::from_bits(number(&row[1])))).collect()))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(|n| n as i32)
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    bytes.get(at..)?.first_chunk().map(|b| i64::from_le_bytes(*b))
}

/// NaN is equal to itself and greater than all others (float.h).
fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn unpadded(text: &[u8]) -> &[u8] {
    let spaces = text.iter().rev().take_while(|b| **b == b' ').count();
    &text[..text.len() - spaces]
}

/// As days of 24 hours and months of 30 days (timestamp.c, `interval_cmp_value`).
fn interval(b: &[u8]) -> Option<i128> {
    let (time, days, months) = (i64_at(b, 0)?, i32_at(b, 8)?, i32_at(b, 12)?);
    Some(i128::from(time) + (i128::from(months) * 30 + i128::from(days)) * USECS_PER_DAY)
}

/// The time in UTC, then the zone (date.c, `timetz_cmp_internal`).
fn timetz(b: &[u8]) -> Option<(i128, i32)> {
    let (time, zone) = (i64_at(b, 0)?, i32_at(b, 8)?);
    Some((i128::from(time) + i128::from(zone) * 1_000_000, zone))
}

fn tid(b: &[u8]) -> Option<(u16, u16, u16)> {
    let part = |at: usize| b.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b));
    Some((part(0)?, part(2)?, part(4)?))
}

/// The bits, then how many they are (varbit.c, `bit_cmp`).
fn bits(a: &[u8], b: &[u8]) -> Option<Ordering> {
    let of = |value| Some((i32_at(value, 0)?, value.get(4..)?));
    let ((a_len, a), (b_len, b)) = (of(a)?, of(b)?);
    let common = a.len().min(b.len());
    Some(a[..common].cmp(&b[..common]).then(a_len.cmp(&b_len)))
}

/// How many there are, then each of them (nbtcompare.c, `btoidvectorcmp`); the first is behind five words of the array.
fn oids(a: &[u8], b: &[u8]) -> Option<Ordering> {
    let (a_len, b_len) = (i32_at(a, 12)?, i32_at(b, 12)?);
    let words = |v: &[u8]| v.get(20..).map(|v| v.chunks_exact(4).map(|b| u32_at(b, 0)).collect::<Vec<_>>());
    Some(a_len.cmp(&b_len).then_with(|| words(a).cmp(&words(b))))
}

/// Even oids are in order (enum.c, `enum_cmp_internal`), the others where pg_enum says.
fn enums(all: &HashMap<u32, f32>, a: u32, b: u32) -> Option<Ordering> {
    if a == b || a.is_multiple_of(2) && b.is_multiple_of(2) {
        return Some(a.cmp(&b));
    }
    all.get(&a)?.partial_cmp(all.get(&b)?)
}

#[cfg(test)]
mod tests;
