//! `RowScan`: the rows of one relation, from the files of a data directory.

use std::collections::HashMap;
use std::path::PathBuf;

use leadline_rows::export::Which;
use leadline_rows::{export, Elsewhere, Encoding, Given, Moment, RowScan as Scan, Until, Wanted};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::error::Error;

/// What is wrong with the files of a data directory as a whole, by its catalogs.
#[pyfunction]
pub(crate) fn file_faults(py: Python<'_>, data_dir: PathBuf) -> Result<Vec<Fault>, Error> {
    let faults = py.detach(|| leadline_rows::compare(&data_dir))?;
    let fault = |fault: leadline_rows::Fault| {
        let leadline_rows::Fault { class, path, relation, bytes, wanted, found } = fault;
        Fault { class, path: path.display().to_string(), relation, bytes, wanted, found }
    };
    Ok(faults.into_iter().map(fault).collect())
}

#[derive(IntoPyObject)]
pub(crate) struct Fault {
    class: &'static str,
    path: String,
    relation: String,
    bytes: u64,
    wanted: String,
    found: String,
}

/// Names, and databases without any.
type Names<'py> = (Bound<'py, PyDict>, Vec<(String, String)>);

/// Of each file of a data directory's relations (tablespace, database, number): (database, schema.name). And the databases whose catalogs
/// are lost, and why.
#[pyfunction]
pub(crate) fn relation_names(py: Python<'_>, data_dir: PathBuf) -> PyResult<Names<'_>> {
    let (found, lost) = py.detach(|| leadline_rows::file_names(&data_dir)).map_err(Error::from)?;
    let named = |name: leadline_rows::FileName| {
        ((name.tablespace, name.database, name.filenode), (name.datname, name.relation))
    };
    Ok((
        found.into_iter().map(named).into_py_dict(py)?,
        lost.into_iter().map(|(database, e)| (database, e.to_string())).collect(),
    ))
}

#[pyclass(frozen, module = "leadline._core.rows")]
pub(crate) struct RowScan {
    scan: Mutex<Scan>,
}

#[pymethods]
impl RowScan {
    #[new]
    #[allow(clippy::too_many_arguments)] // named in Python
    #[pyo3(signature = (path, *, relation=None, database=None, dead=false, columns=None, conditions=None, limit=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        relation: Option<String>,
        database: Option<String>,
        dead: bool,
        columns: Option<Vec<String>>,
        conditions: Option<String>,
        limit: Option<u64>,
    ) -> Result<RowScan, Error> {
        let (relation, database) = (relation.as_deref(), database.as_deref());
        let wanted = Wanted { columns: columns.as_deref(), conditions: conditions.as_deref(), limit, dead };
        let open = || Scan::open_some(&path, relation, database, &wanted);
        Ok(RowScan { scan: Mutex::new(py.detach(open)?) })
    }

    /// Rows of a file whose columns are given: name, type and what it was declared with.
    #[staticmethod]
    #[pyo3(signature = (file, name, columns, *, toast, dead=false, as_of=None))]
    fn of_given(
        py: Python<'_>,
        file: PathBuf,
        name: &str,
        columns: Vec<(String, u32, i32)>,
        toast: HashMap<u32, u32>,
        dead: bool,
        as_of: Option<AsOf>,
    ) -> Result<RowScan, Error> {
        let column = |(name, type_oid, typmod)| Given { name, type_oid, typmod };
        let columns: Vec<Given> = columns.into_iter().map(column).collect();
        let moment = as_of.map(Moment::from);
        let open = || Scan::of_given(Elsewhere { file, toast }, name, &columns, dead, moment);
        Ok(RowScan { scan: Mutex::new(py.detach(open)?) })
    }

    /// What the rows are of.
    fn describe(&self) -> Relation {
        let scan = self.scan.lock();
        let names = scan.columns().iter().map(|c| (c.name.clone(), c.type_name.clone()));
        let unknown = scan.columns().iter().filter(|c| !c.is_known).map(|c| c.name.clone());
        Relation {
            relation: scan.relation().to_owned(),
            columns: names.collect(),
            provenance: scan.beside_names(),
            unknown: unknown.collect(),
            virtual_columns: scan.virtual_columns().to_vec(),
            unlogged: scan.is_unlogged(),
            encoding: scan.other_encoding().map(Encoding::name),
        }
    }

    /// Names of what stands before the columns in the rows that came last.
    fn provenance(&self) -> Vec<String> {
        self.scan.lock().beside_names()
    }

    /// How far it has been read, and what could not be.
    fn status(&self) -> Status {
        let scan = self.scan.lock();
        let (block, blocks) = scan.progress();
        let (unread, cut_off) = (&scan.unread, scan.cut_off());
        // Of a server that did not stop, pages that it has in memory may follow in the file before them.
        let (zeros, zeros_at) = unread.zeros.before_used().unwrap_or_default();
        let (foreign, lost) = (scan.foreign_partitions(), scan.lost_partitions());
        let undefined = scan.undefined_partitions();
        let loss = |loss: &leadline_rows::Loss| Loss {
            partition: loss.partition.as_deref().map(str::to_owned),
            ctid: (loss.lp > 0).then(|| format!("({},{})", loss.block, loss.lp)),
            block: loss.block,
            column: loss.column.and_then(|i| scan.columns().get(i)).map(|c| c.name.clone()),
            reason: loss.reason.clone(),
        };
        Status {
            block,
            blocks,
            unread_pages: unread.pages,
            torn_pages: unread.torn,
            wrong_checksums: unread.checksums,
            gone_blocks: unread.gone,
            unread_rows: unread.rows,
            unread_values: unread.values,
            vacuumed_values: unread.vacuumed,
            invalid_values: scan.invalid_values(),
            missing_blocks: unread.missing,
            cut_off_blocks: cut_off.blocks,
            cut_off_by: cut_off.by,
            empty_pages: unread.zeros.count(),
            zero_pages: if scan.is_final() { zeros } else { 0 },
            unwritten_pages: if scan.is_final() { 0 } else { zeros },
            zeros_at,
            lost_partitions: lost.len(),
            lost_names: lost.join(", "),
            foreign_partitions: foreign.len(),
            foreign_names: foreign.join(", "),
            undefined_partitions: undefined.len(),
            undefined_names: undefined.join(", "),
            undecided_rows: unread.undecided,
            unknown_rows: unread.unknown,
            unknown_why: unread.reasons.iter().cloned().collect(),
            future_rows: unread.future,
            toast_checksums: unread.toast_checksums.len(),
            catalog_damage: scan.catalog_damage(),
            unreadable: unread.losses.all().iter().map(loss).collect(),
            unreadable_left_out: unread.losses.left_out,
            unconverted_characters: scan.other_encoding().map_or(0, Encoding::unconverted),
        }
    }

    /// The next rows, None at the end.
    fn rows(&self, py: Python<'_>, about: usize) -> PyResult<Option<Vec<Vec<Option<String>>>>> {
        py.check_signals()?;
        let next = || -> Result<_, Error> {
            let mut scan = self.scan.lock();
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

    /// Writes rows; how many, and the columns that are text since their type in the file does not hold all their values.
    /// `progress` gets blocks done and blocks there are, and may raise to end it.
    #[pyo3(signature = (out, threads, progress, which="all"))]
    fn export(
        &self,
        py: Python<'_>,
        out: PathBuf,
        threads: usize,
        progress: Option<Py<PyAny>>,
        which: &str,
    ) -> PyResult<(u64, Vec<String>)> {
        let which = match which {
            "all" => Which::All,
            "sure" => Which::Sure,
            "doubtful" => Which::Doubtful,
            "dead" => Which::Dead,
            _ => return Err(PyValueError::new_err(format!("which rows is {which:?}"))),
        };
        let mut failed = None;
        let mut go_on = |done: u32, blocks: u32| {
            let call = |py: Python<'_>| -> PyResult<()> {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |p| p.call1(py, (done, blocks)).map(|_| ()))
            };
            failed = Python::attach(call).err();
            failed.is_none()
        };
        let written = py.detach(|| export::export(&mut self.scan.lock(), &out, which, threads, &mut go_on));
        match failed {
            Some(failed) => Err(failed),
            None => Ok(written.map(|w| (w.rows, w.as_text)).map_err(Error::from)?),
        }
    }
}

/// The databases of a data directory: name, whether it is a template, and oid.
#[pyfunction]
pub(crate) fn database_names(py: Python<'_>, data_dir: PathBuf) -> Result<Vec<(String, bool, u32)>, Error> {
    Ok(py.detach(|| leadline_rows::database_names(&data_dir))?)
}

/// A transaction, or a time and the oldest transaction whose time is known; and whether numbers of transactions have begun again.
#[derive(FromPyObject)]
enum AsOf {
    Time((i64, u32, bool)),
    Xid((u32, bool)),
}

impl From<AsOf> for Moment {
    fn from(as_of: AsOf) -> Moment {
        match as_of {
            AsOf::Xid((last, wrapped)) => Moment { until: Until::Xid(last), wrapped },
            AsOf::Time((at, oldest, wrapped)) => Moment { until: Until::Time { at, oldest }, wrapped },
        }
    }
}

/// The tables of one database, through catalogs that are read once.
#[pyclass(frozen, module = "leadline._core.rows")]
pub(crate) struct Tables {
    tables: Mutex<leadline_rows::Tables>,
}

#[pymethods]
impl Tables {
    #[new]
    #[pyo3(signature = (data_dir, database=None))]
    fn new(py: Python<'_>, data_dir: PathBuf, database: Option<String>) -> Result<Tables, Error> {
        Ok(Tables { tables: Mutex::new(py.detach(|| leadline_rows::Tables::open(&data_dir, database.as_deref()))?) })
    }

    /// Replaces the labels of enums, by the oid of their type: those of another cluster have other oids.
    fn relabel(&self, labels: HashMap<u32, HashMap<u32, String>>) {
        self.tables.lock().relabel(labels);
    }

    fn find(&self, schema: &str, name: &str) -> Result<u32, Error> {
        Ok(self.tables.lock().find(schema, name)?)
    }

    /// The rows of a relation, or of another file with the same columns.
    #[allow(clippy::too_many_arguments)] // named in Python
    #[pyo3(signature = (oid, *, file=None, toast=HashMap::new(), dead=false, columns=None, as_of=None))]
    fn scan(
        &self,
        py: Python<'_>,
        oid: u32,
        file: Option<PathBuf>,
        toast: HashMap<u32, u32>,
        dead: bool,
        columns: Option<Vec<String>>,
        as_of: Option<AsOf>,
    ) -> Result<RowScan, Error> {
        let elsewhere = file.map(|file| Elsewhere { file, toast });
        let moment = as_of.map(Moment::from);
        let open = || self.tables.lock().scan(oid, elsewhere, dead, columns.as_deref(), moment);
        Ok(RowScan { scan: Mutex::new(py.detach(open)?) })
    }

    fn damage(&self) -> Vec<String> {
        self.tables.lock().damage()
    }
}

/// The types that all servers have: oid, name, bytes and alignment of their values.
#[pyfunction]
pub(crate) fn built_in_types() -> Vec<(u32, String, i16, char)> {
    let one = |of: leadline_rows::BuiltIn| (of.oid, of.name, of.storage.attlen, char::from(of.storage.attalign));
    leadline_rows::built_in_types().into_iter().map(one).collect()
}

/// Values that are in no row.
#[pyclass(frozen, module = "leadline._core.rows")]
pub(crate) struct ValueTexts {
    texts: Mutex<leadline_rows::ValueTexts>,
}

#[pymethods]
impl ValueTexts {
    #[new]
    #[pyo3(signature = (data_dir, database=None))]
    fn new(py: Python<'_>, data_dir: PathBuf, database: Option<String>) -> Result<ValueTexts, Error> {
        let open = || leadline_rows::ValueTexts::open(&data_dir, database.as_deref());
        Ok(ValueTexts { texts: Mutex::new(py.detach(open)?) })
    }

    /// By the types that all servers have.
    #[staticmethod]
    fn built_in() -> ValueTexts {
        ValueTexts { texts: Mutex::new(leadline_rows::ValueTexts::built_in()) }
    }

    /// As the server prints it; None when it is none of its type.
    fn text(&self, oid: u32, value: &[u8]) -> Result<Option<String>, Error> {
        Ok(self.texts.lock().text(oid, value)?)
    }
}

/// What the rows are of.
#[derive(IntoPyObject)]
struct Relation {
    relation: String,
    columns: Vec<(String, String)>,
    provenance: Vec<String>,
    unknown: Vec<String>,
    #[pyo3(item("virtual"))]
    virtual_columns: Vec<String>,
    unlogged: bool,
    encoding: Option<&'static str>,
}

/// How far it has been read, and what could not be.
#[derive(IntoPyObject)]
struct Status {
    block: u32,
    blocks: u32,
    unread_pages: u64,
    torn_pages: u64,
    wrong_checksums: u64,
    gone_blocks: u64,
    unread_rows: u64,
    unread_values: u64,
    vacuumed_values: u64,
    invalid_values: u64,
    missing_blocks: u64,
    cut_off_blocks: u32,
    cut_off_by: &'static str,
    empty_pages: u64,
    zero_pages: u64,
    unwritten_pages: u64,
    zeros_at: String,
    lost_partitions: usize,
    lost_names: String,
    foreign_partitions: usize,
    foreign_names: String,
    undefined_partitions: usize,
    undefined_names: String,
    undecided_rows: u64,
    unknown_rows: u64,
    unknown_why: Vec<String>,
    future_rows: u64,
    toast_checksums: usize,
    catalog_damage: Vec<String>,
    unreadable: Vec<Loss>,
    unreadable_left_out: u64,
    unconverted_characters: u64,
}

#[derive(IntoPyObject)]
struct Loss {
    partition: Option<String>,
    ctid: Option<String>,
    block: u32,
    column: Option<String>,
    reason: String,
}
