//! Which relations are checked, and by what.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use leadline_datadir::DataDir;
use leadline_errors::{Kind, Result};
use leadline_rows::catalog::{databases, Catalog};
use leadline_rows::relation_of_file;

use crate::blocks::Settled;
use crate::heap::about::About;
use crate::index::Index;
use crate::order::{read_enums, Collations};
use crate::problem::{Level, Problem, Report};
use crate::progress::Progress;
use crate::target::{Definitions, Orders, Target};
use crate::{brin, btree, gin, gist, hash, heap, sequence, spgist};

/// What was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Summary {
    pub relations: u64,
    /// Problems by class.
    pub classes: BTreeMap<&'static str, u64>,
    /// What was not compared, by the reason.
    pub skipped: BTreeMap<String, u64>,
}

/// Checks all relations of a data directory, or the one that a file is of. `take` is given each problem, and says whether to go on.
///
/// # Errors
/// When there is no such relation, or catalogs or files cannot be read.
pub fn check(path: &Path, level: Level, progress: &Progress, take: &mut dyn FnMut(Problem) -> bool) -> Result<Summary> {
    let mut report = Report::new(take);
    let mut relations = 0;
    if path.is_dir() {
        let dir = DataDir::open(path)?;
        let mut has_shared = false;
        for database in databases(&dir)?.iter().filter(|database| !database.is_half_dropped) {
            // Before the catalog is read: what it says may be newer than settled pages, never older.
            let settled = Settled::of(&dir.root);
            let of = Definitions::of(Catalog::open(&dir, database)?, settled)?;
            let mut oids: Vec<u32> = of.catalog.classes.keys().copied().collect();
            oids.sort_unstable();
            progress.total_relations.fetch_add(oids.len() as u64, Relaxed);
            for oid in oids {
                let target = Target { of: &of, class: &of.catalog.classes[&oid] };
                progress.relations.fetch_add(1, Relaxed);
                if report.is_stopped() || has_shared && target.is_shared() || !target.has_file() {
                    continue;
                }
                relations += 1;
                relation(&target, level, &mut report)?;
            }
            has_shared = true;
        }
    } else {
        let settled = Settled::of(&DataDir::around(path)?.root);
        let (catalog, oid) = relation_of_file(path)?;
        let of = Definitions::of(catalog, settled)?;
        relations += 1;
        relation(&Target { of: &of, class: &of.catalog.classes[&oid] }, level, &mut report)?;
    }
    Ok(Summary { relations, classes: report.classes, skipped: report.skipped })
}

impl Definitions {
    fn of(mut catalog: Catalog, settled: Settled) -> Result<Definitions> {
        let all: HashSet<u32> = catalog.classes.keys().copied().collect();
        let attributes: HashMap<_, _> = catalog.attributes(&all)?;
        let indexes = Index::all(&mut catalog)?;
        let rows = About::of(&mut catalog, &attributes)?;
        let orders = Orders { collations: Collations::read(&mut catalog)?, enums: read_enums(&mut catalog)? };
        Ok(Definitions { catalog, attributes, indexes, settled, rows, orders })
    }
}

impl Target<'_> {
    fn is_shared(&self) -> bool {
        self.class.reltablespace == leadline_datadir::GLOBAL_TABLESPACE
    }

    fn has_file(&self) -> bool {
        matches!(self.class.relkind, b'r' | b'i' | b't' | b'm' | b'S') && self.class.relpersistence != b't'
    }
}

/// One relation. A file that is gone is no matter of this: the files of a data directory are compared with its catalogs elsewhere.
fn relation(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    report.relation = target.name();
    let done = by_kind(target, level, report);
    match done {
        Err(e) if matches!(e.kind, Kind::NotFound) => {
            report.skipped("relations without a file", 1);
            Ok(())
        }
        done => done,
    }
}

/// Access methods have the same oids in each major (pg_am.dat).
fn by_kind(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    match (target.class.relkind, target.class.relam) {
        (b'r' | b't' | b'm', heap::HEAP) => heap::check(target, level, report),
        (b'S', _) => sequence::check(target, report),
        (b'i', 403) => btree::check(target, report),
        (b'i', 405) => hash::check(target, level, report),
        (b'i', 783) => gist::check(target, level, report),
        (b'i', 2742) => gin::check(target, level, report),
        (b'i', 3580) => brin::check(target, level, report),
        (b'i', 4000) => spgist::check(target, level, report),
        _ => {
            report.skipped("relations of an access method that does not come with PostgreSQL", 1);
            Ok(())
        }
    }
}
