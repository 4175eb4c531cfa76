//! What the catalog says of tables beside what the frame knows, read once for a database.

use std::collections::{HashMap, HashSet};

use leadline_datadir::{DataDir, Transactions};
use leadline_errors::Result;
use leadline_rows::catalog::{number, Attribute, Catalog};
use leadline_rows::value::Types;

const PG_CLASS: u32 = 1259;
const PG_SEQUENCE: u32 = 2224;
const PG_AM: u32 = 2601;
const PG_CONSTRAINT: u32 = 2606;
/// The major from which on NOT NULL constraints have rows in pg_constraint, and need not be valid.
const NAMED_NOT_NULL: u32 = 18;

/// What pg_class says of a relation with rows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Thresholds {
    /// Its TOAST table; 0: none.
    pub toast: u32,
    /// No row has an unfrozen transaction before it; 0: not known.
    pub frozen_xid: u32,
    /// No row has a multixact before it; 0: not known.
    pub min_multi: u32,
}

/// What pg_sequence says of a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub min: i64,
    pub max: i64,
}

/// Of one database.
#[derive(Default)]
pub(crate) struct About {
    pub thresholds: HashMap<u32, Thresholds>,
    pub types: Types,
    pub sequences: HashMap<u32, Bounds>,
    /// None at all: they could not be read.
    pub access_methods: HashSet<u32>,
    /// Columns whose NOT NULL constraint was never checked on the rows that were there.
    pub unchecked: HashSet<(u32, u16)>,
    /// It is known which those are.
    pub has_constraints: bool,
    /// Texts are UTF-8.
    pub is_utf8: bool,
    /// Read before it was known which pages are settled: for the oldest ones.
    pub before: Option<Transactions>,
    /// Read after it: for the next ones.
    pub after: Option<Transactions>,
}

impl About {
    /// Reads the catalogs.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn of(catalog: &mut Catalog, attributes: &HashMap<u32, Vec<Attribute>>) -> Result<About> {
        let mut about = About {
            is_utf8: catalog.is_utf8(),
            before: catalog.dir.transactions,
            has_constraints: true,
            ..About::default()
        };
        about.after = DataDir::open(&catalog.dir.root)?.transactions;
        let columns = ["oid", "reltoastrelid", "relfrozenxid", "relminmxid"];
        for row in catalog.rows(PG_CLASS, &columns)? {
            let [oid, toast, frozen_xid, min_multi] = [0, 1, 2, 3].map(|i| number(&row[i]));
            about.thresholds.insert(oid, Thresholds { toast, frozen_xid, min_multi });
        }
        // Where one of the others is damaged, less is compared.
        for row in catalog.rows(PG_SEQUENCE, &["seqrelid", "seqmin", "seqmax"]).unwrap_or_default() {
            if let (Some(min), Some(max)) = (i64_of(&row[1]), i64_of(&row[2])) {
                about.sequences.insert(number(&row[0]), Bounds { min, max });
            }
        }
        let methods = catalog.rows(PG_AM, &["oid"]).unwrap_or_default();
        about.access_methods = methods.iter().map(|row| number(&row[0])).collect();
        if catalog.dir.major >= NAMED_NOT_NULL {
            let rows = catalog.rows(PG_CONSTRAINT, &["conrelid", "contype", "convalidated", "conkey"]);
            about.has_constraints = rows.is_ok();
            for row in rows.unwrap_or_default() {
                let is_unchecked = number(&row[1]) as u8 == b'n' && number(&row[2]) as u8 == 0;
                let key = row[3].as_deref().and_then(|b| b.get(20..)?.first_chunk());
                if let (true, Some(key)) = (is_unchecked, key) {
                    about.unchecked.insert((number(&row[0]), u16::from_le_bytes(*key)));
                }
            }
        }
        let used: HashSet<u32> = attributes.values().flatten().map(|a| a.atttypid).filter(|oid| *oid != 0).collect();
        let used: Vec<u32> = used.into_iter().collect();
        about.types = catalog.types(&used).unwrap_or_default();
        Ok(about)
    }
}

fn i64_of(value: &Option<Vec<u8>>) -> Option<i64> {
    value.as_deref()?.first_chunk().map(|b| i64::from_le_bytes(*b))
}
