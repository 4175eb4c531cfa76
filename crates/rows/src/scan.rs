//! The rows of one relation: found by its name or its file, read block by block, every value as text.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::catalog::{databases, Attribute, Catalog, Class, Database};
use crate::data_dir::DataDir;
use crate::error::{Error, Kind, Result};
use crate::heap_file::{tuples, HeapFile, Tuple};
use crate::toast::Toast;
use crate::tuple::{deform, Storage, Stored};
use crate::value::{self, Types};
use crate::varlena::{self, Varlena};
use crate::xact::{Status, Xacts};

/// A column of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// As the relation calls it.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// Oid of its type, of a domain that of what it is made of.
    pub base: u32,
    /// Whether values are printed as the server does; else they are bytes in hex.
    pub is_known: bool,
}

/// Where a row is and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Place {
    pub block: u32,
    pub lp: u16,
    pub xmin: u32,
    pub xmax: u32,
    pub status: Status,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Row {
    pub place: Place,
    pub values: Vec<Option<String>>,
}

/// What could not be read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unread {
    /// Pages that are none of a table, and what is left of one at the end of the last file.
    pub pages: u64,
    /// Blocks that were there when the scan began, and were not when they were to be read.
    pub gone: u64,
    /// Tuples whose bytes do not fit the columns.
    pub rows: u64,
    /// Values that were stored outside and are not all there, or cannot be unpacked.
    pub values: u64,
}

/// The rows of a relation, from its first block to its last.
pub struct RowScan {
    /// schema.name
    pub relation: String,
    /// Without the dropped ones.
    pub columns: Vec<Column>,
    /// What could not be read so far.
    pub unread: Unread,
    catalog: Catalog,
    types: Types,
    attributes: Vec<Attribute>,
    storages: Vec<Storage>,
    heap: HeapFile,
    toast: HashMap<u32, Option<Toast>>,
    dead: bool,
    block: u32,
}

impl RowScan {
    /// `path` is a data directory, then `relation` is `[schema.]name` in `database`; or the file of a relation.
    ///
    /// # Errors
    /// When there is no such thing, it is not clear which one is meant, or it cannot be read.
    pub fn open(path: &Path, relation: Option<&str>, database: Option<&str>, dead: bool) -> Result<RowScan> {
        let (mut catalog, oid) = if path.is_file() {
            if relation.is_some() || database.is_some() {
                let message = "a file of a relation says itself which relation and database it is of";
                return Err(Error::new(Kind::Usage, message)
                    .hint("leadline rows DATA_DIR TABLE --database NAME")
                    .at(path));
            }
            by_file(path)?
        } else {
            let dir = DataDir::open(path)?;
            let database = choose(&dir, databases(&dir)?, database)?;
            let catalog = Catalog::open(&dir, &database)?;
            let Some(relation) = relation else {
                return Err(Error::new(Kind::Usage, "which table?")
                    .detail(format!("database {} has {}", database.datname, some_names(&catalog)))
                    .hint("leadline rows DATA_DIR [SCHEMA.]TABLE"));
            };
            let oid = by_name(&catalog, relation, &database.datname)?;
            (catalog, oid)
        };
        let class = catalog.classes[&oid].clone();
        let attributes = catalog.attributes(&HashSet::from([oid]))?.remove(&oid).unwrap_or_default();
        let wanted: Vec<u32> = attributes.iter().filter(|a| !a.attisdropped).map(|a| a.atttypid).collect();
        let types = catalog.types(&wanted)?;
        let column = |a: &Attribute| Column {
            name: a.attname.clone(),
            type_name: types.0.get(&a.atttypid).map_or_else(|| a.atttypid.to_string(), |t| t.name.clone()),
            base: types.base(a.atttypid),
            is_known: types.is_known(a.atttypid),
        };
        let columns = attributes.iter().filter(|a| !a.attisdropped).map(column).collect();
        let heap = catalog.heap(oid)?;
        Ok(RowScan {
            relation: format!("{}.{}", class.schema, class.relname),
            columns,
            unread: Unread { pages: heap.is_cut.into(), ..Unread::default() },
            storages: attributes.iter().map(|a| a.storage).collect(),
            attributes,
            catalog,
            types,
            heap,
            toast: HashMap::new(),
            dead,
            block: 0,
        })
    }

    /// Blocks read and blocks there are.
    pub fn progress(&self) -> (u32, u32) {
        (self.block, self.heap.blocks)
    }

    /// The file that a block is in.
    pub fn file_of(&self, block: u32) -> PathBuf {
        self.heap.file_of(block)
    }

    /// The rows of the next blocks, as many blocks as give about this many rows or bytes; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn next_rows(&mut self, about_rows: usize) -> Result<Option<Vec<Row>>> {
        /// Text that is collected before it is handed over.
        const BYTES: usize = 4 << 20;
        if self.block >= self.heap.blocks {
            return Ok(None);
        }
        let mut rows = Vec::new();
        let mut bytes = 0;
        let mut buffer = vec![0; 16 * self.heap.block_size];
        while rows.len() < about_rows && bytes < BYTES && self.block < self.heap.blocks {
            let read = self.heap.read(self.block, &mut buffer)?;
            if read == 0 {
                let next = self.heap.next_file(self.block);
                self.unread.gone += u64::from(next - self.block);
                self.block = next;
                continue;
            }
            let mut done = 0;
            for page in buffer.chunks_exact(self.heap.block_size).take(read) {
                self.page(page, self.block + done, &mut rows, &mut bytes)?;
                done += 1;
                if rows.len() >= about_rows || bytes >= BYTES {
                    break;
                }
            }
            self.block += done;
        }
        Ok(Some(rows))
    }

    fn page(&mut self, page: &[u8], block: u32, rows: &mut Vec<Row>, bytes: &mut usize) -> Result<()> {
        let Some(items) = tuples(page) else {
            self.unread.pages += 1;
            return Ok(());
        };
        for (lp, item) in items {
            let Some(tuple) = Tuple::parse(item) else {
                self.unread.rows += 1;
                continue;
            };
            let status = self.catalog.xacts.status(&tuple.header);
            if !self.dead && !status.is_visible() {
                continue;
            }
            let mut stored = Vec::new();
            if deform(tuple.data, tuple.bitmap, tuple.natts(), &self.storages, &mut stored).is_none() {
                self.unread.rows += 1;
                continue;
            }
            let mut values = Vec::with_capacity(self.columns.len());
            for (i, stored) in stored.into_iter().enumerate() {
                if !self.attributes[i].attisdropped {
                    let value = self.value(i, stored)?;
                    *bytes += value.as_ref().map_or(0, String::len);
                    values.push(value);
                }
            }
            let place = Place { block, lp, xmin: tuple.header.t_xmin, xmax: tuple.header.t_xmax, status };
            rows.push(Row { place, values });
        }
        Ok(())
    }

    fn value(&mut self, i: usize, stored: Stored<'_>) -> Result<Option<String>> {
        let attribute = &self.attributes[i];
        let oid = attribute.atttypid;
        let print = |bytes: &[u8]| {
            let mut out = String::new();
            self.types.print(oid, bytes, &mut out);
            out
        };
        match stored {
            Stored::Null => Ok(None),
            Stored::Missing => Ok(attribute.missing.as_deref().map(print)),
            Stored::Fixed(b) | Stored::Varlena(Varlena::Plain(b)) => Ok(Some(print(b))),
            Stored::Varlena(Varlena::Compressed(size, method, packed)) => {
                match varlena::unpack(size, method, packed).as_deref().map(print) {
                    Some(text) => Ok(Some(text)),
                    None => Ok(Some(self.broken(packed))),
                }
            }
            Stored::Varlena(Varlena::External(external)) => {
                let relid = external.va_toastrelid;
                if let std::collections::hash_map::Entry::Vacant(place) = self.toast.entry(relid) {
                    let opened = if self.catalog.classes.contains_key(&relid) {
                        Some(Toast::open(self.catalog.heap(relid)?, &mut Xacts::new(&self.catalog.dir))?)
                    } else {
                        None
                    };
                    place.insert(opened);
                }
                let found = match self.toast.get_mut(&relid) {
                    Some(Some(toast)) => toast.fetch(&external)?,
                    _ => None,
                };
                match found {
                    Some(bytes) => Ok(Some(print(&bytes))),
                    None => {
                        self.unread.values += 1;
                        Ok(Some(format!("<value {} of toast table {relid} is not there>", external.va_valueid)))
                    }
                }
            }
        }
    }

    fn broken(&mut self, packed: &[u8]) -> String {
        self.unread.values += 1;
        let mut out = "<cannot be unpacked> ".to_owned();
        value::hex(packed, &mut out);
        out
    }
}

/// Relations with rows: tables, materialised views, toast tables, sequences.
fn has_rows(class: &Class) -> bool {
    matches!(class.relkind, b'r' | b'm' | b't' | b'S')
}

fn choose(dir: &DataDir, all: Vec<Database>, wanted: Option<&str>) -> Result<Database> {
    let names = |all: &[Database]| all.iter().map(|d| d.datname.clone()).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = wanted {
        let there = names(&all);
        return all.into_iter().find(|d| d.datname == wanted).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no database {wanted}"))
                .detail(format!("there are {there}"))
                .at(&dir.root)
        });
    }
    let mut own: Vec<Database> = all.into_iter().filter(|d| !d.datistemplate).collect();
    match own.len() {
        1 => Ok(own.remove(0)),
        n => Err(Error::new(Kind::Usage, format!("which of {n} databases?"))
            .detail(format!("there are {}", names(&own)))
            .hint("name one with --database")
            .at(&dir.root)),
    }
}

fn some_names(catalog: &Catalog) -> String {
    let own = |c: &&Class| c.relkind == b'r' && c.schema != "pg_catalog" && c.schema != "information_schema";
    let mut names: Vec<_> =
        catalog.classes.values().filter(own).map(|c| format!("{}.{}", c.schema, c.relname)).collect();
    names.sort();
    match names.len() {
        0 => "no tables of its own".into(),
        n if n > 10 => format!("{} and {} more", names[..10].join(", "), n - 10),
        _ => names.join(", "),
    }
}

fn by_name(catalog: &Catalog, wanted: &str, database: &str) -> Result<u32> {
    let (schema, relname) = wanted.split_once('.').map_or((None, wanted), |(s, n)| (Some(s), n));
    let here = || catalog.classes.values().filter(|c| has_rows(c));
    let mut found: Vec<&Class> =
        here().filter(|c| c.relname == relname && schema.is_none_or(|s| s == c.schema)).collect();
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
            if let Some(other) =
                catalog.classes.values().find(|c| c.relname == relname && schema.is_none_or(|s| s == c.schema))
            {
                let kind = match other.relkind {
                    b'v' => "a view",
                    b'i' | b'I' => "an index",
                    b'p' => "a partitioned table, whose partitions have the rows",
                    b'f' => "a foreign table",
                    _ => "of a kind without rows",
                };
                return Err(Error::new(Kind::Usage, format!("{wanted} has no rows of its own: it is {kind}")));
            }
            let near = here()
                .filter(|c| schema.is_none_or(|s| distance(s, &c.schema) <= 2))
                .map(|c| (distance(relname, &c.relname), c.schema != "public", &c.schema, &c.relname))
                .filter(|n| n.0 <= 2.max(relname.len() / 3))
                .min();
            let hint = near.map_or_else(String::new, |n| format!("did you mean {}.{}?", n.2, n.3));
            Err(Error::new(Kind::NotFound, format!("there is no table {wanted} in database {database}"))
                .detail(format!("it has {}", some_names(catalog)))
                .hint(hint))
        }
        _ => {
            let mut names: Vec<_> = found.iter().map(|c| format!("{}.{}", c.schema, c.relname)).collect();
            names.sort();
            Err(Error::new(Kind::Usage, format!("which {wanted}?")).detail(format!("there are {}", names.join(", "))))
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
    let dir = DataDir::around(path)?;
    let part = |n: usize| {
        let full = std::path::absolute(path).ok()?;
        let name = full.ancestors().nth(n)?.file_name()?.to_str()?.to_owned();
        Some(name)
    };
    let not_one = |detail: &str| Error::new(Kind::Invalid, "this is not the file of a table").detail(detail).at(path);
    let filenode: u32 = part(0)
        .and_then(|n| n.split('.').next()?.parse().ok())
        .ok_or_else(|| not_one("the file of a table is a number, as base/16384/16402"))?;
    let all = databases(&dir)?;
    let folder = part(1).unwrap_or_default();
    let database =
        if folder == "global" { all.first().cloned() } else { all.into_iter().find(|d| folder.parse() == Ok(d.oid)) };
    let database = database.ok_or_else(|| not_one("there is no database of its folder's number"))?;
    let catalog = Catalog::open(&dir, &database)?;
    let found = catalog.classes.values().find(|c| c.relfilenode_is(&catalog, filenode, folder == "global"));
    let class = found.ok_or_else(|| not_one("no relation of its database has this file now"))?;
    if !has_rows(class) {
        return Err(not_one(&format!("it belongs to {}.{}, which has no rows", class.schema, class.relname))
            .hint("leadline page show FILE takes its pages apart"));
    }
    let oid = class.oid;
    Ok((catalog, oid))
}

impl Class {
    fn relfilenode_is(&self, catalog: &Catalog, filenode: u32, global: bool) -> bool {
        catalog.filenode(self) == filenode && global == (self.reltablespace == 1664)
    }
}
