//! The tables of one database through catalogs that are read once, and rows whose definition is from elsewhere: from the catalogs of
//! another data directory, or given by who asks.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::catalog::{Attribute, Catalog, Class};
use crate::find::database_catalog;
use crate::heap_file::HeapFile;
use crate::relation::{stored_types, Relation};
use crate::scan::RowScan;
use crate::segments::Segments;
use crate::tuple::Storage;
use crate::value::{Kind as TypeKind, Type, Types};
use crate::xact::Moment;
use leadline_datadir::{DataDir, DEFAULT_TABLESPACE};
use leadline_errors::{Error, Kind, Result};

const BUILT_IN: &str = include_str!("../data/pg_type.csv");

/// A type that all servers have under the same number.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct BuiltIn {
    pub oid: u32,
    pub name: String,
    pub storage: Storage,
}

/// A column as who asks says it is.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Given {
    pub name: String,
    /// Of a built-in type.
    pub type_oid: u32,
    pub typmod: i32,
}

/// Rows that the catalogs do not lead to.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    /// The first file of the table, in a data directory.
    pub file: PathBuf,
    /// The files of its toast tables by their oids, where these are not their numbers.
    pub toast: HashMap<u32, u32>,
}

/// The tables of one database.
pub struct Tables {
    catalog: Arc<Catalog>,
    attributes: HashMap<u32, Vec<Attribute>>,
    types: Types,
    by_name: HashMap<(String, String), u32>,
}

impl Tables {
    /// `database`: may be left out where there is one that is no template.
    ///
    /// # Errors
    /// When there is no such database or its catalogs cannot be read.
    pub fn open(data_dir: &Path, database: Option<&str>) -> Result<Tables> {
        let mut catalog = database_catalog(data_dir, database)?;
        let with_rows: HashSet<u32> = catalog.classes.values().filter(|c| c.has_rows()).map(|c| c.oid).collect();
        let attributes = catalog.attributes(&with_rows)?;
        let wanted: HashSet<u32> = attributes.values().flat_map(|all| stored_types(all)).collect();
        let types = catalog.types(&Vec::from_iter(wanted))?;
        if catalog.classes.is_empty() {
            catalog.look_for_lost_classes()?;
        }
        let name = |class: &Class| ((class.schema.clone(), class.relname.clone()), class.oid);
        let by_name = catalog.classes.values().filter(|c| c.has_rows()).map(name).collect();
        Ok(Tables { catalog: Arc::new(catalog), attributes, types, by_name })
    }

    /// The oid of a relation with rows.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn find(&self, schema: &str, name: &str) -> Result<u32> {
        let found = self.by_name.get(&(schema.to_owned(), name.to_owned()));
        let none = || Error::new(Kind::NotFound, format!("no table named {schema}.{name}")).at(&self.catalog.dir.root);
        found.copied().ok_or_else(none)
    }

    /// The rows of a relation. `elsewhere`: not its own, but those of a file that has the same columns. `columns`: only these, in this order.
    ///
    /// # Errors
    /// When there is no such relation or column, or a file cannot be read.
    pub fn scan(
        &self,
        oid: u32,
        elsewhere: Option<Elsewhere>,
        dead: bool,
        columns: Option<&[String]>,
        moment: Option<Moment>,
    ) -> Result<RowScan> {
        let none = || Error::new(Kind::NotFound, format!("no relation with OID {oid}")).at(&self.catalog.dir.root);
        let class = self.catalog.classes.get(&oid).ok_or_else(none)?;
        let attributes = self.attributes.get(&oid).ok_or_else(none)?.clone();
        let met = self.types.reached(&stored_types(&attributes));
        let types = self.types.again(self.catalog.encoding_for(&met));
        let mut relation = match elsewhere {
            None => {
                let heap = self.catalog.heap(oid)?;
                Relation::made(Arc::clone(&self.catalog), class, attributes, Arc::new(types), heap)
            }
            Some(elsewhere) => made_elsewhere(elsewhere, class.clone(), attributes, types)?,
        };
        columns.map_or(Ok(()), |columns| relation.keep(columns))?;
        relation.moment = moment;
        Ok(RowScan::new(relation.into(), dead))
    }

    /// Replaces the labels of enums, by the oid of their type.
    pub fn relabel(&mut self, labels: HashMap<u32, HashMap<u32, String>>) {
        for (oid, labels) in labels {
            if let Some(of) = self.types.get_mut(oid).filter(|of| matches!(of.kind, TypeKind::Enum(_))) {
                of.kind = TypeKind::Enum(labels);
            }
        }
    }

    /// What is wrong with the catalogs, one line each.
    pub fn damage(&self) -> Vec<String> {
        self.catalog.damage.lines()
    }
}

impl RowScan {
    /// The rows of a file whose columns who asks gives, or guesses. Texts are taken as UTF-8.
    ///
    /// # Errors
    /// When a type is none of the built-in ones, or the file cannot be read.
    pub fn of_given(
        elsewhere: Elsewhere,
        name: &str,
        given: &[Given],
        dead: bool,
        moment: Option<Moment>,
    ) -> Result<RowScan> {
        let types = built_in();
        let attribute = |(i, column): (usize, &Given)| {
            let unknown = || Error::new(Kind::Usage, format!("no built-in type with OID {}", column.type_oid));
            Ok(Attribute {
                attname: column.name.clone(),
                atttypid: column.type_oid,
                attnum: i16::try_from(i + 1).unwrap_or(i16::MAX),
                atttypmod: column.typmod,
                storage: types.by_oid.get(&column.type_oid).ok_or_else(unknown)?.storage,
                attisdropped: false,
                attgenerated: 0,
                missing: None,
                attcompression: 0,
                attnotnull: false,
            })
        };
        let attributes = given.iter().enumerate().map(attribute).collect::<Result<Vec<_>>>()?;
        let (schema, relname) = name.split_once('.').unwrap_or(("", name));
        let class = Class {
            oid: 0,
            schema: schema.into(),
            relname: relname.into(),
            relkind: b'r',
            relfilenode: 0,
            reltablespace: 0,
            relpersistence: b'p',
            relam: 0,
            relnatts: i16::try_from(given.len()).unwrap_or(i16::MAX),
            relpages: 0,
        };
        let mut relation = made_elsewhere(elsewhere, class, attributes, types)?;
        relation.moment = moment;
        Ok(RowScan::new(relation.into(), dead))
    }
}

/// A relation with the rows of a file of another data directory, whose catalogs nobody asks.
fn made_elsewhere(
    elsewhere: Elsewhere,
    mut class: Class,
    attributes: Vec<Attribute>,
    types: Types,
) -> Result<Relation> {
    let Elsewhere { file, toast } = elsewhere;
    // Without pg_control a data directory is known by its folders.
    let is_root = |folder: &&Path| folder.join("base").is_dir() && folder.join("global").is_dir();
    let root = leadline_datadir::root_above(&file)
        .or_else(|| file.ancestors().find(is_root).map(Path::to_owned))
        .ok_or_else(|| Error::new(Kind::Invalid, "this file is not inside a data directory").at(&file))?;
    let dir = DataDir::salvage(&root)?;
    let (space, database) = place(&root, &file)
        .ok_or_else(|| Error::new(Kind::Invalid, "this file is in no folder of a database").at(&file))?;
    // How many blocks it had is another's number.
    (class.relpages, class.reltablespace) = (0, space);
    let heap = HeapFile::open(&dir, file.clone(), &Segments::default().of(&file))?;
    let mut catalog = Catalog::of_files(dir, database);
    catalog.know_files(toast.into_iter().map(|(relid, number)| (relid, space, number)));
    Ok(Relation::made(Arc::new(catalog), &class, attributes, Arc::new(types), heap))
}

/// Tablespace and database of a file, by where it is.
fn place(root: &Path, file: &Path) -> Option<(u32, u32)> {
    let (root, file) = (std::path::absolute(root).ok()?, std::path::absolute(file).ok()?);
    let parts: Vec<&str> = file.strip_prefix(root).ok()?.components().filter_map(name).collect();
    match parts[..] {
        ["base", database, _] => Some((DEFAULT_TABLESPACE, database.parse().ok()?)),
        ["pg_tblspc", space, _, database, _] => Some((space.parse().ok()?, database.parse().ok()?)),
        _ => None,
    }
}

fn name(part: Component<'_>) -> Option<&str> {
    match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    }
}

/// The types that all servers of the majors known here have, but for those whose values only catalogs keep.
pub fn built_in_types() -> Vec<BuiltIn> {
    let mut all: Vec<BuiltIn> = built_in()
        .by_oid
        .iter()
        .map(|(oid, of)| BuiltIn { oid: *oid, name: of.name.clone(), storage: of.storage })
        .collect();
    all.sort_by_key(|one| one.oid);
    all
}

pub(crate) fn built_in() -> Types {
    let row = |line: &str| {
        let mut fields = line.split(',');
        let mut next = || fields.next().unwrap_or_default();
        let oid = next().parse().ok()?;
        let name = next().to_owned();
        let storage = Storage { attlen: next().parse().ok()?, attalign: *next().as_bytes().first()? };
        let (typtype, of) = (next(), next().parse().ok()?);
        let kind = match (typtype, of) {
            ("r", of) => TypeKind::Range(of),
            ("m", of) => TypeKind::Multirange(of),
            (_, 0) => TypeKind::Scalar,
            (_, of) => TypeKind::Array(of),
        };
        Some((oid, Type { name, storage, kind }))
    };
    Types { by_oid: Arc::new(BUILT_IN.lines().skip(1).filter_map(row).collect()), ..Types::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_type_can_be_printed() {
        let types = built_in();
        assert_eq!(types.by_oid.len(), BUILT_IN.lines().count() - 1);
        let unknown: Vec<&str> =
            types.by_oid.iter().filter(|(oid, _)| !types.is_known(**oid)).map(|(_, of)| of.name.as_str()).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn a_file_tells_its_database_and_tablespace() {
        let root = Path::new("/d");
        assert_eq!(place(root, Path::new("/d/base/5/16402")), Some((DEFAULT_TABLESPACE, 5)));
        assert_eq!(place(root, Path::new("/d/pg_tblspc/16390/PG_18_202506291/5/16402")), Some((16390, 5)));
        assert_eq!(place(root, Path::new("/d/global/1262")), None);
        assert_eq!(place(root, Path::new("/elsewhere/5/16402")), None);
    }
}
