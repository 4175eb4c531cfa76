//! Values of rows against the catalog: how they lie in the row, and whether they are of their type.
//!
//! Source: src/backend/access/common/heaptuple.c (`heap_form_tuple`, `heap_deform_tuple`), contrib/amcheck/verify_heapam.c
//! (`check_tuple_attribute`).

use std::collections::HashSet;

use leadline_errors::Result;
use leadline_page::postgres::heap::TupleHeader;
use leadline_rows::catalog::Attribute;
use leadline_rows::heap_file::Tuple;
use leadline_rows::tuple::{value_at, Storage, Stored};
use leadline_rows::value::{Kind, Printer, Text, Types};
use leadline_rows::varlena::{self, External, Varlena};
use leadline_rows::xact::Logged;

use crate::blocks::Settled;
use crate::heap::about::About;
use crate::heap::found::{At, Found};
use crate::heap::items::Version;
use crate::scalars;
use crate::target::Target;
use crate::toast::Chunks;

const HAS_VARWIDTH: u16 = 0x0002;
const HAS_EXTERNAL: u16 = 0x0004;
/// Relations of users begin here. Some columns of catalogs have nulls that should have none (pg_subscription of 13).
const FIRST_NORMAL_OID: u32 = 16384;
/// Values that are longer once unpacked are not looked at.
const LONGEST: usize = 64 << 20;
/// The text of a longer value may be too long to be made.
const MOST_PRINTED: usize = 1 << 20;
const FAILS: &str = "reading the value fails or returns something else";
const CLASS: &str = "value";
const ANYARRAY: u32 = 2277;
const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;
/// A number of six bytes can have a text of 131072 digits.
const LONGEST_OF_NUMBERS: usize = 2000;

/// A column, and how its values are looked at.
struct Column<'a> {
    attribute: &'a Attribute,
    /// Oid of its type, or what a domain is of.
    base: u32,
    typmod: i32,
    /// Of types made of others.
    printer: Option<Printer>,
    /// A value in a value may have more text than can be made.
    may_be_long: bool,
    is_not_null: bool,
}

/// The columns of one table.
pub(crate) struct Columns<'a> {
    columns: Vec<Column<'a>>,
    types: &'a Types,
    is_utf8: bool,
    settled: Settled,
    pub toast: Chunks<'a>,
    text: Text,
    value: Vec<u8>,
    major: u32,
}

impl<'a> Columns<'a> {
    /// None when pg_attribute has not all columns.
    pub(crate) fn of(target: &Target<'a>, about: &'a About, settled: Settled) -> Option<Columns<'a>> {
        let attributes = target.attributes();
        if attributes.len() != usize::try_from(target.class.relnatts).ok()? {
            return None;
        }
        let oid = target.class.oid;
        let column = |(attribute, number): (&'a Attribute, u16)| {
            let base = about.types.base(attribute.atttypid);
            let is_plain = scalars::is_looked_at(base) || matches!(base, 17 | 18 | 20 | 21 | 23 | 26 | 700 | 701);
            Column {
                attribute,

                base,
                typmod: if base == attribute.atttypid { attribute.atttypmod } else { -1 },
                printer: (!is_plain && attribute.is_stored() && !names_types(&about.types, base))
                    .then(|| about.types.printer(attribute.atttypid)),
                may_be_long: is_made(&about.types, base, |_, kind| {
                    matches!(kind, Kind::Composite(_) | Kind::Range(_) | Kind::Multirange(_))
                }) && is_made(&about.types, base, |oid, _| matches!(oid, NUMERIC | JSONB)),
                is_not_null: attribute.attnotnull
                    && attribute.is_stored()
                    && oid >= FIRST_NORMAL_OID
                    && about.has_constraints
                    && !about.unchecked.contains(&(oid, number)),
            }
        };
        Some(Columns {
            columns: attributes.iter().zip(1..).map(column).collect(),
            types: &about.types,
            // What all databases share may be written by one of another encoding.
            is_utf8: about.is_utf8 && target.class.reltablespace != leadline_datadir::GLOBAL_TABLESPACE,
            settled,
            toast: Chunks::of(*target, about),
            text: Text::new(),
            value: Vec::new(),
            major: target.catalog().dir.major,
        })
    }

    /// Looks at a row that was committed, be it deleted since or not.
    ///
    /// # Errors
    /// When the TOAST table cannot be read.
    pub(crate) fn check(&mut self, item: &[u8], version: &Version, at: At, found: &mut Found<'_, '_>) -> Result<()> {
        let natts = usize::from(version.header.natts());
        if version.inserted != Logged::Committed || natts > self.columns.len() {
            return Ok(());
        }
        let Some(tuple) = Tuple::parse(item) else { return Ok(()) };
        // Deleted rows may be older than what their columns are now.
        let is_live = version.deleted.is_not() && self.settled == Settled::All;
        let (mut offset, mut has_wide, mut has_external) = (0, false, false);
        for i in 0..natts {
            let is_null = tuple.bitmap.is_some_and(|bits| bits.get(i / 8).is_none_or(|byte| byte >> (i % 8) & 1 == 0));
            if is_null {
                if is_live && self.columns[i].is_not_null {
                    let message = format!("{} is null, but the column is NOT NULL", self.name(i));
                    found.certain("null", at, message, "queries that rely on the constraint return wrong rows");
                }
                continue;
            }
            let storage = self.columns[i].attribute.storage;
            let Some((stored, end)) = value_at(tuple.data, offset, storage) else {
                let message = format!(
                    "{} begins at byte {offset} of {} of the row, and is not all there",
                    self.name(i),
                    tuple.data.len()
                );
                found.certain("layout", at, message, "reading the row fails or returns other values");
                return Ok(());
            };
            has_wide |= storage.attlen < 0;
            has_external |= matches!(stored, Stored::Varlena(Varlena::External(_)));
            if self.columns[i].attribute.is_stored() {
                self.value(i, stored, storage, is_live, at, found)?;
            }
            offset = end;
        }
        if offset != tuple.data.len() {
            let message =
                format!("the values of the row end at byte {offset}, but the row at byte {}", tuple.data.len());
            found.certain("layout", at, message, "values of the row are taken for others");
        } else {
            flags(&version.header, has_wide, has_external, at, found);
        }
        Ok(())
    }

    fn name(&self, column: usize) -> String {
        format!("column {}", self.columns[column].attribute.attname)
    }

    fn value(
        &mut self,
        column: usize,
        stored: Stored<'_>,
        storage: Storage,
        is_live: bool,
        at: At,
        found: &mut Found<'_, '_>,
    ) -> Result<()> {
        match stored {
            Stored::Null | Stored::Missing => {}
            Stored::Fixed(bytes) => self.looked_at(column, bytes, at, found),
            Stored::Varlena(Varlena::Plain(bytes)) => self.looked_at(column, bytes, at, found),
            Stored::Varlena(Varlena::Compressed(size, method, packed)) => {
                if size > LONGEST {
                    found.skipped("values of more than 64 MB", 1);
                    return Ok(());
                }
                let is_known = method == 0 || method == 1 && self.major >= 14;
                let value = if is_known { varlena::unpack(size, method, packed) } else { None };
                let name = self.name(column);
                match value {
                    Some(value) => self.looked_at(column, &value, at, found),
                    None if !is_known => {
                        let message = format!("{name} is compressed by a method {method} that is not known");
                        found.certain("compressed", at, message, FAILS);
                    }
                    None => {
                        let message = format!("{name} is compressed, and cannot be unpacked to {size} bytes");
                        found.certain("compressed", at, message, FAILS);
                    }
                }
            }
            Stored::Varlena(Varlena::External(external)) => {
                self.external(column, &external, storage, is_live, at, found)?;
            }
        }
        Ok(())
    }

    fn external(
        &mut self,
        column: usize,
        external: &External,
        storage: Storage,
        is_live: bool,
        at: At,
        found: &mut Found<'_, '_>,
    ) -> Result<()> {
        let name = self.name(column);
        if storage.attlen != -1 {
            return Ok(());
        }
        if let Some(message) = self.toast.wrong_pointer(external, &name, self.major) {
            found.certain("toast_pointer", at, message, FAILS);
            return Ok(());
        }
        if self.settled != Settled::All {
            found.skipped("TOAST values of a server that was not stopped in order", 1);
            return Ok(());
        }
        if !is_live {
            // VACUUM may have removed the chunks of a deleted row before the row.
            return Ok(());
        }
        if external.unpacked() > LONGEST {
            found.skipped("values of more than 64 MB", 1);
            return Ok(());
        }
        let mut value = std::mem::take(&mut self.value);
        if self.toast.fetch(external, &name, at, &mut value, found)? {
            self.looked_at(column, &value, at, found);
        }
        value.shrink_to(1 << 20);
        self.value = value;
        Ok(())
    }

    fn looked_at(&mut self, column: usize, bytes: &[u8], at: At, found: &mut Found<'_, '_>) {
        let Column { base, typmod, printer, attribute, may_be_long, .. } = &self.columns[column];
        if let Some(bad) = scalars::wrong(*base, *typmod, self.is_utf8, bytes) {
            let message = format!("column {} has {}", attribute.attname, bad.what);
            match bad.is_likely {
                true => found.likely(CLASS, at, message, FAILS),
                false => found.certain(CLASS, at, message, FAILS),
            }
            return;
        }
        let Some(printer) = printer else { return };
        if bytes.len() > MOST_PRINTED {
            found.skipped("values of more than 1 MB of a type made of others", 1);
            return;
        }
        // Each such value says what its elements are.
        let element = bytes.get(8..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
        if *base == ANYARRAY && !element.is_some_and(|of| self.types.is_known(of) && !names_types(self.types, of)) {
            return;
        }
        if bytes.len() > LONGEST_OF_NUMBERS && *may_be_long {
            found.skipped("values of more than 2 kB of a type made of others with numbers in them", 1);
            return;
        }
        if self.types.is_value(*printer, bytes, &mut self.text) == Some(false) {
            let of = self.types.by_oid.get(&attribute.atttypid).map_or("", |t| &t.name);
            let message =
                format!("column {} has {} bytes that are no value of the type {of}", attribute.attname, bytes.len());
            found.certain(CLASS, at, message, FAILS);
        }
    }
}

/// Whether a type is made of values that name the types of their elements, which may be such that nobody can look at.
fn names_types(types: &Types, oid: u32) -> bool {
    oid != ANYARRAY && is_made(types, oid, |_, kind| *kind == Kind::AnyArray)
}

/// Whether a type is made of one of some others, or is one.
fn is_made(types: &Types, oid: u32, of: impl Fn(u32, &Kind) -> bool) -> bool {
    let (mut seen, mut next) = (HashSet::new(), vec![oid]);
    while let Some(oid) = next.pop() {
        let Some(kind) = types.by_oid.get(&oid).map(|t| &t.kind).filter(|_| seen.insert(oid)) else { continue };
        if of(oid, kind) {
            return true;
        }
        match kind {
            Kind::Array(of) | Kind::Domain(of) | Kind::Range(of) | Kind::Multirange(of) => next.push(*of),
            Kind::Composite(fields) => next.extend(fields.iter().map(|(of, _)| *of)),
            _ => {}
        }
    }
    false
}

/// What the row says of its values in its header.
fn flags(header: &TupleHeader, has_wide: bool, has_external: bool, at: At, found: &mut Found<'_, '_>) {
    let lacks = |bit: u16| header.t_infomask & bit == 0;
    if has_wide && lacks(HAS_VARWIDTH) {
        let message = "the row has values of variable width, but HEAP_HASVARWIDTH is not set".into();
        found.certain("tuple_header", at, message, "values of the row are taken for others");
    }
    if has_external && lacks(HAS_EXTERNAL) {
        let message = "the row has values in the TOAST table, but HEAP_HASEXTERNAL is not set".into();
        found.certain("tuple_header", at, message, "the chunks of its values stay when the row is deleted");
    }
}
