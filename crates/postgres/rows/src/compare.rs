//! What the catalogs of a data directory say of its files, against the files: missing, odd, too short, of no relation.
//!
//! Only of a server that was stopped in order are catalog and files of one moment. Of a running or crashed one a file that is missing
//! or odd is wrong all the same: the server removes none before the catalog without it is written. Of a copy without its log nothing
//! of this can be said.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use leadline_datadir::{Condition, DataDir, FileName, Server, GLOBAL_TABLESPACE};
use leadline_errors::{Error, Result};

use crate::catalog::{databases, number, Catalog, Class, Database};
use crate::heap_file::HeapFile;
use crate::lost_logs::{lost_logs, LostLog};

const PG_CLASS: u32 = 1259;
/// Of `base`, beside the databases: what sorts and hashes spill.
const TEMPORARY: &str = "pgsql_tmp";

/// Something wrong with the files as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Fault {
    /// missing, tablespace, odd, short, orphan, catalog; xact: of pg_xact and pg_multixact.
    pub class: &'static str,
    pub path: PathBuf,
    /// database.schema.name, empty of a file of no relation.
    pub relation: String,
    /// Of the files that are there.
    pub bytes: u64,
    pub wanted: String,
    pub found: String,
}

/// All that is wrong with the files of a data directory.
///
/// # Errors
/// When its databases cannot be read.
pub fn compare(root: &Path) -> Result<Vec<Fault>> {
    let server = Condition::of(root).server;
    if server == Server::Unknown {
        return Ok(Vec::new());
    }
    let is_stopped = server == Server::Stopped;
    let dir = DataDir::open(root)?;
    let logs = lost_logs(&dir).into_iter().map(of_log);
    if matches!(server, Server::Copied | Server::Restoring) {
        return Ok(logs.collect());
    }
    let mut faults = Look::at(&dir, is_stopped)?;
    if !is_stopped && !faults.is_empty() {
        // What was dropped between the look at the catalog and that at the files is in none of two looks.
        let again = Look::at(&dir, is_stopped)?;
        faults.retain(|fault| again.contains(fault));
    }
    faults.extend(logs);
    faults.sort_by(|a, b| (a.class, &a.path).cmp(&(b.class, &b.path)));
    Ok(faults)
}

struct Look<'d> {
    dir: &'d DataDir,
    is_stopped: bool,
    /// Numbers of the files that relations have, by folder.
    known: HashMap<PathBuf, HashSet<u32>>,
    /// The relations of tablespaces that are not there.
    lost_spaces: BTreeMap<u32, Vec<String>>,
    faults: Vec<Fault>,
}

impl Look<'_> {
    fn at(dir: &DataDir, is_stopped: bool) -> Result<Vec<Fault>> {
        let mut look =
            Look { dir, is_stopped, known: HashMap::new(), lost_spaces: BTreeMap::new(), faults: Vec::new() };
        let all = databases(dir)?;
        let mut whole = true;
        for database in &all {
            if let Err(e) = look.database(database) {
                whole = false;
                let folder = dir.folder(database.oid, database.dattablespace, 0).unwrap_or_else(|_| dir.root.clone());
                look.faults.push(of_catalog(&database.datname, folder, &e));
            }
        }
        for (space, relations) in std::mem::take(&mut look.lost_spaces) {
            let (count, first) = (relations.len(), relations.into_iter().min().unwrap_or_default());
            let path = dir.root.join("pg_tblspc").join(space.to_string());
            let wanted = match count {
                1 => format!("the tablespace of {first}"),
                count => format!("the tablespace of {count} relations, such as {first},"),
            };
            look.faults.push(Fault {
                class: "tablespace",
                path,
                relation: first,
                bytes: 0,
                wanted,
                found: "none".into(),
            });
        }
        // A catalog that cannot be read does not say which files it has.
        if is_stopped && whole {
            look.orphans(&all);
        }
        Ok(look.faults)
    }

    fn database(&mut self, database: &Database) -> Result<()> {
        let mut catalog = Catalog::open(self.dir, database)?;
        let pages: HashMap<u32, u32> = if self.is_stopped {
            let rows = catalog.rows(PG_CLASS, &["oid", "relpages"])?;
            rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
        } else {
            HashMap::new()
        };
        self.known.entry(self.dir.folder(database.oid, database.dattablespace, 0)?).or_default();
        for class in catalog.classes.values() {
            let filenode = catalog.filenode(class);
            if filenode == 0 || class.relpersistence == b't' {
                continue;
            }
            let relation = format!("{}.{}.{}", database.datname, class.schema, class.relname);
            let Ok(folder) = self.dir.folder(database.oid, database.dattablespace, class.reltablespace) else {
                self.lost_spaces.entry(class.reltablespace).or_default().push(relation);
                continue;
            };
            let path = folder.join(filenode.to_string());
            let is_new = self.known.entry(folder).or_default().insert(filenode);
            if is_new || class.reltablespace != GLOBAL_TABLESPACE {
                self.relation(class, relation, path, pages.get(&class.oid).copied());
            }
        }
        Ok(())
    }

    fn relation(&mut self, class: &Class, relation: String, path: PathBuf, pages: Option<u32>) {
        let mut fault = |class, bytes, wanted: &str, found: String| {
            let (path, relation) = (path.clone(), relation.clone());
            self.faults.push(Fault { class, path, relation, bytes, wanted: wanted.into(), found });
        };
        let about = match fs::metadata(&path) {
            Ok(about) if about.is_file() => about,
            Ok(about) => {
                return fault(
                    "odd",
                    0,
                    "a regular file",
                    if about.is_dir() { "a folder" } else { "a pipe, device or socket" }.into(),
                )
            }
            Err(e) if e.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                return fault("missing", 0, "a file", "none".into())
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return,
            Err(e) => return fault("odd", 0, "a regular file", e.to_string()),
        };
        // A crash empties unlogged relations, and leaves what was counted of them.
        let Some(pages) = pages.filter(|_| class.relpersistence == b'p') else { return };
        let file = HeapFile::open(self.dir, path.clone(), &BTreeSet::new());
        if let Ok(blocks) = file.map(|file| file.blocks) {
            if i32::try_from(pages).is_ok_and(|pages| pages > 0) && blocks < pages {
                let wanted = format!("at least {pages} blocks, the last count in pg_class.relpages");
                fault("short", about.len(), &wanted, format!("{blocks} blocks"));
            }
        }
    }

    /// Files of no relation, and folders of no database.
    fn orphans(&mut self, all: &[Database]) {
        let spaces = fs::read_dir(self.dir.root.join("base")).into_iter().flatten().flatten();
        for entry in spaces.filter(|entry| entry.file_name() != TEMPORARY) {
            let is_database = all.iter().any(|d| entry.file_name().to_str() == Some(&d.oid.to_string()));
            if !is_database && entry.path().is_dir() {
                let bytes = files_of(&entry.path()).map(|(_, bytes)| bytes).sum();
                self.orphan(entry.path(), bytes, "a folder of a database");
            }
        }
        for (folder, known) in std::mem::take(&mut self.known) {
            let mut found: BTreeMap<u32, (PathBuf, u64)> = BTreeMap::new();
            for (path, bytes) in files_of(&folder) {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let Some(filenode) = FileName::parse_any(name).map(|name| name.filenode) else { continue };
                let is_temporary = FileName::parse(name).is_none();
                if is_temporary || !known.contains(&filenode) {
                    // The first file of a relation stands for all of them.
                    let (_, all) = found.entry(filenode).or_insert_with(|| (path, 0));
                    *all += bytes;
                }
            }
            for (path, bytes) in found.into_values() {
                self.orphan(path, bytes, "a file of a relation");
            }
        }
    }

    fn orphan(&mut self, path: PathBuf, bytes: u64, wanted: &str) {
        let found = format!("{bytes} bytes that are not in the catalog");
        self.faults.push(Fault { class: "orphan", path, relation: String::new(), bytes, wanted: wanted.into(), found });
    }
}

fn of_log(lost: LostLog) -> Fault {
    let LostLog { path, wanted, found } = lost;
    let bytes = fs::metadata(&path).map_or(0, |about| about.len());
    Fault { class: "xact", path, relation: String::new(), bytes, wanted, found }
}

fn of_catalog(datname: &str, folder: PathBuf, e: &Error) -> Fault {
    let (wanted, found) = ("a readable catalog".into(), e.to_string());
    Fault { class: "catalog", path: folder, relation: datname.into(), bytes: 0, wanted, found }
}

/// The regular files of a folder in the order of their names, with their bytes.
fn files_of(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| {
        let about = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some((path, about.len()))
    })
}
