//! The names of databases, roles and relations as their catalogs say them now, for a capture that has no connection.
//!
//! Rows of transactions that had not ended, as far as the files tell, count too: they may have committed since pg_xact was written.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use leadline_datadir::{DataDir, FileName, GLOBAL_TABLESPACE};
use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::Fork;

use crate::catalog::{name, number, Catalog, Database, Values};

const PG_ATTRIBUTE: u32 = 1249;
const PG_CLASS: u32 = 1259;
const PG_AUTHID: u32 = 1260;
const PG_AM: u32 = 2601;
const PG_INDEX: u32 = 2610;
const PG_NAMESPACE: u32 = 2615;
/// Kinds of relations that have files, or partitions that have some.
const STORED: &[u8] = b"riStmpI";
/// A larger catalog is not read: that would take longer than most captures.
const MOST_BYTES: u64 = 256 << 20;

/// A relation, as in the table `relation` of a capture.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // columns of relation
pub struct RelationName {
    pub datid: u32,
    pub relid: u32,
    pub relfilenode: u32,
    pub tablespace: u32,
    pub schema: String,
    pub relname: String,
    pub relkind: char,
    pub am: String,
    /// The table that an index or a toast table is of; else itself.
    pub table_relid: u32,
    /// Of the main fork; -1 when its folder cannot be read.
    pub bytes: i64,
    pub reltuples: f32,
}

/// (oid, name) of every role. Nothing else of pg_authid is read.
///
/// # Errors
/// When the catalog cannot be read.
pub fn roles(dir: &DataDir) -> Result<Vec<(u32, String)>> {
    let mut catalog = Catalog::of_shared(dir)?;
    let rows = catalog.rows_maybe_visible(&[(PG_AUTHID, &["oid", "rolname"])])?;
    Ok(rows[0].iter().map(|row| (number(&row[0]), name(&row[1]))).collect())
}

/// Bytes of all files of a database in its tablespace; -1 when they cannot be counted.
pub fn database_bytes(dir: &DataDir, database: &Database) -> i64 {
    let sum = || -> Option<u64> {
        let folder = dir.folder(database.oid, database.dattablespace, 0).ok()?;
        fs::read_dir(folder).ok()?.map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
    };
    sum().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(-1)
}

/// The relations of one database that have files, with those that all databases share.
///
/// # Errors
/// When its catalog cannot be read, or is too large.
pub fn relations(dir: &DataDir, database: &Database) -> Result<Vec<RelationName>> {
    let mut catalog = Catalog::without_classes(dir, database)?;
    let size = |relid| catalog.heap(relid).map(|heap| u64::from(heap.blocks) * heap.block_size as u64);
    if size(PG_CLASS)?.max(size(PG_ATTRIBUTE)?) > MOST_BYTES {
        return Err(Error::new(Kind::Unsupported, "a catalog is too large to read from its file").at(&dir.root));
    }
    let of_class: &[&str] = &[
        "oid",
        "relname",
        "relnamespace",
        "relkind",
        "relfilenode",
        "reltablespace",
        "relam",
        "reltuples",
        "reltoastrelid",
        "relisshared",
    ];
    let classes = catalog.rows_maybe_visible(&[(PG_CLASS, of_class)])?.remove(0);
    catalog.know_files(classes.iter().map(|row| (number(&row[0]), number(&row[5]), number(&row[4]))));
    let mut found = catalog.rows_maybe_visible(&[
        (PG_NAMESPACE, &["oid", "nspname"]),
        (PG_AM, &["oid", "amname"]),
        (PG_INDEX, &["indexrelid", "indrelid"]),
    ])?;
    let index: HashMap<u32, u32> = found[2].iter().map(|row| (number(&row[0]), number(&row[1]))).collect();
    let names = |rows: Vec<Values>| -> HashMap<u32, String> {
        rows.iter().map(|row| (number(&row[0]), catalog.name(&row[1]))).collect()
    };
    let (methods, schemas) = (names(found.remove(1)), names(found.remove(0)));
    let toast_of: HashMap<u32, u32> =
        classes.iter().map(|row| (number(&row[8]), number(&row[0]))).filter(|(toast, _)| *toast != 0).collect();
    let mut sizes = Sizes::default();
    // Of a row whose update had not ended there are two: the later one counts.
    let mut made: HashMap<u32, RelationName> = HashMap::new();
    for row in classes.iter().filter(|row| STORED.contains(&(number(&row[3]) as u8))) {
        let (relid, is_shared) = (number(&row[0]), number(&row[9]) != 0);
        let (datid, own) = if is_shared { (0, GLOBAL_TABLESPACE) } else { (database.oid, database.dattablespace) };
        let tablespace = Some(number(&row[5])).filter(|space| *space != 0).unwrap_or(own);
        let relfilenode = catalog.file_number(relid, tablespace, number(&row[4]));
        let table = index.get(&relid).copied().unwrap_or(relid);
        let bytes = match relfilenode {
            0 => 0,
            file => dir.folder(datid, own, tablespace).map_or(-1, |folder| sizes.of(folder, file)),
        };
        let schema = number(&row[2]);
        made.insert(
            relid,
            RelationName {
                datid,
                relid,
                relfilenode,
                tablespace,
                schema: schemas.get(&schema).cloned().unwrap_or_else(|| format!("schema {schema}")),
                relname: catalog.name(&row[1]),
                relkind: char::from(number(&row[3]) as u8),
                am: methods.get(&number(&row[6])).cloned().unwrap_or_default(),
                table_relid: toast_of.get(&table).copied().unwrap_or(table),
                bytes,
                reltuples: f32::from_bits(number(&row[7])),
            },
        );
    }
    let mut made: Vec<RelationName> = made.into_values().collect();
    made.sort_by_key(|relation| relation.relid);
    Ok(made)
}

/// Bytes of the main forks in each folder.
#[derive(Default)]
struct Sizes(HashMap<PathBuf, HashMap<u32, i64>>);

impl Sizes {
    fn of(&mut self, folder: PathBuf, file: u32) -> i64 {
        let known = self.0.entry(folder).or_insert_with_key(|folder| sizes(folder));
        known.get(&file).copied().unwrap_or(-1)
    }
}

/// What can be read of it.
fn sizes(folder: &Path) -> HashMap<u32, i64> {
    let mut sizes = HashMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let named = entry.file_name().to_str().and_then(FileName::parse).filter(|name| name.fork == Fork::Main);
        if let (Some(name), Ok(about)) = (named, entry.metadata()) {
            *sizes.entry(name.filenode).or_default() += i64::try_from(about.len()).unwrap_or(0);
        }
    }
    sizes
}
