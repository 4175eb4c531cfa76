//! Catalogs that are damaged: what is lost of them is told, and taken from elsewhere where initdb made the same there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use leadline_page::postgres::relmap;

use super::attributes::{has_all, own_layout};
use super::{number, Attribute, Catalog, Seen, FIRST_NORMAL_OID, PG_ATTRIBUTE, PG_NAMESPACE};
use crate::damage::Damage;
use leadline_datadir::{DataDir, FileName, DATA_FILE, DEFAULT_TABLESPACE};
use leadline_errors::{Error, Kind, Result};

/// Schemas that initdb makes, by their oids.
const BUILT_IN_SCHEMAS: [(&str, &str); 3] = [("11", "pg_catalog"), ("99", "pg_toast"), ("2200", "public")];

/// Whether an error is that something is not there or damaged, so that what does not need it can be read all the same.
pub fn is_loss(e: &Error) -> bool {
    matches!(e.kind, Kind::NotFound | Kind::Invalid | Kind::Storage)
}

impl Catalog {
    /// The names of schemas by their oids as text. Where rows of theirs are lost, those that initdb makes are known.
    pub(super) fn schemas(&mut self) -> Result<HashMap<String, String>> {
        let rows = self.rows(PG_NAMESPACE, &["oid", "nspname"])?;
        let mut schemas: HashMap<String, String> =
            rows.iter().map(|r| (number(&r[0]).to_string(), self.name(&r[1]))).collect();
        let named = self.classes.values().map(|c| &c.schema);
        let lost: BTreeSet<String> = named.filter(|schema| !schemas.contains_key(*schema)).cloned().collect();
        if !lost.is_empty() {
            self.damage.say(format!("pg_namespace has no row for schema {}", Vec::from_iter(lost).join(", ")));
            for (oid, name) in BUILT_IN_SCHEMAS {
                schemas.entry(oid.into()).or_insert_with(|| name.into());
            }
        }
        Ok(schemas)
    }

    /// Says of which relations there are columns and nothing else. Only where a server ended in order are all catalogs of one moment.
    ///
    /// # Errors
    /// When `pg_attribute` cannot be read.
    pub fn look_for_lost_classes(&mut self) -> Result<()> {
        if self.dir.transactions.is_none_or(|about| !about.is_final) {
            return Ok(());
        }
        let layout = own_layout(self.dir.major);
        let rows = self.scan(PG_ATTRIBUTE, &layout, &["attrelid"], Seen::Visible, |_| true)?;
        let lost: BTreeSet<u32> =
            rows.iter().map(|row| number(&row[0])).filter(|oid| !self.classes.contains_key(oid)).collect();
        if let Some(first) = lost.first() {
            let (count, more) = (lost.len(), if lost.len() > 1 { ", the first of them" } else { "" });
            let relations = if count == 1 { "relation" } else { "relations" };
            self.damage.say(format!(
                "pg_class has no row for {count} {relations} that pg_attribute has columns of{more} with OID {first}"
            ));
        }
        Ok(())
    }

    /// The columns up to the first that is missing: where the values of those behind it are, nobody knows.
    pub(super) fn whole(&mut self, relid: u32, mut found: BTreeMap<i16, Attribute>) -> Vec<Attribute> {
        let there = (1..).zip(found.keys()).take_while(|(number, attnum)| number == *attnum).count() as i16;
        let wanted = self.classes.get(&relid).map_or(0, |class| class.relnatts);
        let last = found.keys().last().copied().unwrap_or(0).max(wanted);
        if there < last {
            let behind: Vec<String> = found.split_off(&(there + 1)).into_values().map(|a| a.attname).collect();
            let (name, first) = (self.called(relid), there + 1);
            let which = if first == last { format!("column {first}") } else { format!("column {first} of {last}") };
            let also = match behind.len() {
                0 if first == last => "; it is left out".into(),
                0 => "; it and those behind it are left out".into(),
                _ => format!("; it and those behind it are left out: {}", behind.join(", ")),
            };
            self.damage.say(format!("pg_attribute has no row for {which} of {name}{also}"));
        }
        found.into_values().collect()
    }

    /// The columns of a catalog: where they are lost, those that another database has, since initdb gave all of them the same.
    pub(super) fn layout(&mut self, relid: u32, columns: &[&str]) -> Result<Vec<Attribute>> {
        let wanted = HashSet::from([relid]);
        let own = self.attributes(&wanted)?.remove(&relid).unwrap_or_default();
        if has_all(&own, columns) || relid >= FIRST_NORMAL_OID {
            return Ok(own);
        }
        let other = self.siblings().find_map(|mut other| {
            let layout = other.attributes(&wanted).ok()?.remove(&relid)?;
            has_all(&layout, columns).then_some((other.database, layout))
        });
        let Some((database, layout)) = other else { return Ok(own) };
        let name = self.called(relid);
        self.damage.say(format!(
            "pg_attribute has not all columns of {name}; they are taken from the database with OID {database}"
        ));
        Ok(layout)
    }

    /// The catalogs of the other databases in the default tablespace that can be read.
    pub(super) fn siblings(&self) -> impl Iterator<Item = Catalog> + use<> {
        let (dir, own) = (self.dir.clone(), self.database);
        let all = self.dir.database_folders().unwrap_or_default();
        all.into_iter()
            .filter(move |oid| *oid != own)
            .filter_map(move |oid| Catalog::bare(&dir, oid, DEFAULT_TABLESPACE).ok())
    }
}

/// The map of a folder (`read_map`), or the files that initdb made there, when `first` is among them.
pub(super) fn map(dir: &DataDir, folder: PathBuf, first: u32, damage: &mut Damage) -> Result<HashMap<u32, u32>> {
    read_map(&folder).or_else(|e| {
        let made = map_of_initdb(&folder);
        if !is_loss(&e) || !made.contains_key(&first) {
            return Err(e);
        }
        let file = folder.join("pg_filenode.map");
        let file = file.strip_prefix(&dir.root).unwrap_or(&file).display();
        damage.say(format!("{file}: {e}; catalogs are read from the files that initdb made for them"));
        Ok(made)
    })
}

/// Which files the catalogs have that `pg_class` cannot name, as it is one of them.
fn read_map(folder: &Path) -> Result<HashMap<u32, u32>> {
    let path = folder.join("pg_filenode.map");
    let bytes = std::fs::read(&path).map_err(|e| Error::reading(&path, DATA_FILE, &e))?;
    let parsed = relmap(&bytes);
    let map = parsed.map_err(|e| {
        Error::new(Kind::Invalid, "the map of the catalog files (pg_filenode.map) is damaged")
            .detail(e.to_string())
            .at(&path)
    })?;
    Ok(map.into_iter().collect())
}

/// The same without the map: initdb numbers each file as its catalog, and a file with another number never gets such a one again.
fn map_of_initdb(folder: &Path) -> HashMap<u32, u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A file that has another number now is emptied at once, and removed at the next checkpoint.
    let entries = entries.filter(|entry| entry.metadata().is_ok_and(|about| about.len() > 0));
    let files = entries.filter_map(|entry| entry.file_name().to_str().and_then(FileName::parse));
    files.map(|file| (file.filenode, file.filenode)).filter(|(oid, _)| *oid < FIRST_NORMAL_OID).collect()
}
