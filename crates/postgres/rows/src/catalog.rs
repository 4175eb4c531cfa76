//! The catalog of a database, from its files.
//!
//! Only the layout of `pg_attribute` is known beforehand (`data/pg_attribute.csv`); every other catalog is read through it.

mod attributes;
mod databases;
mod lost;
mod types;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::damage::{Damage, InCatalog};
use crate::encoding::Encoding;
use crate::heap_file::HeapFile;
use crate::segments::Segments;
use crate::tuple::{deform, Storage, Stored};
use crate::value;
use crate::varlena::{self, Varlena};
use crate::xact::{Status, Xacts};
use leadline_datadir::{DataDir, RelFile, DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use leadline_errors::{Error, Kind, Result};

pub use attributes::Attribute;
pub use databases::{databases, databases_maybe, Database};
pub use lost::is_loss;

use attributes::has_all;
use databases::DATABASE;

const PG_TYPE: u32 = 1247;
const PG_ATTRIBUTE: u32 = 1249;
const PG_PROC: u32 = 1255;
pub(crate) const PG_CLASS: u32 = 1259;
const PG_AUTHID: u32 = 1260;
const PG_DATABASE: u32 = 1262;
const PG_AMPROC: u32 = 2603;
const PG_NAMESPACE: u32 = 2615;
const PG_OPCLASS: u32 = 2616;
const PG_ENUM: u32 = 3501;
const PG_RANGE: u32 = 3541;
/// How they are called where something is said of them.
const NAMES: [(u32, &str); 12] = [
    (PG_TYPE, "pg_type"),
    (PG_ATTRIBUTE, "pg_attribute"),
    (PG_PROC, "pg_proc"),
    (PG_CLASS, "pg_class"),
    (PG_AUTHID, "pg_authid"),
    (PG_DATABASE, "pg_database"),
    (PG_AMPROC, "pg_amproc"),
    (PG_NAMESPACE, "pg_namespace"),
    (PG_OPCLASS, "pg_opclass"),
    (PG_ENUM, "pg_enum"),
    (PG_RANGE, "pg_range"),
    (2610, "pg_index"),
];
/// How often a catalog is read whose file is truncated meanwhile.
const TRIES: u32 = 4;
/// The first oid of what users make.
pub(crate) const FIRST_NORMAL_OID: u32 = 16384;

/// A relation.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Class {
    pub oid: u32,
    pub schema: String,
    pub relname: String,
    pub relkind: u8,
    pub relfilenode: u32,
    pub reltablespace: u32,
    /// p, u or t.
    pub relpersistence: u8,
    /// Its access method.
    pub relam: u32,
    /// How many columns it has, dropped ones too.
    pub relnatts: i16,
    /// Blocks at the last count.
    pub relpages: u32,
}

/// The relations of one database.
#[allow(missing_docs)]
pub struct Catalog {
    pub dir: DataDir,
    pub xacts: Xacts,
    pub database: u32,
    /// Of its texts and names, where that is not UTF-8.
    encoding: Option<Arc<Encoding>>,
    space: u32,
    mapped: HashMap<u32, u32>,
    shared: HashMap<u32, u32>,
    segments: Segments,
    pub classes: HashMap<u32, Class>,
    pub damage: Damage,
}

/// Some columns of a row of a catalog.
pub type Values = Vec<Option<Vec<u8>>>;

/// A number of up to four bytes.
pub fn number(value: &Option<Vec<u8>>) -> u32 {
    let bytes = value.as_deref().unwrap_or_default();
    let mut all = [0; 4];
    let len = bytes.len().min(4);
    all[..len].copy_from_slice(&bytes[..len]);
    u32::from_le_bytes(all)
}

/// A name, or a char, as UTF-8.
pub fn name(value: &Option<Vec<u8>>) -> String {
    String::from_utf8_lossy(name_bytes(value)).into_owned()
}

fn name_bytes(value: &Option<Vec<u8>>) -> &[u8] {
    value.as_deref().unwrap_or_default().split(|b| *b == 0).next().unwrap_or_default()
}

/// The elements of an oidvector: behind dimensions, flags, element type, length and lower bound.
pub fn oids(value: &Option<Vec<u8>>) -> Vec<u32> {
    let elements = value.as_deref().and_then(|b| b.get(20..)).unwrap_or_default();
    elements.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Which rows of a catalog are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Visible,
    /// Those too that a transaction wrote or deleted that had not ended, as far as the files tell.
    Maybe,
}

impl Catalog {
    /// What all databases share, through the catalog of any database that has the layout of its catalogs.
    pub(crate) fn of_shared(dir: &DataDir) -> Result<Catalog> {
        let mut failed = None;
        for any in dir.database_folders()? {
            let found = Catalog::bare(dir, any, DEFAULT_TABLESPACE).and_then(|mut catalog| {
                let layout = catalog.attributes(&HashSet::from([PG_DATABASE]))?;
                Ok((catalog, has_all(layout.get(&PG_DATABASE).map_or(&[], Vec::as_slice), &DATABASE)))
            });
            match found {
                Ok((catalog, true)) => return Ok(catalog),
                Ok((catalog, false)) => {
                    failed.get_or_insert_with(|| {
                        Error::new(Kind::Invalid, "no database has the columns of pg_database in its pg_attribute")
                            .at(&catalog.dir.root)
                    });
                }
                Err(e) if is_loss(&e) => {
                    failed.get_or_insert(e);
                }
                Err(e) => return Err(e),
            }
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(Kind::Invalid, "the data directory contains no database").at(dir.root.join("base"))
        }))
    }

    /// One database, of which only the catalogs in its map can be read yet.
    pub(crate) fn without_classes(dir: &DataDir, database: &Database) -> Result<Catalog> {
        let mut catalog = Catalog::bare(dir, database.oid, database.dattablespace)?;
        catalog.encoding = Encoding::of(database.encoding, dir.major).map(Arc::new);
        if database.is_guess {
            let name = &database.datname;
            catalog.damage.say(format!("pg_database cannot be read: database {name} is named by its number, its encoding is assumed to be UTF-8"));
        }
        Ok(catalog)
    }

    fn bare(dir: &DataDir, database: u32, space: u32) -> Result<Catalog> {
        let mut damage = Damage::default();
        if let Some(why) = &dir.control_lost {
            damage.say(format!("{why}; the page size is that of the catalogs, the newest transaction is not known"));
        }
        let mapped = lost::map(dir, dir.folder(database, space, 0)?, PG_CLASS, &mut damage)?;
        let shared = lost::map(dir, dir.root.join("global"), PG_DATABASE, &mut damage)?;
        Ok(Catalog {
            dir: dir.clone(),
            xacts: Xacts::new(dir),
            database,
            encoding: None,
            space,
            mapped,
            shared,
            segments: Segments::default(),
            classes: HashMap::new(),
            damage,
        })
    }

    /// Files of a database without a catalog: where the toast tables are is all that it is asked.
    pub(crate) fn of_files(dir: DataDir, database: u32) -> Catalog {
        Catalog {
            xacts: Xacts::new(&dir),
            dir,
            database,
            encoding: None,
            space: DEFAULT_TABLESPACE,
            mapped: HashMap::new(),
            shared: HashMap::new(),
            segments: Segments::default(),
            classes: HashMap::new(),
            damage: Damage::default(),
        }
    }

    /// The catalog of one database.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(dir: &DataDir, database: &Database) -> Result<Catalog> {
        let mut catalog = Catalog::without_classes(dir, database)?;
        let columns = [
            "oid",
            "relname",
            "relnamespace",
            "relkind",
            "relfilenode",
            "reltablespace",
            "relpersistence",
            "relam",
            "relnatts",
            "relpages",
        ];
        let rows = catalog.rows(PG_CLASS, &columns)?;
        for row in &rows {
            let class = Class {
                oid: number(&row[0]),
                schema: number(&row[2]).to_string(),
                relname: catalog.name(&row[1]),
                relkind: number(&row[3]) as u8,
                relfilenode: number(&row[4]),
                reltablespace: number(&row[5]),
                relpersistence: number(&row[6]) as u8,
                relam: number(&row[7]),
                relnatts: number(&row[8]) as i16,
                relpages: number(&row[9]),
            };
            catalog.classes.insert(class.oid, class);
        }
        let schemas = catalog.schemas()?;
        for class in catalog.classes.values_mut() {
            if let Some(schema) = schemas.get(&class.schema) {
                class.schema.clone_from(schema);
            }
        }
        Ok(catalog)
    }

    /// Whether texts of this database are UTF-8.
    pub fn is_utf8(&self) -> bool {
        self.encoding.is_none()
    }

    /// A name, or a char, of this database.
    pub(crate) fn name(&self, value: &Option<Vec<u8>>) -> String {
        match &self.encoding {
            Some(encoding) => encoding.name_of(name_bytes(value)),
            None => name(value),
        }
    }

    /// The number of a relation's file, from the map for those that have none in `pg_class`.
    pub(crate) fn filenode(&self, class: &Class) -> u32 {
        self.file_number(class.oid, class.reltablespace, class.relfilenode)
    }

    /// The same by what `pg_class` says of it.
    pub(crate) fn file_number(&self, oid: u32, space: u32, relfilenode: u32) -> u32 {
        let map = if space == GLOBAL_TABLESPACE { &self.shared } else { &self.mapped };
        if relfilenode == 0 {
            map.get(&oid).copied().unwrap_or(0)
        } else {
            relfilenode
        }
    }

    /// The same with its database and tablespace.
    pub(crate) fn place(&self, oid: u32, space: u32, relfilenode: u32) -> RelFile {
        let rel = self.file_number(oid, space, relfilenode);
        match space {
            GLOBAL_TABLESPACE => RelFile { spc: space, db: 0, rel },
            0 => RelFile { spc: self.space, db: self.database, rel },
            _ => RelFile { spc: space, db: self.database, rel },
        }
    }

    /// Where relations are, for those who read `pg_class` by themselves: oid, tablespace, number of the file.
    pub(crate) fn know_files(&mut self, files: impl Iterator<Item = (u32, u32, u32)>) {
        for (oid, reltablespace, relfilenode) in files {
            self.classes.insert(
                oid,
                Class {
                    oid,
                    schema: String::new(),
                    relname: String::new(),
                    relkind: 0,
                    relfilenode,
                    reltablespace,
                    relpersistence: 0,
                    relam: 0,
                    relnatts: 0,
                    relpages: 0,
                },
            );
        }
    }

    /// The files of a relation.
    ///
    /// # Errors
    /// When it has none.
    pub fn heap(&self, relid: u32) -> Result<HeapFile> {
        let (space, file) = match self.classes.get(&relid) {
            Some(class) => (class.reltablespace, self.filenode(class)),
            None if self.shared.contains_key(&relid) => (GLOBAL_TABLESPACE, self.shared[&relid]),
            None => (0, self.mapped.get(&relid).copied().unwrap_or(0)),
        };
        if file == 0 {
            return Err(Error::new(Kind::Invalid, format!("relation {relid} has no file")).at(&self.dir.root));
        }
        let path = self.dir.folder(self.database, self.space, space)?.join(file.to_string());
        HeapFile::open(&self.dir, path.clone(), &self.segments.of(&path))
    }

    /// The file of a toast table. Where its row in `pg_class` is lost, it is looked for under the number that it had at first.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn toast_heap(&self, relid: u32, space: u32) -> Result<HeapFile> {
        if self.classes.contains_key(&relid) || self.classes.values().any(|c| self.filenode(c) == relid) {
            return self.heap(relid);
        }
        let path = self.dir.folder(self.database, self.space, space)?.join(relid.to_string());
        HeapFile::open(&self.dir, path.clone(), &self.segments.of(&path))
    }

    /// What a catalog or another relation is called.
    fn called(&self, relid: u32) -> String {
        match (NAMES.iter().find(|(oid, _)| *oid == relid), self.classes.get(&relid)) {
            (Some((_, name)), _) => (*name).into(),
            (None, Some(class)) if !class.relname.is_empty() => format!("{}.{}", class.schema, class.relname),
            _ => format!("relation {relid}"),
        }
    }

    /// Some columns of all visible rows of a catalog.
    ///
    /// # Errors
    /// When it cannot be read or has not these columns.
    pub fn rows(&mut self, relid: u32, columns: &[&str]) -> Result<Vec<Values>> {
        let layout = self.layout(relid, columns)?;
        self.scan(relid, &layout, columns, Seen::Visible, |_| true)
    }

    /// Some columns of the rows of some catalogs, those of transactions that had not ended too.
    pub(crate) fn rows_maybe_visible(&mut self, wanted: &[(u32, &[&str])]) -> Result<Vec<Vec<Values>>> {
        let mut layouts = self.attributes(&wanted.iter().map(|(relid, _)| *relid).collect())?;
        let mut read = |(relid, columns): &(u32, &[&str])| {
            let own = layouts.remove(relid).filter(|layout| has_all(layout, columns));
            let layout = own.map_or_else(|| self.layout(*relid, columns), Ok)?;
            self.scan(*relid, &layout, columns, Seen::Maybe, |_| true)
        };
        wanted.iter().map(&mut read).collect()
    }

    /// One support function of all operator classes that have it, by the class: the one for its own type on both sides.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn support_functions(&mut self, amprocnum: u32) -> Result<HashMap<u32, u32>> {
        let columns = ["amprocfamily", "amproclefttype", "amprocrighttype", "amprocnum", "amproc"];
        let functions = self.rows(PG_AMPROC, &columns)?;
        let functions: HashMap<[u32; 3], u32> = functions
            .iter()
            .filter(|row| number(&row[3]) == amprocnum)
            .map(|row| ([0, 1, 2].map(|i| number(&row[i])), number(&row[4])))
            .collect();
        let classes = self.rows(PG_OPCLASS, &["oid", "opcfamily", "opcintype"])?;
        let function = |row: &Values| {
            let [oid, family, of] = [0, 1, 2].map(|i| number(&row[i]));
            Some((oid, *functions.get(&[family, of, of])?))
        };
        Ok(classes.iter().filter_map(function).collect())
    }

    /// `keep`: of the first column of the catalog, an oid, whether its row is wanted.
    fn scan(
        &mut self,
        relid: u32,
        layout: &[Attribute],
        columns: &[&str],
        seen: Seen,
        keep: impl Fn(u32) -> bool,
    ) -> Result<Vec<Values>> {
        let places: Option<Vec<usize>> =
            columns.iter().map(|c| layout.iter().position(|a| a.attname == *c && !a.attisdropped)).collect();
        let Some(places) = places else {
            return Err(Error::new(
                Kind::Invalid,
                format!("catalog {relid} does not have the columns {}", columns.join(", ")),
            )
            .at(&self.dir.root));
        };
        let storages: Vec<Storage> = layout.iter().map(|a| a.storage).collect();
        let next = self.dir.transactions.map_or(0, |about| about.next_xid);
        let mut found = InCatalog::default();
        let (mut certain, mut doubtful) = (Vec::new(), Vec::new());
        let mut tries = 0;
        loop {
            let mut heap = self.heap(relid)?;
            let xacts = &mut self.xacts;
            let passed = heap.each_tuple(self.dir.checksums, |_, _, tuple| {
                // Most rows of the largest catalog are of other relations: nothing more of them is looked at.
                if !keep(value::number::u32(tuple.data).unwrap_or(0)) {
                    return;
                }
                let mut values = Vec::with_capacity(storages.len());
                let whole = deform(tuple.data, tuple.bitmap, tuple.natts(), &storages, &mut values);
                let status = xacts.status(&tuple.header);
                let is_seen = match seen {
                    Seen::Visible => status.is_shown(),
                    Seen::Maybe => xacts.may_be_visible(&tuple.header),
                };
                if !is_seen {
                    return;
                }
                if whole.is_none() {
                    found.rows += 1;
                    return;
                }
                let row: Values = places.iter().map(|i| bytes(values[*i])).collect();
                if status == Status::Unknown {
                    // The oldest first, as far as numbers that begin again have an order.
                    let age = tuple.header.t_xmin.wrapping_sub(next.wrapping_add(1 << 31));
                    doubtful.push(((age, tuple.header.t_xmax == 0), row));
                } else {
                    certain.push(row);
                }
            })?;
            if !passed.was_cut {
                found.passed = passed;
                break;
            }
            // VACUUM truncates empty blocks at the end: the file as it is now has all rows. One that VACUUM FULL replaced ends empty.
            tries += 1;
            if tries == TRIES || self.heap(relid)?.blocks == 0 {
                return Err(Error::new(Kind::Invalid, "a catalog file was truncated while being read")
                    .detail("only a part of it was read")
                    .hint("run the command again")
                    .at(&heap.path));
            }
            (found, certain, doubtful) = Default::default();
        }
        found.unknown = doubtful.len() as u64;
        self.damage.met(self.called(relid), found);
        // Who takes the last row of several takes one that is known to be visible, or else the newest.
        doubtful.sort_by_key(|(age, _)| *age);
        let mut rows: Vec<Values> = doubtful.into_iter().map(|(_, row)| row).collect();
        rows.append(&mut certain);
        Ok(rows)
    }
}

/// A value of a catalog, which keeps none outside of its rows that is asked for here.
fn bytes(stored: Stored<'_>) -> Option<Vec<u8>> {
    match stored {
        Stored::Fixed(b) | Stored::Varlena(Varlena::Plain(b)) => Some(b.to_vec()),
        Stored::Varlena(Varlena::Compressed(size, method, packed)) => varlena::unpack(size, method, packed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::{self, File};

    use super::*;

    const BLOCK: usize = 8192;

    /// A page with one row of one number, frozen.
    fn page(number: u32) -> Vec<u8> {
        const TUPLE: usize = BLOCK - 32;
        let mut page = vec![0; BLOCK];
        for (at, value) in [(12, 28u16), (14, TUPLE as u16), (16, BLOCK as u16), (18, BLOCK as u16 | 4)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page[24..28].copy_from_slice(&(TUPLE as u32 | 1 << 15 | 28 << 17).to_le_bytes());
        let tuple = &mut page[TUPLE..];
        tuple[..4].copy_from_slice(&2u32.to_le_bytes());
        tuple[18..20].copy_from_slice(&1u16.to_le_bytes());
        tuple[20..22].copy_from_slice(&0x0b00u16.to_le_bytes());
        tuple[22] = 24;
        tuple[24..28].copy_from_slice(&number.to_le_bytes());
        page
    }

    /// What a scan of a catalog of 80 blocks says whose file has `lengths[n]` blocks from the first row of pass n on.
    fn scanned(name: &str, lengths: &[u64]) -> Result<Vec<u32>> {
        let root = std::env::temp_dir().join(format!("leadline-catalog-{}-{name}", std::process::id()));
        let path = root.join("base/1").join(PG_ENUM.to_string());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(root.join("pg_xact")).unwrap();
        fs::write(&path, [page(7), vec![0; 79 * BLOCK]].concat()).unwrap();
        let mut catalog = Catalog::of_files(
            DataDir {
                root: root.clone(),
                major: 16,
                block_size: BLOCK,
                segment_blocks: 131_072,
                checksums: false,
                transactions: None,
                control_lost: None,
            },
            1,
        );
        catalog.know_files([(PG_ENUM, 0, PG_ENUM)].into_iter());
        let layout = [Attribute {
            attname: "oid".into(),
            atttypid: 26,
            attnum: 1,
            atttypmod: -1,
            storage: Storage { attlen: 4, attalign: b'i' },
            attisdropped: false,
            attgenerated: 0,
            missing: None,
            attcompression: 0,
            attnotnull: false,
        }];
        let passes = Cell::new(0);
        let rows = catalog.scan(PG_ENUM, &layout, &["oid"], Seen::Visible, |_| {
            if let Some(blocks) = lengths.get(passes.replace(passes.get() + 1)) {
                File::options().write(true).open(&path).unwrap().set_len(blocks * BLOCK as u64).unwrap();
            }
            true
        });
        fs::remove_dir_all(&root).unwrap();
        Ok(rows?.iter().map(|row| number(&row[0])).collect())
    }

    #[test]
    fn a_catalog_that_is_truncated_while_it_is_read_is_read_again() {
        assert_eq!(scanned("never", &[]).unwrap(), [7]);
        assert_eq!(scanned("once", &[40]).unwrap(), [7]);
        // The reader holds 32 blocks: each pass finds less than the one before.
        assert_eq!(scanned("thrice", &[72, 66, 40]).unwrap(), [7]);
        for (name, lengths) in [("replaced", [0].as_slice()), ("always", &[75, 70, 65, 60])] {
            assert_eq!(scanned(name, lengths).unwrap_err().message, "a catalog file was truncated while being read");
        }
    }
}
