//! `RowScan`: the rows of one relation, from the files of a data directory.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leadline_rows::{export, Encoding, RowScan as Scan};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Error;

/// What is wrong with the files of a data directory as a whole, by its catalogs.
#[pyfunction]
pub(crate) fn file_faults(py: Python<'_>, data_dir: PathBuf) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let faults = py.detach(|| leadline_rows::compare(&data_dir)).map_err(Error::from)?;
    let fault = |fault: leadline_rows::Fault| {
        let out = PyDict::new(py);
        out.set_item("class", fault.class)?;
        out.set_item("path", fault.path.display().to_string())?;
        out.set_item("relation", fault.relation)?;
        out.set_item("bytes", fault.bytes)?;
        out.set_item("wanted", fault.wanted)?;
        out.set_item("found", fault.found)?;
        Ok(out)
    };
    faults.into_iter().map(fault).collect()
}

/// Names, and databases without any.
type Names<'py> = (Bound<'py, PyDict>, Vec<(String, String)>);

/// Of each file of a data directory's relations (tablespace, database, number): (database, schema.name). And the databases whose catalogs
/// are lost, and why.
#[pyfunction]
pub(crate) fn relation_names(py: Python<'_>, data_dir: PathBuf) -> PyResult<Names<'_>> {
    let (found, lost) = py.detach(|| leadline_rows::file_names(&data_dir)).map_err(Error::from)?;
    let out = PyDict::new(py);
    for name in found {
        out.set_item((name.tablespace, name.database, name.filenode), (name.datname, name.relation))?;
    }
    Ok((out, lost.into_iter().map(|(database, e)| (database, e.to_string())).collect()))
}

#[pyclass(frozen, module = "leadline._core.rows")]
pub(crate) struct RowScan {
    scan: Mutex<Scan>,
}

#[pymethods]
impl RowScan {
    #[new]
    #[pyo3(signature = (path, *, relation=None, database=None, dead=false))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        relation: Option<String>,
        database: Option<String>,
        dead: bool,
    ) -> Result<RowScan, Error> {
        let open = || Scan::open(&path, relation.as_deref(), database.as_deref(), dead);
        Ok(RowScan { scan: Mutex::new(py.detach(open)?) })
    }

    /// What the rows are of.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let scan = self.lock();
        let out = PyDict::new(py);
        out.set_item("relation", scan.relation())?;
        let columns: Vec<_> = scan.columns().iter().map(|c| (c.name.as_str(), c.type_name.as_str())).collect();
        out.set_item("columns", columns)?;
        out.set_item("provenance", scan.beside_names())?;
        let unknown: Vec<_> = scan.columns().iter().filter(|c| !c.is_known).map(|c| c.name.as_str()).collect();
        out.set_item("unknown", unknown)?;
        out.set_item("virtual", scan.virtual_columns())?;
        out.set_item("unlogged", scan.is_unlogged())?;
        out.set_item("encoding", scan.other_encoding().map(Encoding::name))?;
        Ok(out)
    }

    /// Names of what stands before the columns in the rows that came last.
    fn provenance(&self) -> Vec<String> {
        self.lock().beside_names()
    }

    /// How far it has been read, and what could not be.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let scan = self.lock();
        let out = PyDict::new(py);
        let (block, blocks) = scan.progress();
        out.set_item("block", block)?;
        out.set_item("blocks", blocks)?;
        out.set_item("unread_pages", scan.unread.pages)?;
        out.set_item("torn_pages", scan.unread.torn)?;
        out.set_item("wrong_checksums", scan.unread.checksums)?;
        out.set_item("gone_blocks", scan.unread.gone)?;
        out.set_item("unread_rows", scan.unread.rows)?;
        out.set_item("unread_values", scan.unread.values)?;
        out.set_item("vacuumed_values", scan.unread.vacuumed)?;
        out.set_item("invalid_values", scan.invalid_values())?;
        out.set_item("missing_blocks", scan.unread.missing)?;
        let cut_off = scan.cut_off();
        out.set_item("cut_off_blocks", cut_off.blocks)?;
        out.set_item("cut_off_by", cut_off.by)?;
        out.set_item("empty_pages", scan.unread.zeros.count())?;
        // Of a server that did not stop, pages that it has in memory may follow in the file before them.
        let (zeros, places) = scan.unread.zeros.before_used().unwrap_or_default();
        out.set_item("zero_pages", if scan.is_final() { zeros } else { 0 })?;
        out.set_item("unwritten_pages", if scan.is_final() { 0 } else { zeros })?;
        out.set_item("zeros_at", places)?;
        out.set_item("unknown_rows", scan.unread.unknown)?;
        out.set_item("unknown_why", scan.unread.reasons.iter().collect::<Vec<_>>())?;
        out.set_item("future_rows", scan.unread.future)?;
        out.set_item("toast_checksums", scan.unread.toast_checksums.len())?;
        out.set_item("catalog_damage", scan.catalog_damage())?;
        let loss = |loss: &leadline_rows::Loss| -> PyResult<_> {
            let item = PyDict::new(py);
            let ctid = (loss.lp > 0).then(|| format!("({},{})", loss.block, loss.lp));
            item.set_item("ctid", ctid)?;
            item.set_item("block", loss.block)?;
            item.set_item("column", loss.column.and_then(|i| scan.columns().get(i)).map(|c| c.name.as_str()))?;
            item.set_item("reason", &loss.reason)?;
            Ok(item)
        };
        let losses = scan.unread.losses.all().iter().map(loss).collect::<PyResult<Vec<_>>>()?;
        out.set_item("unreadable", losses)?;
        out.set_item("unreadable_left_out", scan.unread.losses.left_out)?;
        out.set_item("unconverted_characters", scan.other_encoding().map_or(0, Encoding::unconverted))?;
        Ok(out)
    }

    /// The next rows, None at the end.
    fn rows(&self, py: Python<'_>, about: usize) -> PyResult<Option<Vec<Vec<Option<String>>>>> {
        py.check_signals()?;
        let next = || -> Result<_, Error> {
            let mut scan = self.lock();
            let rows = scan.next_rows(about)?;
            Ok(rows.map(|rows| {
                let whole = |row: &leadline_rows::Row| {
                    let first = export::provenance_values(&scan, row).into_iter().map(Some);
                    first.chain(row.values.iter().cloned()).collect()
                };
                rows.iter().map(whole).collect()
            }))
        };
        Ok(py.detach(next)?)
    }

    /// Writes all rows; how many, and the columns that are text since their type in the file does not hold all their values.
    /// `progress` gets blocks done and blocks there are, and may raise to end it.
    fn export(
        &self,
        py: Python<'_>,
        out: PathBuf,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(u64, Vec<String>)> {
        let mut failed = None;
        let mut go_on = |done: u32, blocks: u32| {
            let call = |py: Python<'_>| -> PyResult<()> {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |p| p.call1(py, (done, blocks)).map(|_| ()))
            };
            failed = Python::attach(call).err();
            failed.is_none()
        };
        let written = py.detach(|| export::export(&mut self.lock(), &out, threads, &mut go_on));
        match failed {
            Some(failed) => Err(failed),
            None => Ok(written.map(|w| (w.rows, w.as_text)).map_err(Error::from)?),
        }
    }
}

impl RowScan {
    fn lock(&self) -> MutexGuard<'_, Scan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
