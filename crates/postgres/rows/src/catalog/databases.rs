//! The databases of a data directory.

use std::collections::HashMap;

use super::{is_loss, name, number, Catalog, Values, PG_DATABASE};
use crate::encoding::UTF8;
use leadline_datadir::{DataDir, DEFAULT_TABLESPACE};
use leadline_errors::Result;

const TEMPLATE1: u32 = 1;
pub(super) const DATABASE: [&str; 6] = ["oid", "datname", "datistemplate", "dattablespace", "encoding", "datconnlimit"];
/// What `datconnlimit` is while a database is being dropped.
const INVALID_DATABASE: i32 = -2;

/// A database.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Database {
    pub oid: u32,
    pub datname: String,
    pub datistemplate: bool,
    pub dattablespace: u32,
    /// Of its texts, as src/include/mb/pg_wchar.h numbers them.
    pub encoding: u32,
    /// The server was stopped while it dropped it: parts of it may be gone.
    pub is_half_dropped: bool,
    /// Only its folder is known: its number stands for its name.
    pub is_guess: bool,
}

/// The databases of a data directory. Where the catalog that lists them is lost, those that have a folder, named by their numbers.
///
/// # Errors
/// When there are none, or files may not be read.
pub fn databases(dir: &DataDir) -> Result<Vec<Database>> {
    match Catalog::of_shared(dir).and_then(|mut catalog| catalog.rows(PG_DATABASE, &DATABASE)) {
        Ok(rows) if !rows.is_empty() => Ok(sorted(&rows)),
        Ok(_) => by_folders(dir),
        Err(e) if is_loss(&e) => by_folders(dir).map_err(|_| e),
        Err(e) => Err(e),
    }
}

fn by_folders(dir: &DataDir) -> Result<Vec<Database>> {
    let database = |oid: u32| Database {
        oid,
        datname: oid.to_string(),
        datistemplate: oid == TEMPLATE1,
        dattablespace: DEFAULT_TABLESPACE,
        encoding: UTF8,
        is_half_dropped: false,
        is_guess: true,
    };
    Ok(dir.database_folders()?.into_iter().map(database).collect())
}

/// The same, with those that a transaction made that had not ended, as far as the files tell.
///
/// # Errors
/// When its catalog cannot be read.
pub fn databases_maybe(dir: &DataDir) -> Result<Vec<Database>> {
    let rows = Catalog::of_shared(dir)?.rows_maybe_visible(&[(PG_DATABASE, &DATABASE)])?;
    Ok(sorted(&rows[0]))
}

fn sorted(rows: &[Values]) -> Vec<Database> {
    let database = |r: &Values| Database {
        oid: number(&r[0]),
        datname: name(&r[1]),
        datistemplate: number(&r[2]) != 0,
        dattablespace: number(&r[3]),
        encoding: number(&r[4]),
        is_half_dropped: number(&r[5]) as i32 == INVALID_DATABASE,
        is_guess: false,
    };
    // Of one database there are two rows where the status of the older one is not known: the later one counts.
    let found: HashMap<u32, Database> = rows.iter().map(database).map(|d| (d.oid, d)).collect();
    let mut all: Vec<Database> = found.into_values().collect();
    all.sort_by(|a, b| (&a.datname, a.oid).cmp(&(&b.datname, b.oid)));
    all
}
