//! Which relations there are to look at, and what they would look like if they were written now.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use leadline_datadir::DataDir;
use leadline_errors::{Error, Kind};
use leadline_rows::catalog::{databases, is_loss, name, number, oids, Catalog, Class, Database};
use leadline_rows::heap_file::HeapFile;
use leadline_rows::names::RelationName;
use leadline_rows::relation_of_file;

use crate::form::Form;

const NOT_YET: &str = "objects created after the last checkpoint are not in the files yet: run CHECKPOINT";
const FIRST_NORMAL_OID: u32 = 16384;
const PG_COLLATION: u32 = 3456;
const PG_INDEX: u32 = 2610;
const PG_INHERITS: u32 = 2611;
const HEAP_AM: u32 = 2;
const BTREE_AM: u32 = 403;
const HASH_AM: u32 = 405;
const GIN_AM: u32 = 2742;
/// `BTEQUALIMAGE_PROC`, and the two functions that are ever given for it.
const EQUALIMAGE: u32 = 4;
const BTEQUALIMAGE: u32 = 5051;
const BTVARSTREQUALIMAGE: u32 = 5050;

/// What a relation is.
#[derive(Debug, Clone)]
pub enum What {
    /// A table, and what its rows would look like.
    Table(Form),
    /// A btree, and whether equal keys could be stored once.
    Btree(bool),
    /// A GIN index.
    Gin,
    /// A hash index.
    Hash,
}

/// How a table or a database is named. A number is exact where the encoding of names is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Wanted<'n> {
    Name(&'n str),
    Oid(u32),
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Name(name) => write!(f, "named {name}"),
            Wanted::Oid(oid) => write!(f, "with OID {oid}"),
        }
    }
}

/// One relation to look at.
#[derive(Debug)]
pub struct Relation {
    /// Its database.
    pub database: String,
    /// schema.name
    pub name: String,
    /// Its number.
    pub oid: u32,
    /// A checkpoint does not write its pages.
    pub is_unlogged: bool,
    /// What it is.
    pub what: What,
    /// Its files.
    pub file: HeapFile,
    /// Why there are none to look at.
    pub absent: Option<String>,
    /// Where it is.
    pub dir: DataDir,
}

/// What there is to look at.
#[derive(Debug, Default)]
pub struct Found {
    /// By their databases.
    pub relations: Vec<Relation>,
    /// Databases whose catalogs cannot be read, and why.
    pub refused: Vec<(String, String)>,
    /// What is wrong with the catalogs that could be read, one line each.
    pub damage: Vec<String>,
}

impl Found {
    fn add(&mut self, catalog: &Catalog, database: &str, relations: Vec<Relation>) {
        self.relations.extend(relations);
        self.damage.extend(catalog.damage.lines().iter().map(|line| format!("{database}: {line}")));
    }
}

/// The tables and indexes of users in a data directory; `path` can also be the file of one of them.
///
/// `table` is `[database.][schema.]table`: the table with its indexes, a partitioned one with its partitions. `database`: that one
/// only. Left out are catalogs, toast tables, temporary tables, templates, and indexes of which no old form is known.
///
/// # Errors
/// When there is no such thing, or none of it can be read.
pub fn relations(path: &Path, table: Option<Wanted<'_>>, database: Option<Wanted<'_>>) -> Result<Found, Error> {
    if path.is_file() {
        if table.is_some() || database.is_some() {
            let message = "a relation file already identifies its relation and database";
            return Err(Error::new(Kind::Usage, message)
                .hint("give only the file, or use: leadline alter pending DATA_DIR --table TABLE")
                .at(path));
        }
        let (mut catalog, oid) = relation_of_file(path)?;
        let dir = catalog.dir.clone();
        let name =
            databases(&dir)?.into_iter().find(|d| d.oid == catalog.database).map_or_else(String::new, |d| d.datname);
        let chosen = of_catalog(&mut catalog, &name, &HashSet::from([oid]))?;
        if chosen.is_empty() {
            return Err(Error::new(Kind::Invalid, "no old forms are known for this kind of relation").at(path));
        }
        let mut found = Found::default();
        found.add(&catalog, &name, chosen);
        return Ok(found);
    }
    let dir = DataDir::salvage(path)?;
    let all = databases(&dir)?;
    let is_database = |wanted: Wanted<'_>, d: &Database| match wanted {
        Wanted::Name(name) => d.datname == name,
        Wanted::Oid(oid) => d.oid == oid,
    };
    if let Some(wanted) = database.filter(|wanted| !all.iter().any(|d| is_database(*wanted, d))) {
        return Err(Error::new(Kind::NotFound, format!("no database {wanted}")).hint(NOT_YET).at(path));
    }
    let (mut found, mut others, mut is_there) = (Found::default(), Vec::new(), false);
    let mut look = |each: &Database, found: &mut Found| -> Result<(), Error> {
        let mut catalog = Catalog::open(&dir, each)?;
        let mut chosen: HashSet<u32> = match table {
            None => catalog.classes.values().filter(|c| is_of_user(c)).map(|c| c.oid).collect(),
            Some(Wanted::Name(wanted)) => named(&catalog, wanted, &each.datname),
            Some(Wanted::Oid(oid)) => {
                catalog.classes.get(&oid).filter(|c| can_be_named(c)).map(|c| c.oid).into_iter().collect()
            }
        };
        if table.is_none() {
            catalog.look_for_lost_classes()?;
        }
        is_there |= !chosen.is_empty();
        if table.is_some() {
            others.extend(
                catalog.classes.values().filter(|c| is_of_user(c)).map(|c| format!("{}.{}", c.schema, c.relname)),
            );
            with_partitions(&mut catalog, &mut chosen)?;
        }
        with_indexes(&mut catalog, &mut chosen)?;
        let chosen = of_catalog(&mut catalog, &each.datname, &chosen)?;
        found.add(&catalog, &each.datname, chosen);
        Ok(())
    };
    let (mut looked, mut failed) = (false, None);
    for each in all.iter().filter(|d| database.map_or(!d.datistemplate, |wanted| is_database(wanted, d))) {
        match look(each, &mut found) {
            Ok(()) => looked = true,
            Err(e) if is_loss(&e) => {
                let half = if each.is_half_dropped { "the server was stopped while it dropped it: " } else { "" };
                found.refused.push((each.datname.clone(), format!("{half}{e}")));
                failed.get_or_insert(e);
            }
            Err(e) => return Err(e),
        }
    }
    if let Some(failed) = failed.filter(|_| !looked) {
        return Err(failed);
    }
    if let Some(wanted) = table.filter(|_| !is_there) {
        let not_seen: String =
            found.refused.iter().map(|(name, _)| format!("; database {name} cannot be read")).collect();
        others.sort();
        let more = if others.len() > 10 { format!(" and {} more", others.len() - 10) } else { String::new() };
        others.truncate(10);
        return Err(Error::new(Kind::NotFound, format!("no table {wanted}"))
            .detail(format!(
                "existing tables: {}{more}{not_seen}",
                if others.is_empty() { "none".into() } else { others.join(", ") }
            ))
            .hint(NOT_YET)
            .at(path));
    }
    Ok(found)
}

/// Tables and materialised views with pages of the usual kind, of users, not of one session.
fn is_table(class: &Class) -> bool {
    matches!(class.relkind, b'r' | b'm') && class.relam == HEAP_AM && class.relpersistence != b't'
}

fn is_of_user(class: &Class) -> bool {
    is_table(class) && class.oid >= FIRST_NORMAL_OID && class.schema != "information_schema"
}

fn can_be_named(class: &Class) -> bool {
    is_table(class) || class.relkind == b'p'
}

/// The tables that `wanted` names; those of schema public alone when there are several of one name.
fn named(catalog: &Catalog, wanted: &str, database: &str) -> HashSet<u32> {
    let found = RelationName::parse(wanted).among(catalog.classes.values().filter(|c| can_be_named(c)), database);
    let public = found.iter().find(|c| c.schema == "public").map(|c| HashSet::from([c.oid]));
    public.unwrap_or_else(|| found.iter().map(|c| c.oid).collect())
}

fn with_partitions(catalog: &mut Catalog, chosen: &mut HashSet<u32>) -> Result<(), Error> {
    if !chosen.iter().any(|oid| catalog.classes[oid].relkind == b'p') {
        return Ok(());
    }
    let rows = catalog.rows(PG_INHERITS, &["inhrelid", "inhparent"])?;
    let is_partitioned = |oid: u32| catalog.classes.get(&oid).is_some_and(|c| c.relkind == b'p');
    loop {
        let before = chosen.len();
        for row in &rows {
            if chosen.contains(&number(&row[1])) && is_partitioned(number(&row[1])) {
                chosen.insert(number(&row[0]));
            }
        }
        if chosen.len() == before {
            return Ok(());
        }
    }
}

fn with_indexes(catalog: &mut Catalog, chosen: &mut HashSet<u32>) -> Result<(), Error> {
    for row in catalog.rows(PG_INDEX, &["indexrelid", "indrelid"])? {
        if chosen.contains(&number(&row[1])) {
            chosen.insert(number(&row[0]));
        }
    }
    Ok(())
}

fn of_catalog(catalog: &mut Catalog, database: &str, chosen: &HashSet<u32>) -> Result<Vec<Relation>, Error> {
    let tables: HashSet<u32> =
        catalog.classes.values().filter(|c| is_table(c) && chosen.contains(&c.oid)).map(|c| c.oid).collect();
    let attributes = if tables.is_empty() { HashMap::new() } else { catalog.attributes(&tables)? };
    let btrees = catalog.classes.values().any(|c| c.relam == BTREE_AM && chosen.contains(&c.oid));
    let can_dedup = if btrees { can_dedup(catalog, chosen)? } else { HashSet::new() };
    let mut found = Vec::new();
    for class in catalog.classes.values().filter(|c| chosen.contains(&c.oid)) {
        let what = match (class.relkind, class.relam) {
            _ if is_table(class) => What::Table(Form::new(attributes.get(&class.oid).map_or(&[], Vec::as_slice))),
            (b'i', BTREE_AM) => What::Btree(can_dedup.contains(&class.oid)),
            (b'i', GIN_AM) => What::Gin,
            (b'i', HASH_AM) => What::Hash,
            _ => continue,
        };
        let (file, absent) = match catalog.heap(class.oid) {
            Ok(file) => (file, None),
            // Dropped, or there is something wrong with it.
            Err(e) if matches!(e.kind, Kind::NotFound | Kind::Invalid | Kind::Storage) => {
                (HeapFile::absent(&catalog.dir, e.place.clone().into()), Some(e.to_string()))
            }
            Err(e) => return Err(e),
        };
        let name = format!("{}.{}", class.schema, class.relname);
        found.push(Relation {
            database: database.to_owned(),
            name,
            oid: class.oid,
            is_unlogged: class.relpersistence == b'u',
            what,
            file,
            absent,
            dir: catalog.dir.clone(),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The btrees whose equal keys could be stored once: every column's operator class says that equal values have equal bytes.
///
/// Source: src/backend/access/nbtree/nbtutils.c (`_bt_allequalimage`), src/backend/utils/adt/varlena.c (`btvarstrequalimage`).
fn can_dedup(catalog: &mut Catalog, chosen: &HashSet<u32>) -> Result<HashSet<u32>, Error> {
    let columns = ["indexrelid", "indnatts", "indnkeyatts", "indclass", "indcollation"];
    let indexes = catalog.rows(PG_INDEX, &columns)?;
    let functions = catalog.support_functions(EQUALIMAGE)?;
    let collations = catalog.rows(PG_COLLATION, &["oid", "collname", "collisdeterministic"])?;
    let loose: HashSet<u32> = collations.iter().filter(|r| name(&r[2]) != "\u{1}").map(|r| number(&r[0])).collect();
    let mut able = HashSet::new();
    for row in indexes.iter().filter(|r| chosen.contains(&number(&r[0]))) {
        let keys = number(&row[2]) as usize;
        let (classes, collations) = (oids(&row[3]), oids(&row[4]));
        let fits = |i: usize| match classes.get(i).and_then(|class| functions.get(class)) {
            Some(&BTEQUALIMAGE) => true,
            Some(&BTVARSTREQUALIMAGE) => collations.get(i).is_some_and(|c| !loose.contains(c)),
            _ => false,
        };
        // Columns that are only included make it impossible.
        if number(&row[1]) as usize == keys && keys > 0 && (0..keys).all(fits) {
            able.insert(number(&row[0]));
        }
    }
    Ok(able)
}
