//! What the catalog says of an index.

use std::collections::HashMap;

use leadline_errors::Result;
use leadline_rows::catalog::{number, oids, Catalog, Values};

const PG_INDEX: u32 = 2610;

/// An index, as pg_index describes it.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Index {
    pub oid: u32,
    /// Oid of its table.
    pub table: u32,
    /// Columns of its tuples, those of INCLUDE too.
    pub natts: usize,
    pub is_unique: bool,
    /// Since 15, nulls are equal to each other.
    pub nulls_not_distinct: bool,
    /// Queries may use it: it has all rows. Else CREATE INDEX CONCURRENTLY has not ended, or failed.
    pub is_valid: bool,
    /// attnum of each column in its table; 0: an expression.
    pub columns: Vec<i16>,
    /// It has not all rows of the table.
    pub is_partial: bool,
    /// What it is ordered by: the first of its columns.
    pub keys: Vec<Key>,
}

/// A column that an index is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Key {
    pub opclass: u32,
    /// Oid of the first support function of the operator class for its own type: of a btree, the one that compares. 0: not known.
    pub function: u32,
    /// 0: its type has none.
    pub collation: u32,
    pub is_descending: bool,
    pub nulls_first: bool,
}

impl Index {
    /// All indexes of a database, by their oids.
    ///
    /// # Errors
    /// When the catalogs cannot be read.
    pub fn all(catalog: &mut Catalog) -> Result<HashMap<u32, Index>> {
        let mut columns = vec![
            "indexrelid",
            "indrelid",
            "indnatts",
            "indnkeyatts",
            "indisunique",
            "indisvalid",
            "indkey",
            "indcollation",
            "indclass",
            "indoption",
            "indpred",
        ];
        if catalog.dir.major >= 15 {
            columns.push("indnullsnotdistinct");
        }
        let rows = catalog.rows(PG_INDEX, &columns)?;
        let functions = catalog.support_functions(1)?;
        Ok(rows.iter().map(|row| Index::of(row, &functions)).map(|index| (index.oid, index)).collect())
    }

    fn of(row: &Values, functions: &HashMap<u32, u32>) -> Index {
        let (collations, classes, options) = (oids(&row[7]), oids(&row[8]), int2s(&row[9]));
        let key = |i: usize| {
            let opclass = classes.get(i).copied().unwrap_or(0);
            let option = options.get(i).copied().unwrap_or(0);
            Key {
                opclass,
                function: functions.get(&opclass).copied().unwrap_or(0),
                collation: collations.get(i).copied().unwrap_or(0),
                is_descending: option & 1 != 0,
                nulls_first: option & 2 != 0,
            }
        };
        let is_true = |i: usize| row.get(i).is_some_and(|value| number(value) & 0xff != 0);
        Index {
            oid: number(&row[0]),
            table: number(&row[1]),
            natts: number(&row[2]) as u16 as usize,
            is_unique: is_true(4),
            nulls_not_distinct: is_true(11),
            is_valid: is_true(5),
            columns: int2s(&row[6]),
            is_partial: row[10].is_some(),
            keys: (0..usize::from(number(&row[3]) as u16)).map(key).collect(),
        }
    }
}

/// The elements of an int2vector: behind dimensions, flags, element type, length and lower bound.
fn int2s(value: &Option<Vec<u8>>) -> Vec<i16> {
    let elements = value.as_deref().and_then(|b| b.get(20..)).unwrap_or_default();
    elements.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect()
}
