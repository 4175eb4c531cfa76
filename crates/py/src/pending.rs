//! `pending_scan` and `OldPages`: what is in an old form.

use std::path::PathBuf;

use leadline_pending::{relations, scan, Count, Kind, Look, OldPages as Pages, Reason, Relation, Tally, Wanted, What};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::error::Error;

/// (name, bit, whether it is of rows) of each reason.
pub(crate) fn reasons() -> Vec<(&'static str, u16, bool)> {
    Reason::ALL.into_iter().map(|r| (r.as_str(), r.bit(), r.is_of_rows())).collect()
}

/// The name or the number of a table or database.
#[derive(FromPyObject)]
pub(crate) enum Named {
    Oid(u32),
    Name(String),
}

impl Named {
    fn wanted(&self) -> Wanted<'_> {
        match self {
            Named::Oid(oid) => Wanted::Oid(*oid),
            Named::Name(name) => Wanted::Name(name),
        }
    }
}

/// What is old in each relation of a data directory, or in one of them.
#[allow(clippy::too_many_arguments)] // as Python names them
#[pyfunction]
#[pyo3(signature = (path, table=None, database=None, oldest_running=None, progress=None, threads=0, verify=false))]
pub(crate) fn pending_scan<'py>(
    py: Python<'py>,
    path: PathBuf,
    table: Option<Named>,
    database: Option<Named>,
    oldest_running: Option<u32>,
    progress: Option<Py<PyAny>>,
    threads: usize,
    verify: bool,
) -> PyResult<Pending<'py>> {
    let threads = if threads == 0 { std::thread::available_parallelism().map_or(1, Into::into) } else { threads };
    let mut failed = None;
    let mut go_on = |done: u64, all: u64| {
        let call = |py: Python<'_>| -> PyResult<()> {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |p| p.call1(py, (done, all)).map(|_| ()))
        };
        if failed.is_none() {
            failed = Python::attach(call).err();
        }
        failed.is_none()
    };
    let look = || -> Result<_, Error> {
        let found = relations(&path, table.as_ref().map(Named::wanted), database.as_ref().map(Named::wanted))?;
        let tallies = scan(&found.relations, Look { oldest_running, verify, threads }, &mut go_on)?;
        Ok((found, tallies.unwrap_or_default()))
    };
    let (found, tallies) = py.detach(look)?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let relations = found.relations.iter().zip(&tallies).map(|(relation, tally)| of_relation(py, relation, tally));
    Ok(Pending { relations: relations.collect::<PyResult<_>>()?, refused: found.refused, damage: found.damage })
}

#[derive(IntoPyObject)]
pub(crate) struct Pending<'py> {
    relations: Vec<OfRelation<'py>>,
    refused: Vec<(String, String)>,
    damage: Vec<String>,
}

/// Rows, pages and bytes.
type Counted = (u64, u64, u64);

#[derive(IntoPyObject)]
struct OfRelation<'py> {
    database: String,
    relation: String,
    oid: u32,
    is_unlogged: bool,
    is_table: bool,
    blocks: u32,
    pages: u64,
    reasons: Bound<'py, PyDict>,
    any: Counted,
    in_progress: u64,
    unknown: u64,
    unknown_why: Vec<String>,
    missing: Vec<String>,
    unread_pages: u64,
    unread_rows: u64,
    gone_pages: u64,
    vanished: bool,
    absent: Option<String>,
}

fn of_relation<'py>(py: Python<'py>, relation: &Relation, tally: &Tally) -> PyResult<OfRelation<'py>> {
    let counted = |count: Count| (count.rows, count.pages, count.bytes);
    let reasons = Reason::ALL.into_iter().filter(|r| tally.of(*r) != Count::default());
    Ok(OfRelation {
        database: relation.database.clone(),
        relation: relation.name.clone(),
        oid: relation.oid,
        is_unlogged: relation.is_unlogged,
        is_table: matches!(relation.what, What::Table(_)),
        blocks: relation.file.blocks,
        pages: tally.pages,
        reasons: reasons.map(|reason| (reason.as_str(), counted(tally.of(reason)))).into_py_dict(py)?,
        any: counted(tally.any),
        in_progress: tally.in_progress,
        unknown: tally.unknown,
        unknown_why: tally.reasons.iter().cloned().collect(),
        missing: relation.file.holes_in_words(),
        unread_pages: tally.unread_pages,
        unread_rows: tally.unread_rows,
        gone_pages: tally.gone_pages,
        vanished: tally.vanished,
        absent: relation.absent.clone(),
    })
}

type PageRows = (u32, usize, Vec<(u16, u16, u16, usize)>);

#[pyclass(frozen, module = "leadline._core.pending")]
pub(crate) struct OldPages {
    pages: Mutex<Pages>,
}

#[pymethods]
impl OldPages {
    #[new]
    #[pyo3(signature = (path, database, oid, oldest_running=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        database: Named,
        oid: u32,
        oldest_running: Option<u32>,
    ) -> Result<OldPages, Error> {
        let open = || {
            let found = relations(&path, Some(Wanted::Oid(oid)), Some(database.wanted()))?;
            let pages = found.relations.iter().find(|r| r.oid == oid).and_then(|r| Pages::new(r, oldest_running));
            pages.ok_or_else(|| leadline_pending::Error::new(Kind::NotFound, format!("no table with OID {oid}")))
        };
        Ok(OldPages { pages: Mutex::new(py.detach(open)?) })
    }

    /// Blocks looked at and blocks there are.
    fn progress(&self) -> (u32, u32) {
        self.pages.lock().progress()
    }

    /// The next pages with old rows.
    fn next_pages(&self, py: Python<'_>, about_rows: usize) -> PyResult<Option<Vec<PageRows>>> {
        let found = py.detach(|| self.pages.lock().next_pages(about_rows)).map_err(Error::from)?;
        let page = |page: leadline_pending::OldPage| {
            let rows = page.rows.iter().map(|(r, new_len)| (r.lp, r.reasons, r.len, *new_len)).collect();
            (page.block, page.room, rows)
        };
        Ok(found.map(|pages| pages.into_iter().map(page).collect()))
    }
}
