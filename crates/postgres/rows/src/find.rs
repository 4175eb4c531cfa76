//! Which relation is meant: by its name in a data directory, or by its file.

use std::collections::HashMap;
use std::path::Path;

use crate::catalog::{databases, is_loss, number, Catalog, Class, Database, Values};
use crate::encoding::UTF8;
use crate::names::RelationName;
use leadline_datadir::{is_in_tar, DataDir, GLOBAL_TABLESPACE};
use leadline_errors::{Error, Kind, Result};

const PG_INHERITS: u32 = 2611;
/// Kinds of relations with rows: tables, materialised views, toast tables, sequences.
pub(crate) const WITH_ROWS: [u8; 4] = [b'r', b'm', b't', b'S'];
/// Partitions of partitions: no deeper than this.
const DEEPEST: usize = 64;

/// The catalog of the database that is meant, and the oid of the relation: see [`crate::RowScan::open`].
pub(crate) fn find(path: &Path, relation: Option<&str>, database: Option<&str>) -> Result<(Catalog, u32)> {
    if path.is_file() {
        if relation.is_some() || database.is_some() {
            is_in_tar(path).map_or(Ok(()), Err)?;
            let message = "a relation file already identifies its relation and database";
            return Err(Error::new(Kind::Usage, message)
                .hint("give only the file, or use: leadline rows DATA_DIR TABLE --database NAME")
                .at(path));
        }
        return by_file(path);
    }
    let (mut catalog, datname) = named_catalog(path, database)?;
    let Some(relation) = relation else {
        return Err(Error::new(Kind::Usage, "no table given")
            .detail(format!("tables in database {datname}: {}", some_names(&catalog)))
            .hint("use: leadline rows DATA_DIR [SCHEMA.]TABLE"));
    };
    let oid = by_name(&mut catalog, relation, &datname)?;
    Ok((catalog, oid))
}

/// The names of the databases of a data directory, which of them are templates, and their oids; of damaged ones what can be found.
///
/// # Errors
/// When there are none, or files may not be read.
pub fn database_names(data_dir: &Path) -> Result<Vec<(String, bool, u32)>> {
    let found = databases(&DataDir::salvage(data_dir)?)?;
    Ok(found.into_iter().map(|database| (database.datname, database.datistemplate, database.oid)).collect())
}

/// The catalog of a database; without a name, of the only one that is no template.
pub(crate) fn database_catalog(data_dir: &Path, database: Option<&str>) -> Result<Catalog> {
    named_catalog(data_dir, database).map(|(catalog, _)| catalog)
}

/// The same, and how the database is called.
fn named_catalog(data_dir: &Path, database: Option<&str>) -> Result<(Catalog, String)> {
    let dir = DataDir::salvage(data_dir)?;
    let database = choose(&dir, databases(&dir)?, database)?;
    Ok((open(&dir, &database)?, database.datname))
}

fn open(dir: &DataDir, database: &Database) -> Result<Catalog> {
    Catalog::open(dir, database).map_err(|e| match database.is_half_dropped {
        true => e.hint(format!("the server was stopped while it dropped database {}", database.datname)),
        false => e,
    })
}

fn choose(dir: &DataDir, all: Vec<Database>, wanted: Option<&str>) -> Result<Database> {
    let names = |all: &[Database]| all.iter().map(|d| d.datname.clone()).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = wanted {
        let there = names(&all);
        return all.into_iter().find(|d| d.datname == wanted).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("no database named {wanted}"))
                .detail(format!("existing databases: {there}"))
                .at(&dir.root)
        });
    }
    let is_whole =
        |d: &Database| !d.is_half_dropped && dir.folder(d.oid, d.dattablespace, 0).is_ok_and(|folder| folder.is_dir());
    let mut own: Vec<Database> = all.into_iter().filter(|d| !d.datistemplate && is_whole(d)).collect();
    match own.len() {
        1 => Ok(own.remove(0)),
        n => Err(Error::new(Kind::Usage, format!("the data directory has {n} databases"))
            .detail(format!("databases: {}", names(&own)))
            .hint("choose one with --database")
            .at(&dir.root)),
    }
}

fn some_names(catalog: &Catalog) -> String {
    let own = |c: &&Class| c.relkind == b'r' && c.schema != "pg_catalog" && c.schema != "information_schema";
    some(catalog.classes.values().filter(own)).unwrap_or_else(|| "none of its own".into())
}

/// The names of the first few.
fn some<'a>(classes: impl Iterator<Item = &'a Class>) -> Option<String> {
    let mut names: Vec<_> = classes.map(|c| format!("{}.{}", c.schema, c.relname)).collect();
    names.sort();
    match names.len() {
        0 => None,
        n if n > 10 => Some(format!("{} and {} more", names[..10].join(", "), n - 10)),
        _ => Some(names.join(", ")),
    }
}

/// The tables that have the rows of a partitioned one, by their names.
pub(crate) fn partitions(catalog: &mut Catalog, of: u32) -> Result<Vec<Class>> {
    // One that is being detached concurrently is none of the table any more.
    let with_pending = catalog.dir.major >= 14;
    let columns = ["inhrelid", "inhparent", "inhdetachpending"];
    let rows = catalog.rows(PG_INHERITS, if with_pending { &columns } else { &columns[..2] })?;
    let is_attached = |row: &&Values| row.get(2).is_none_or(|pending| number(pending) == 0);
    let parent: HashMap<u32, u32> =
        rows.iter().filter(is_attached).map(|row| (number(&row[0]), number(&row[1]))).collect();
    // Damaged rows may name each other.
    let above = |oid| std::iter::successors(Some(oid), |oid| parent.get(oid).copied()).take(DEEPEST);
    let has_rows = |c: &&Class| c.has_rows() || c.is_foreign();
    let found = catalog.classes.values().filter(has_rows).filter(|c| above(c.oid).any(|oid| oid == of));
    let mut found: Vec<Class> = found.cloned().collect();
    found.sort_by(|a, b| (&a.schema, &a.relname).cmp(&(&b.schema, &b.relname)));
    Ok(found)
}

fn by_name(catalog: &mut Catalog, wanted: &str, database: &str) -> Result<u32> {
    let name = RelationName::parse(wanted);
    if name.among(catalog.classes.values(), database).is_empty() {
        catalog.look_for_lost_classes()?;
    }
    let here = || catalog.classes.values().filter(|c| c.has_rows() || c.is_partitioned());
    let mut found = name.among(here(), database);
    if found.len() > 1 {
        // As the default search_path: the catalog first, then public.
        for first in ["pg_catalog", "public"] {
            if let Some(one) = found.iter().find(|c| c.schema == first) {
                found = vec![one];
                break;
            }
        }
    }
    match found[..] {
        [one] => Ok(one.oid),
        [] => {
            if let Some(other) = name.among(catalog.classes.values(), database).first() {
                let kind = match other.relkind {
                    b'v' => "a view",
                    b'i' | b'I' => "an index",
                    b'f' => "a foreign table",
                    _ => "a relation without rows",
                };
                return Err(Error::new(Kind::Usage, format!("{wanted} stores no rows: it is {kind}")));
            }
            let (schema, relname) = name.schema_and_name();
            let near = here()
                .filter(|c| schema.is_none_or(|s| distance(s, &c.schema) <= 2))
                .map(|c| (distance(relname, &c.relname), c.schema != "public", &c.schema, &c.relname))
                .filter(|n| n.0 <= 2.max(relname.len() / 3))
                .min();
            let mut detail = format!("existing tables: {}", some_names(catalog));
            for lost in catalog.damage.excuses() {
                detail += &format!("; {lost}");
            }
            let hint = match near.map(|n| format!("{}.{}", n.2, n.3)) {
                // A table that the server made since is likelier than a wrong name.
                near if catalog.dir.may_be_running() => {
                    detail += &near.map_or_else(String::new, |near| format!("; closest match: {near}"));
                    "run CHECKPOINT: objects created after the last one are not in the files yet".into()
                }
                Some(near) => format!("did you mean {near}?"),
                None => String::new(),
            };
            Err(Error::new(Kind::NotFound, format!("no table named {wanted} in database {database}"))
                .detail(detail)
                .hint(hint))
        }
        _ => {
            let mut names: Vec<_> = found.iter().map(|c| format!("{}.{}", c.schema, c.relname)).collect();
            names.sort();
            Err(Error::new(Kind::Usage, format!("table name {wanted} is ambiguous"))
                .detail(format!("matching tables: {}", names.join(", "))))
        }
    }
}

/// Edits that make one name of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

fn by_file(path: &Path) -> Result<(Catalog, u32)> {
    let (catalog, oid) = relation_of_file(path)?;
    let class = &catalog.classes[&oid];
    if !class.has_rows() {
        return Err(Error::new(Kind::Invalid, "not the file of a table")
            .detail(format!("it belongs to {}.{}, which stores no rows", class.schema, class.relname))
            .hint("run leadline page show FILE to decode its pages")
            .at(path));
    }
    Ok((catalog, oid))
}

/// The relation that a file of a data directory is of, with the catalog of its database.
///
/// # Errors
/// When there is no data directory around the file, or the file is none of a relation now.
pub fn relation_of_file(path: &Path) -> Result<(Catalog, u32)> {
    let dir = DataDir::around(path)?;
    let part = |n: usize| {
        let full = std::path::absolute(path).ok()?;
        let name = full.ancestors().nth(n)?.file_name()?.to_str()?.to_owned();
        Some(name)
    };
    let not_one = |detail: &str| Error::new(Kind::Invalid, "not the file of a table").detail(detail).at(path);
    let filenode: u32 = part(0)
        .and_then(|n| n.split('.').next()?.parse().ok())
        .ok_or_else(|| not_one("the file name of a table is a number, for example base/16384/16402"))?;
    let all = databases(&dir)?;
    let folder = part(1).unwrap_or_default();
    let no_database = || not_one("no database has the number of its folder");
    let catalog = if folder == "global" {
        through_any(&dir, &all).unwrap_or_else(|| Err(no_database()))?
    } else {
        open(&dir, all.iter().find(|d| folder.parse() == Ok(d.oid)).ok_or_else(no_database)?)?
    };
    let found = catalog.classes.values().find(|c| c.relfilenode_is(&catalog, filenode, folder == "global"));
    let none = || {
        let mut detail = "no relation of its database uses this file now".to_owned();
        for lost in catalog.damage.excuses() {
            detail += &format!("; {lost}");
        }
        not_one(&detail)
    };
    let class = found.ok_or_else(none)?;
    let oid = class.oid;
    Ok((catalog, oid))
}

/// The catalog through which what all databases share is read: names in it are in any encoding, most likely in UTF-8.
fn through_any(dir: &DataDir, all: &[Database]) -> Option<Result<Catalog>> {
    let (first, others): (Vec<_>, Vec<_>) = all.iter().partition(|d| d.encoding == UTF8);
    let mut failed = None;
    for database in first.into_iter().chain(others) {
        match open(dir, database) {
            Err(e) if is_loss(&e) => failed = failed.or(Some(Err(e))),
            found => return Some(found),
        }
    }
    failed
}

impl Class {
    /// Whether it is of a kind that has rows.
    pub(crate) fn has_rows(&self) -> bool {
        WITH_ROWS.contains(&self.relkind)
    }

    /// Its partitions have its rows.
    pub(crate) fn is_partitioned(&self) -> bool {
        self.relkind == b'p'
    }

    /// Another server has its rows.
    pub(crate) fn is_foreign(&self) -> bool {
        self.relkind == b'f'
    }

    fn relfilenode_is(&self, catalog: &Catalog, filenode: u32, global: bool) -> bool {
        catalog.filenode(self) == filenode && global == (self.reltablespace == GLOBAL_TABLESPACE)
    }
}
