//! Rows of the catalog against each other: what every relation has, and what is there only once.
//!
//! Only of a server that ended in order, and where the catalogs that are compared have no damaged page: else rows may only seem to be
//! missing.

use std::collections::HashSet;

use leadline_errors::Result;
use leadline_page::postgres::Kind as PageKind;
use leadline_rows::catalog::number;
use leadline_rows::heap_file::{tuples, Tuple};
use leadline_rows::tuple::{deform, Storage, Stored};
use leadline_rows::varlena::Varlena;
use leadline_rows::xact::Xacts;

use crate::blocks::Settled;
use crate::heap::found::{At, Found};
use crate::heap::xacts::{precedes, FIRST_NORMAL};
use crate::target::Target;

const PG_TYPE: u32 = 1247;
const PG_ATTRIBUTE: u32 = 1249;
const PG_CLASS: u32 = 1259;
const PG_INDEX: u32 = 2610;
const OID: u32 = 26;
/// What users make begins here.
const FIRST_NORMAL_OID: u32 = 16384;
/// Keys that are remembered; of more rows it is not known whether one is there twice.
const MOST_KEYS: usize = 8 << 20;
/// relkind, src/include/catalog/pg_class.h
const RELKINDS: &[u8] = b"rimStvcfpI";
const CLASS: &str = "catalog";
const NOT_FOUND: &str = "the relation cannot be used, or only in part";
const TWICE: &str = "which of both rows counts is a matter of chance";

/// Which tables are looked at here.
pub(crate) fn is_looked_at(target: &Target<'_>) -> bool {
    let oid = target.class.oid;
    let has_oid = target.attributes().first().is_some_and(|a| a.attname == "oid" && a.atttypid == OID);
    oid < FIRST_NORMAL_OID && (has_oid || matches!(oid, PG_ATTRIBUTE | PG_INDEX))
}

/// Looks at the rows of one of these catalogs.
pub(crate) fn check(target: &Target<'_>, found: &mut Found<'_, '_>) -> Result<()> {
    if target.of.settled != Settled::All {
        return Ok(());
    }
    let is_compared = matches!(target.class.oid, PG_TYPE | PG_ATTRIBUTE | PG_CLASS | PG_INDEX);
    for oid in [PG_TYPE, PG_ATTRIBUTE, PG_CLASS, PG_INDEX].into_iter().filter(|_| is_compared) {
        if !is_whole(target, oid)? {
            found.skipped("catalogs with damaged pages", 1);
            return Ok(());
        }
    }
    let Some(mut rows) = Rows::of(target) else { return Ok(()) };
    let storages: Vec<Storage> = target.attributes().iter().map(|a| a.storage).collect();
    let mut xacts = Xacts::new(&target.catalog().dir);
    let mut blocks = target.blocks()?;
    let count = blocks.count();
    blocks.each(0..count, |page| {
        let mut values = Vec::new();
        for (item, bytes) in tuples(page.bytes).into_iter().flatten() {
            let Some(tuple) = Tuple::parse(bytes) else { continue };
            if xacts.status(&tuple.header).is_visible()
                && deform(tuple.data, tuple.bitmap, tuple.natts(), &storages, &mut values).is_some()
            {
                rows.row(&values, At { block: page.block, item }, found);
            }
        }
        Ok(!found.is_stopped())
    })
}

/// Whether all pages of a catalog can be read.
fn is_whole(target: &Target<'_>, oid: u32) -> Result<bool> {
    let Some(catalog) = target.other(oid) else { return Ok(false) };
    let mut blocks = catalog.blocks()?;
    let (count, mut is_whole) = (blocks.count(), true);
    blocks.each(0..count, |page| {
        is_whole &= page.is_settled && matches!(page.kind, PageKind::Heap | PageKind::New);
        Ok(is_whole)
    })?;
    Ok(is_whole)
}

/// What was met so far of a catalog.
struct Rows<'a> {
    target: Target<'a>,
    places: Vec<usize>,
    seen: HashSet<(u32, u32)>,
    /// Relations that were told of: one that is missing has many columns.
    told: HashSet<u32>,
}

impl<'a> Rows<'a> {
    fn of(target: &Target<'a>) -> Option<Rows<'a>> {
        let columns: &[&str] = match target.class.oid {
            PG_CLASS => {
                &["oid", "relkind", "relam", "reltoastrelid", "relnatts", "reltype", "relfrozenxid", "relminmxid"]
            }
            PG_ATTRIBUTE => &["attrelid", "attnum", "atttypid", "attlen", "attalign", "attisdropped"],
            PG_TYPE => &["oid", "typrelid", "typelem", "typbasetype"],
            PG_INDEX => &["indexrelid", "indrelid", "indnatts"],
            _ => &["oid"],
        };
        let place = |column: &&str| target.attributes().iter().position(|a| a.attname == *column && !a.attisdropped);
        let places = columns.iter().map(place).collect::<Option<Vec<_>>>()?;
        Some(Rows { target: *target, places, seen: HashSet::new(), told: HashSet::new() })
    }

    fn row(&mut self, values: &[Stored<'_>], at: At, found: &mut Found<'_, '_>) {
        let value = |i: &usize| match values.get(*i) {
            Some(Stored::Fixed(b) | Stored::Varlena(Varlena::Plain(b))) => number(&Some(b.to_vec())),
            _ => 0,
        };
        let row: Vec<u32> = self.places.iter().map(value).collect();
        let wrong = match (self.target.class.oid, &row[..]) {
            (PG_CLASS, [oid, relkind, relam, toast, natts, of, xid, multi]) => self
                .class(*oid, *relkind as u8, *relam, *toast, *natts as i16, *of)
                .or_else(|| self.thresholds(*oid, *xid, *multi)),
            (PG_ATTRIBUTE, [relid, attnum, of, attlen, attalign, is_dropped]) => {
                self.attribute(*relid, *attnum as i16, *of, *attlen as i16, *attalign as u8, *is_dropped != 0)
            }
            (PG_TYPE, [oid, relid, element, base]) => self.type_of(*oid, *relid, *element, *base),
            (PG_INDEX, [oid, table, natts]) => self.index(*oid, *table, *natts as i16),
            (_, [oid]) if self.is_twice((*oid, 0)) => Some((format!("there are two rows with the oid {oid}"), TWICE)),
            _ => None,
        };
        if let Some((message, means)) = wrong {
            found.certain(CLASS, at, message, means);
        }
    }

    /// Whether a key was met before.
    fn is_twice(&mut self, key: (u32, u32)) -> bool {
        if self.seen.len() >= MOST_KEYS {
            return self.seen.contains(&key);
        }
        !self.seen.insert(key)
    }

    fn relkind(&self, oid: u32) -> Option<u8> {
        self.target.of.catalog.classes.get(&oid).map(|class| class.relkind)
    }

    fn has_type(&self, oid: u32) -> bool {
        let types = &self.target.of.rows.types.by_oid;
        // None at all: they could not be read.
        types.is_empty() || types.contains_key(&oid)
    }

    fn class(&mut self, oid: u32, relkind: u8, relam: u32, toast: u32, natts: i16, of: u32) -> Wrong {
        if self.is_twice((oid, 0)) {
            return Some((format!("there are two rows with the oid {oid}"), TWICE));
        }
        if !RELKINDS.contains(&relkind) {
            return Some((format!("relation {oid} has the relkind {relkind}, which is not known"), NOT_FOUND));
        }
        if matches!(relkind, b'r' | b'i' | b't' | b'm') && relam == 0 {
            return Some((format!("relation {oid} has no access method"), NOT_FOUND));
        }
        let methods = &self.target.of.rows.access_methods;
        if relam != 0 && !methods.is_empty() && !methods.contains(&relam) {
            return Some((format!("relation {oid} has the access method {relam}, which there is none of"), NOT_FOUND));
        }
        if toast != 0 && self.relkind(toast) != Some(b't') {
            return Some((
                format!("relation {oid} has the TOAST table {toast}, which there is none of"),
                "values stored outside of their rows cannot be read",
            ));
        }
        let columns = self.target.of.attributes.get(&oid).map_or(0, Vec::len);
        if usize::try_from(natts) != Ok(columns) {
            return Some((format!("relation {oid} has {natts} columns, but pg_attribute has {columns}"), NOT_FOUND));
        }
        (of != 0 && !self.has_type(of))
            .then(|| (format!("relation {oid} has the row type {of}, which there is none of"), NOT_FOUND))
    }

    /// From which transactions on rows of a relation may not be frozen: those that there are.
    fn thresholds(&self, oid: u32, xid: u32, multi: u32) -> Wrong {
        let (before, after) = self.target.of.rows.before.zip(self.target.of.rows.after)?;
        const MEANS: &str = "VACUUM fails on the relation; its rows are lost when transaction IDs wrap around";
        if xid >= FIRST_NORMAL && (precedes(xid, before.oldest_xid) || precedes(after.next_xid, xid)) {
            let (from, to) = (before.oldest_xid, after.next_xid);
            return Some((
                format!("the relfrozenxid of relation {oid} is {xid}, but transactions go from {from} to {to}"),
                MEANS,
            ));
        }
        if multi > 0 && (precedes(multi, before.oldest_multi) || precedes(after.next_multi, multi)) {
            let (from, to) = (before.oldest_multi, after.next_multi);
            return Some((
                format!("the relminmxid of relation {oid} is {multi}, but multixacts go from {from} to {to}"),
                MEANS,
            ));
        }
        None
    }

    fn attribute(&mut self, relid: u32, attnum: i16, of: u32, attlen: i16, attalign: u8, is_dropped: bool) -> Wrong {
        if self.is_twice((relid, attnum as u16 as u32)) {
            return Some((format!("there are two rows for column {attnum} of relation {relid}"), TWICE));
        }
        if self.relkind(relid).is_none() {
            return self
                .told
                .insert(relid)
                .then(|| (format!("column {attnum} is of relation {relid}, which there is none of"), NOT_FOUND));
        }
        if is_dropped || self.target.of.rows.types.by_oid.is_empty() {
            return None;
        }
        let Some(found) = self.target.of.rows.types.by_oid.get(&of) else {
            return Some((
                format!("column {attnum} of relation {relid} has the type {of}, which there is none of"),
                NOT_FOUND,
            ));
        };
        let (len, align) = (found.storage.attlen, found.storage.attalign);
        ((attlen, attalign) != (len, align)).then(|| {
            let (ours, theirs) = (char::from(attalign), char::from(align));
            let message = format!("column {attnum} of relation {relid} has length {attlen} and alignment {ours}, but its type has {len} and {theirs}");
            (message, "values of rows are taken for others")
        })
    }

    fn type_of(&mut self, oid: u32, relid: u32, element: u32, base: u32) -> Wrong {
        if self.is_twice((oid, 0)) {
            return Some((format!("there are two rows with the oid {oid}"), TWICE));
        }
        if relid != 0 && self.relkind(relid).is_none() {
            return Some((format!("type {oid} is of relation {relid}, which there is none of"), NOT_FOUND));
        }
        let other = [element, base].into_iter().find(|other| *other != 0 && !self.has_type(*other))?;
        Some((
            format!("type {oid} is made of type {other}, which there is none of"),
            "values of the type cannot be read",
        ))
    }

    fn index(&mut self, oid: u32, table: u32, natts: i16) -> Wrong {
        if self.is_twice((oid, 0)) {
            return Some((format!("there are two rows for index {oid}"), TWICE));
        }
        if !matches!(self.relkind(oid), Some(b'i' | b'I')) {
            return Some((format!("index {oid} of relation {table} is not in pg_class"), "the table cannot be used"));
        }
        if !matches!(self.relkind(table), Some(b'r' | b'm' | b't' | b'p')) {
            return Some((format!("index {oid} is of table {table}, which there is none of"), NOT_FOUND));
        }
        let found = self.target.of.catalog.classes.get(&oid).map_or(0, |class| class.relnatts);
        (found != natts).then(|| (format!("index {oid} has {natts} columns, but {found} in pg_class"), NOT_FOUND))
    }
}

type Wrong = Option<(String, &'static str)>;
