//! A relation as its catalog describes it: what all that read its rows share.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::catalog::{is_loss, Attribute, Catalog, Class};
use crate::cut_off::CutOff;
use crate::damage::Damage;
use crate::find::{find, partitions};
use crate::heap_file::HeapFile;
use crate::toast;
use crate::toast_places::Places;
use crate::tuple::Storage;
use crate::value::Types;
use crate::xact::Moment;
use leadline_datadir::DataDir;
use leadline_errors::{Error, Kind, Result};
use parking_lot::Mutex;

/// A column of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// As the relation calls it.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// Oid of its type.
    pub oid: u32,
    /// Oid of its type, of a domain that of what it is made of.
    pub base: u32,
    /// What its type was declared with, such as precision and scale; -1 for nothing, and for a domain.
    pub atttypmod: i32,
    /// Whether values are printed as the server does; else they are bytes in hex.
    pub is_known: bool,
}

pub(crate) struct Relation {
    /// schema.name
    pub name: String,
    /// No CHECKPOINT writes what a server has of it in memory.
    pub is_unlogged: bool,
    /// Without the dropped ones and the virtual ones.
    pub columns: Vec<Column>,
    /// Names of the generated columns that no row keeps a value of.
    pub virtual_columns: Vec<String>,
    /// With the dropped and the virtual ones, and where each is in `columns`.
    pub attributes: Vec<(Attribute, Option<usize>)>,
    pub storages: Vec<Storage>,
    /// The partitions of a table share them.
    pub types: Arc<Types>,
    pub heap: HeapFile,
    pub dir: DataDir,
    /// Blocks that it had and has not, of a server that ended in order.
    pub cut_off: CutOff,
    tablespace: u32,
    catalog: Arc<Catalog>,
    /// Rows are given as they were at that time; none: now.
    pub moment: Option<Moment>,
    /// Where the values of a toast table are, by its oid.
    toast: Mutex<HashMap<u32, Arc<Places>>>,
}

/// What is read as one table.
pub(crate) struct Opened {
    /// What its columns are.
    pub relation: Relation,
    /// Of a partitioned table those that have the rows, by their names, with its columns in its order.
    pub partitions: Option<Vec<Relation>>,
    /// Names of those whose rows are on another server.
    pub foreign: Vec<String>,
    /// Names of those whose files are gone.
    pub lost: Vec<String>,
    /// Names of those of which the catalog has not all columns: where the values are in their rows, nobody knows.
    pub undefined: Vec<String>,
}

impl From<Relation> for Opened {
    fn from(relation: Relation) -> Opened {
        Opened { relation, partitions: None, foreign: Vec::new(), lost: Vec::new(), undefined: Vec::new() }
    }
}

impl Opened {
    pub(crate) fn open(path: &Path, relation: Option<&str>, database: Option<&str>) -> Result<Opened> {
        let (mut catalog, oid) = find(path, relation, database)?;
        if !catalog.classes[&oid].is_partitioned() {
            return Relation::of(catalog, oid).map(Opened::from);
        }
        let (foreign, own): (Vec<_>, Vec<_>) =
            partitions(&mut catalog, oid)?.into_iter().partition(|class| class.is_foreign());
        let of_all = own.iter().map(|class| class.oid).chain([oid]).collect();
        let mut attributes = catalog.attributes(&of_all)?;
        let mut attributes = |oid: u32| attributes.remove(&oid).unwrap_or_default();
        let (class, columns) = (catalog.classes[&oid].clone(), attributes(oid));
        let types = Arc::new(catalog.types(&stored_types(&columns))?);
        let catalog = Arc::new(catalog);
        let nowhere = HeapFile::absent(&catalog.dir, catalog.dir.root.clone());
        let relation = Relation::made(Arc::clone(&catalog), &class, columns, Arc::clone(&types), nowhere);
        let names: Vec<String> = relation.columns.iter().map(|column| column.name.clone()).collect();
        let name = |class: &Class| format!("{}.{}", class.schema, class.relname);
        let (mut partitions, mut lost, mut undefined) = (Vec::new(), Vec::new(), Vec::new());
        for class in &own {
            let heap = match catalog.heap(class.oid) {
                Ok(heap) => heap,
                Err(e) if is_loss(&e) => {
                    lost.push(name(class));
                    continue;
                }
                Err(e) => return Err(e),
            };
            let (columns, types) = (attributes(class.oid), Arc::clone(&types));
            let mut partition = Relation::made(Arc::clone(&catalog), class, columns, types, heap);
            // They may be in another order there, with dropped ones of its own.
            match partition.keep(&names) {
                Ok(()) => partitions.push(partition),
                Err(_) => undefined.push(name(class)),
            }
        }
        let foreign = foreign.iter().map(name).collect();
        Ok(Opened { relation, partitions: Some(partitions), foreign, lost, undefined })
    }

    /// Leaves out all columns but these, and puts them in this order.
    pub(crate) fn keep(&mut self, names: &[String]) -> Result<()> {
        self.relation.keep(names)?;
        self.partitions.iter_mut().flatten().try_for_each(|partition| partition.keep(names))
    }
}

impl Relation {
    /// A relation of a catalog, which may be an index.
    pub(crate) fn of(mut catalog: Catalog, oid: u32) -> Result<Relation> {
        let class = catalog.classes[&oid].clone();
        let attributes = catalog.attributes(&HashSet::from([oid]))?.remove(&oid).unwrap_or_default();
        let types = catalog.types(&stored_types(&attributes))?;
        let heap = catalog.heap(oid)?;
        Ok(Relation::made(Arc::new(catalog), &class, attributes, Arc::new(types), heap))
    }

    /// A relation whose definition is known. `catalog`: of the database that has the files.
    pub(crate) fn made(
        catalog: Arc<Catalog>,
        class: &Class,
        attributes: Vec<Attribute>,
        types: Arc<Types>,
        heap: HeapFile,
    ) -> Relation {
        let column = |a: &Attribute| Column {
            name: a.attname.clone(),
            type_name: types.by_oid.get(&a.atttypid).map_or_else(|| a.atttypid.to_string(), |t| t.name.clone()),
            oid: a.atttypid,
            base: types.base(a.atttypid),
            atttypmod: a.atttypmod,
            is_known: types.is_known(a.atttypid),
        };
        let columns = attributes.iter().filter(|a| a.is_stored()).map(column).collect();
        let is_virtual = |a: &&Attribute| !a.attisdropped && !a.is_stored();
        let virtual_columns = attributes.iter().filter(is_virtual).map(|a| a.attname.clone()).collect();
        let storages = attributes.iter().map(|a| a.storage).collect();
        let mut next = 0..;
        let attributes = attributes.into_iter().map(|a| {
            let column = if a.is_stored() { next.next() } else { None };
            (a, column)
        });
        // A crash empties unlogged relations, and a server that runs may not have written a catalog since it cut a file.
        let is_final = catalog.dir.transactions.is_some_and(|about| about.is_final);
        let knows = is_final && class.relpersistence == b'p' && class.has_rows();
        let counted = i32::try_from(class.relpages).unwrap_or(0) as u32;
        let cut_off = if knows { CutOff::of(&catalog.dir, &heap, counted) } else { CutOff::default() };
        Relation {
            cut_off,
            tablespace: class.reltablespace,
            name: format!("{}.{}", class.schema, class.relname),
            is_unlogged: class.relpersistence == b'u',
            columns,
            virtual_columns,
            attributes: attributes.collect(),
            storages,
            types,
            heap,
            dir: catalog.dir.clone(),
            catalog,
            moment: None,
            toast: Mutex::default(),
        }
    }

    /// Leaves out all columns but these, and puts them in this order.
    pub(crate) fn keep(&mut self, names: &[String]) -> Result<()> {
        let mut kept: Vec<usize> = Vec::with_capacity(names.len());
        for name in names {
            match self.columns.iter().position(|c| c.name == *name) {
                None => return Err(self.no_such_column(name)),
                Some(at) if kept.contains(&at) => {
                    return Err(self.wrong_column(format!("column {name} is given twice")))
                }
                Some(at) => kept.push(at),
            }
        }
        self.columns = kept.iter().map(|at| self.columns[*at].clone()).collect();
        for (_, column) in &mut self.attributes {
            *column = column.and_then(|old| kept.iter().position(|at| *at == old));
        }
        Ok(())
    }

    /// Why none of its columns is called so.
    pub(crate) fn no_such_column(&self, name: &str) -> Error {
        self.wrong_column(if self.virtual_columns.iter().any(|column| column == name) {
            format!("no row of {} stores a value of {name}: the server computes it", self.name)
        } else {
            format!("{} has no column {name}", self.name)
        })
    }

    fn wrong_column(&self, message: String) -> Error {
        let all: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        Error::new(Kind::Usage, message).detail(format!("columns: {}", all.join(", ")))
    }

    /// What is wrong with the catalogs that it was read through.
    pub(crate) fn damage(&self) -> &Damage {
        &self.catalog.damage
    }

    /// A toast table and where its values are, found when it is first asked for; None when there is no such table, or no file of it.
    pub(crate) fn toast(&self, relid: u32) -> Result<Option<(HeapFile, Arc<Places>)>> {
        let heap = match self.catalog.toast_heap(relid, self.tablespace) {
            Ok(heap) => heap,
            Err(e) if is_loss(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        // Whoever comes while another looks through the table waits for it.
        let mut known = self.toast.lock();
        if let Some(places) = known.get(&relid) {
            return Ok(Some((heap, Arc::clone(places))));
        }
        let places = Arc::new(toast::places(&mut heap.again())?);
        known.insert(relid, Arc::clone(&places));
        Ok(Some((heap, places)))
    }
}

/// The types of the columns that rows keep values of.
pub(crate) fn stored_types(attributes: &[Attribute]) -> Vec<u32> {
    attributes.iter().filter(|a| a.is_stored()).map(|a| a.atttypid).collect()
}
