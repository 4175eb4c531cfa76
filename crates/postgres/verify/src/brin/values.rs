//! Rows of a range against its least and greatest value: of whole numbers, floats, dates and times.
//!
//! Source: `brin_form_tuple` in brin_tuple.c, `brin_minmax_add_value` in brin_minmax.c. The bits that say whether a range has nulls are left
//! out: servers up to 15 had them wrong (fixed in 16 and in minor releases of 2023).

use std::cmp::Ordering;
use std::fmt;

use leadline_errors::{Kind as ErrorKind, Result};
use leadline_page::postgres::brin::BrinTuple;
use leadline_page::postgres::heap::{TupleHeader, HEAP_HASNULL, SIZE as HEADER};
use leadline_page::postgres::line_pointer::{line_pointers, LP_NORMAL};
use leadline_page::postgres::Kind;
use leadline_page::Tid;
use leadline_rows::tuple::{deform, value_at, Storage, Stored};
use leadline_rows::xact::Xacts;

use super::{Map, Summary};
use crate::blocks::{Blocks, Page, Settled};
use crate::heap;
use crate::index_pages::{items, u16_at, u32_at, u64_at, Few};
use crate::problem::Report;
use crate::target::Target;

/// `brin_minmax_opcinfo`: the first support function of operator classes with a least and a greatest value.
const MINMAX: u32 = 3383;
/// Flags of `bt_info`.
const EMPTY_RANGE: u8 = 0x20;
const PLACEHOLDER: u8 = 0x40;

/// Compares visible rows with the summaries of their ranges. Only if the server ended in order: else a row may be seen whose summary was
/// changed after the last checkpoint.
pub(super) fn check(
    target: &Target<'_>,
    map: &Map,
    blocks: &mut Blocks,
    names: &Blocks,
    report: &mut Report<'_>,
) -> Result<()> {
    let Some((table, columns)) = columns(target, report) else { return Ok(()) };
    if blocks.settled() != Settled::All {
        report.skipped("values in BRIN indexes of a server that runs or crashed", 1);
        return Ok(());
    }
    let mut heap = match table.blocks() {
        Err(e) if matches!(e.kind, ErrorKind::NotFound) => return Ok(()),
        heap => heap?,
    };
    let storages: Vec<Storage> = table.attributes().iter().map(|attribute| attribute.storage).collect();
    let mut xacts = Xacts::new(&table.catalog().dir);
    let mut told = Few::default();
    let size = map.meta.pages_per_range;
    // The range that was met last, and its summary if it has one.
    let mut current: Option<(u32, Option<Summarized>)> = None;
    heap.each(0..u32::MAX, |page| {
        let range = page.block / size;
        if current.as_ref().is_none_or(|(of, _)| *of != range) {
            current = Some((range, summary(map, range, &columns, target.attributes().len(), blocks)?));
        }
        let Some((_, Some((at, bounds)))) = &mut current else { return Ok(true) };
        if page.kind != Kind::Heap || !page.is_settled {
            return Ok(true);
        }
        if let Some((row, message)) = bad_row(&page, &columns, bounds, &storages, &mut xacts) {
            if told.take(at.block) {
                let first = range * size;
                let message = format!(
                    "row ({},{row}) of table {} {message} for the range at block {first}",
                    page.block,
                    table.name()
                );
                report.found(names.problem("range", at.block, Some(at.posid), message, "index scans miss the row"));
            }
            // One of each range is enough.
            bounds.clear();
        }
        Ok(!report.is_stopped())
    })?;
    told.tell(report);
    Ok(())
}

/// A column of the index whose values can be compared.
struct Column {
    /// Its place in the table.
    attribute: usize,
    name: String,
    storage: Storage,
    of: Option<Of>,
}

/// The columns up to the first whose summaries are of another sort: where the next begins is not known here.
fn columns<'a>(target: &Target<'a>, report: &mut Report<'_>) -> Option<(Target<'a>, Vec<Column>)> {
    let index = target.index()?;
    let table = target.other(index.table).filter(|table| table.class.relam == heap::HEAP)?;
    let column = |i: usize| {
        let attribute = usize::try_from(*index.columns.get(i)?).ok()?.checked_sub(1)?;
        Some((attribute, table.attributes().get(attribute)?))
    };
    let keys = index.keys.iter().take_while(|key| key.function == MINMAX);
    let columns: Vec<Column> = keys
        .zip(target.attributes())
        .enumerate()
        .map(|(i, (_, own))| {
            let of_table =
                column(i).filter(|(_, attribute)| attribute.is_stored() && attribute.atttypid == own.atttypid);
            Column {
                attribute: of_table.map_or(0, |(at, _)| at),
                name: of_table.map_or_else(String::new, |(_, attribute)| attribute.attname.clone()),
                storage: own.storage,
                of: of_table.and_then(|_| Of::type_of(own.atttypid)),
            }
        })
        .collect();
    let compared = columns.iter().filter(|column| column.of.is_some()).count();
    report.skipped(
        "columns of BRIN indexes whose values are not compared",
        index.keys.len().saturating_sub(compared) as u64,
    );
    // Which rows a partial index has is not known here.
    (compared > 0 && !index.is_partial).then_some((table, columns))
}

/// What a summary says of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bounds {
    /// Nothing that can be compared.
    Unknown,
    NoValues,
    Values(Number, Number),
}

/// Where a summary is, and what it says of each column.
type Summarized = (Tid, Vec<Bounds>);

/// The summary of a range.
fn summary(map: &Map, range: u32, columns: &[Column], natts: usize, blocks: &mut Blocks) -> Result<Option<Summarized>> {
    let Some(Summary::At(tid)) = map.map.get(range as usize).copied() else { return Ok(None) };
    let Some(page) = blocks.read(tid.block)?.filter(|page| page.is_settled && page.kind == Kind::BrinRegular) else {
        return Ok(None);
    };
    let item = items(&page).find(|(number, _)| *number == tid.posid).map(|(_, item)| item);
    let is_of_range = |item: &&[u8]| u32_at(item, 0) / map.meta.pages_per_range == range;
    Ok(item.filter(is_of_range).and_then(|item| bounds(item, columns, natts)).map(|bounds| (tid, bounds)))
}

fn bounds(item: &[u8], columns: &[Column], natts: usize) -> Option<Vec<Bounds>> {
    let tuple = BrinTuple::parse(item)?;
    if tuple.bt_info & PLACEHOLDER != 0 {
        return None;
    }
    let bitmap = item.get(BrinTuple::SIZE..BrinTuple::SIZE + (2 * natts).div_ceil(8))?;
    let data = item.get(tuple.data_offset()..)?;
    let mut at = 0;
    let mut all = Vec::with_capacity(columns.len());
    for (i, column) in columns.iter().enumerate() {
        let is_null = tuple.has_nulls() && bitmap[i / 8] >> (i % 8) & 1 != 0;
        if is_null || tuple.bt_info & EMPTY_RANGE != 0 {
            all.push(if column.of.is_some() { Bounds::NoValues } else { Bounds::Unknown });
            continue;
        }
        let (least, next) = value_at(data, at, column.storage)?;
        let (greatest, end) = value_at(data, next, column.storage)?;
        at = end;
        let number = |stored| column.of.and_then(|of| of.number(stored));
        all.push(match (number(least), number(greatest)) {
            (Some(least), Some(greatest)) => Bounds::Values(least, greatest),
            _ => Bounds::Unknown,
        });
    }
    Some(all)
}

/// A visible row whose value is outside, and what is wrong with it.
fn bad_row(
    page: &Page<'_>,
    columns: &[Column],
    bounds: &[Bounds],
    storages: &[Storage],
    xacts: &mut Xacts,
) -> Option<(u32, String)> {
    if bounds.is_empty() {
        return None;
    }
    for (number, lp) in line_pointers(page.bytes, &page.header).filter(|(_, lp)| lp.flags() == LP_NORMAL) {
        let Some(item) = lp.item(page.bytes) else { continue };
        let Some(header) = TupleHeader::parse(item) else { continue };
        let hoff = usize::from(header.t_hoff);
        let (Some(bitmap), Some(data)) = (item.get(HEADER..hoff), item.get(hoff..)) else { continue };
        let bitmap = (header.t_infomask & HEAP_HASNULL != 0).then_some(bitmap);
        let mut values = Vec::with_capacity(storages.len());
        if deform(data, bitmap, header.natts().into(), storages, &mut values).is_none() {
            continue;
        }
        for (column, bounds) in columns.iter().zip(bounds) {
            let value = values.get(column.attribute).and_then(|value| column.of?.number(*value));
            let why = match (value, bounds) {
                (None, _) | (_, Bounds::Unknown) => continue,
                (Some(_), Bounds::NoValues) => "but the summary has no value".into(),
                (Some(value), Bounds::Values(least, greatest)) => {
                    if value.order(*least) != Ordering::Less && value.order(*greatest) != Ordering::Greater {
                        continue;
                    }
                    format!("but the summary is from {least} to {greatest}")
                }
            };
            if xacts.status(&header).is_visible() {
                let value = value.map_or_else(String::new, |value| value.to_string());
                return Some((number, format!("has {value} in column {}, {why}", column.name)));
            }
        }
    }
    None
}

/// Types whose values are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Signed,
    Oid,
    Float,
}

impl Of {
    /// int8, int2, int4, date, time, timestamp, timestamptz; oid; float4, float8.
    fn type_of(oid: u32) -> Option<Of> {
        match oid {
            20 | 21 | 23 | 1082 | 1083 | 1114 | 1184 => Some(Of::Signed),
            26 => Some(Of::Oid),
            700 | 701 => Some(Of::Float),
            _ => None,
        }
    }

    fn number(self, stored: Stored<'_>) -> Option<Number> {
        let Stored::Fixed(bytes) = stored else { return None };
        Some(match (self, bytes.len()) {
            (Of::Signed, 2) => Number::Whole((u16_at(bytes, 0) as i16).into()),
            (Of::Signed, 4) => Number::Whole((u32_at(bytes, 0) as i32).into()),
            (Of::Signed, 8) => Number::Whole(u64_at(bytes, 0) as i64),
            (Of::Oid, 4) => Number::Whole(u32_at(bytes, 0).into()),
            (Of::Float, 4) => Number::Real(f32::from_bits(u32_at(bytes, 0)).into()),
            (Of::Float, 8) => Number::Real(f64::from_bits(u64_at(bytes, 0))),
            _ => return None,
        })
    }
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    /// NaN is equal to itself and greater than all others (`float8_cmp_internal`).
    fn order(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Whole(a), Number::Whole(b)) => a.cmp(&b),
            (Number::Real(a), Number::Real(b)) => a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
            _ => Ordering::Equal,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Whole(n) => n.fmt(f),
            Number::Real(n) => n.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: Storage = Storage { attlen: 4, attalign: b'i' };

    fn column(of: Of) -> Column {
        Column { attribute: 0, name: "a".into(), storage: INT, of: Some(of) }
    }

    #[test]
    fn a_summary_has_bounds_or_no_values() {
        let columns = [column(Of::Signed), column(Of::Signed)];
        // The second column has only nulls.
        let mut item = vec![0, 0, 0, 0, 0x80 | 8, 0b10, 0, 0];
        item.extend((-3i32).to_le_bytes());
        item.extend(9i32.to_le_bytes());
        let found = bounds(&item, &columns, 2).unwrap();
        assert_eq!(found, [Bounds::Values(Number::Whole(-3), Number::Whole(9)), Bounds::NoValues]);
        item[4] |= PLACEHOLDER;
        assert_eq!(bounds(&item, &columns, 2), None);
        assert_eq!(bounds(&item[..9], &columns, 2), None);
    }

    #[test]
    fn nan_is_the_greatest() {
        let [one, nan] = [1.0, f64::NAN].map(Number::Real);
        assert_eq!(
            [one.order(nan), nan.order(one), nan.order(nan)],
            [Ordering::Less, Ordering::Greater, Ordering::Equal]
        );
    }
}
