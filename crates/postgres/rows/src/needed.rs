//! Which files are needed to read rows: for those who have to fetch them first, such as from a backup.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use crate::catalog::{databases, is_loss, number, Catalog, FIRST_NORMAL_OID, PG_CLASS};
use crate::find::{database_catalog, find, partitions, WITH_ROWS};
use leadline_datadir::{DataDir, RelFile};
use leadline_errors::Result;

/// Files, and whether more may be needed: the catalog that names them is damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needed {
    /// Their numbers.
    pub files: BTreeSet<RelFile>,
    /// Of what the catalog of a database lost, nobody knows the number: all its files may be needed.
    pub is_certain: bool,
}

/// Those of the catalogs of all databases, as far as `pg_class` can be read, without which no other catalog can.
///
/// # Errors
/// When it is no data directory, or there are no databases.
pub fn files_of_catalogs(data_dir: &Path) -> Result<BTreeSet<RelFile>> {
    let dir = DataDir::salvage(data_dir)?;
    let mut found = BTreeSet::new();
    for database in &databases(&dir)? {
        let read = Catalog::without_classes(&dir, database).and_then(|mut catalog| {
            let rows = catalog.rows(PG_CLASS, &["oid", "reltablespace", "relfilenode", "relkind"])?;
            let own = rows.iter().filter(|row| number(&row[0]) < FIRST_NORMAL_OID && has_rows(number(&row[3])));
            let file = |row: &Vec<Option<Vec<u8>>>| {
                let [oid, space, filenode] = [0, 1, 2].map(|i| number(&row[i]));
                catalog.place(oid, space, filenode)
            };
            Ok(own.map(file).collect::<Vec<_>>())
        });
        match read {
            Ok(files) => found.extend(files),
            Err(e) if is_loss(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Those of one table and its partitions, with their TOAST tables.
///
/// # Errors
/// When there is no such table.
pub fn files_of_table(data_dir: &Path, table: Option<&str>, database: Option<&str>) -> Result<Needed> {
    let (mut catalog, oid) = find(data_dir, table, database)?;
    let mut wanted = HashSet::from([oid]);
    if catalog.classes[&oid].is_partitioned() {
        wanted.extend(partitions(&mut catalog, oid)?.into_iter().map(|class| class.oid));
    }
    files_of(&mut catalog, Some(&wanted))
}

/// Those of all relations with rows of one database.
///
/// # Errors
/// When there is no such database or its catalog cannot be read.
pub fn files_of_database(data_dir: &Path, database: &str) -> Result<Needed> {
    files_of(&mut database_catalog(data_dir, Some(database))?, None)
}

fn files_of(catalog: &mut Catalog, wanted: Option<&HashSet<u32>>) -> Result<Needed> {
    let rows = catalog.rows(PG_CLASS, &["oid", "reltoastrelid"])?;
    let toast: HashMap<u32, u32> = rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect();
    let mut all: HashSet<u32> = match wanted {
        Some(wanted) => wanted.iter().flat_map(|oid| [Some(*oid), toast.get(oid).copied()]).flatten().collect(),
        None => catalog.classes.keys().copied().collect(),
    };
    all.retain(|oid| catalog.classes.get(oid).is_some_and(|class| class.has_rows()));
    let file = |oid: &u32| catalog.classes.get(oid).map(|c| catalog.place(c.oid, c.reltablespace, c.relfilenode));
    let files = all.iter().filter_map(file).collect();
    Ok(Needed { files, is_certain: catalog.damage.lines().is_empty() && !catalog.classes.is_empty() })
}

fn has_rows(relkind: u32) -> bool {
    WITH_ROWS.iter().any(|kind| u32::from(*kind) == relkind)
}
