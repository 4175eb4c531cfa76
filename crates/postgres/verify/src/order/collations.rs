//! What collations say of the order of texts: those that compare bytes, and those that only tell equal from not equal.

use std::collections::HashMap;

use leadline_errors::Result;
use leadline_rows::catalog::{name, number, Catalog, Values};

const PG_DATABASE: u32 = 1262;
const PG_COLLATION: u32 = 3456;
/// The default of the database.
const DEFAULT: u32 = 100;
const C: u32 = 950;
const POSIX: u32 = 951;

#[derive(Debug, Clone)]
struct Collation {
    name: String,
    is_bytewise: bool,
    is_deterministic: bool,
}

/// The collations of a database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collations(HashMap<u32, Collation>);

impl Collations {
    /// # Errors
    /// When the catalogs cannot be read.
    pub(crate) fn read(catalog: &mut Catalog) -> Result<Collations> {
        let columns = ["oid", "collname", "collprovider", "collisdeterministic", "collcollate"];
        let rows = catalog.rows(PG_COLLATION, &columns)?;
        let mut all: HashMap<u32, Collation> = rows.iter().map(Collations::of).collect();
        let mut columns = vec!["oid", "datcollate"];
        if catalog.dir.major >= 15 {
            columns.push("datlocprovider");
        }
        let database = catalog.database;
        let rows = catalog.rows(PG_DATABASE, &columns)?;
        if let Some(row) = rows.iter().find(|row| number(&row[0]) == database) {
            // A `name` until 14, a text since.
            let locale = name(&row[1]);
            let provider = row.get(2).map_or(b'c', |value| number(value) as u8);
            let is_bytewise = is_bytewise(provider, &locale);
            all.insert(DEFAULT, Collation { name: format!("default ({locale})"), is_bytewise, is_deterministic: true });
        }
        Ok(Collations(all))
    }

    fn of(row: &Values) -> (u32, Collation) {
        let is_bytewise = is_bytewise(number(&row[2]) as u8, &name(&row[4]));
        let is_deterministic = number(&row[3]) & 0xff != 0;
        (number(&row[0]), Collation { name: name(&row[1]), is_bytewise, is_deterministic })
    }

    #[cfg(test)]
    pub(super) fn add(&mut self, oid: u32, name: &str, is_bytewise: bool, is_deterministic: bool) {
        self.0.insert(oid, Collation { name: name.into(), is_bytewise, is_deterministic });
    }

    pub(super) fn is_bytewise(&self, oid: u32) -> bool {
        matches!(oid, C | POSIX) || self.0.get(&oid).is_some_and(|collation| collation.is_bytewise)
    }

    pub(super) fn is_deterministic(&self, oid: u32) -> bool {
        self.0.get(&oid).is_some_and(|collation| collation.is_deterministic)
    }

    pub(super) fn name(&self, oid: u32) -> String {
        self.0.get(&oid).map_or_else(|| oid.to_string(), |collation| collation.name.clone())
    }
}

/// The builtin provider of 17 and later compares bytes whatever its locale (pg_locale_builtin.c); that of the C library does for C.
fn is_bytewise(provider: u8, locale: &str) -> bool {
    provider == b'b' || provider == b'c' && matches!(locale, "C" | "POSIX")
}
