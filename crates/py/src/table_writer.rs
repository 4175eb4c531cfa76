//! `TableWriter`: Python rows of the rare tables into a capture.

use std::path::PathBuf;

use leadline_capture::{BatchBuilder, Stats, TableSpec, Value, WriterOptions};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::Error;

/// Writes rows of one stored table into a capture folder, checked against the table's columns.
///
/// Rows reach the disk at `flush` and `close`, each time as one whole segment, or in one that grows. Threads may share a writer.
#[pyclass(frozen, module = "leadline._core.capture")]
pub(crate) struct TableWriter {
    spec: &'static TableSpec,
    /// Locked only while the GIL is released, so that a thread waiting here stops no other.
    state: Mutex<State>,
}

enum State {
    Open(Box<leadline_capture::TableWriter>),
    Closed(Stats),
}

#[pymethods]
impl TableWriter {
    #[new]
    #[pyo3(signature = (capture_dir, table, *, growing=true))]
    fn new(py: Python<'_>, capture_dir: PathBuf, table: &str, growing: bool) -> PyResult<TableWriter> {
        let options = WriterOptions::default().growing(growing);
        let create = || leadline_capture::TableWriter::create(&capture_dir, table, options);
        let writer = py.detach(create).map_err(Error::from)?;
        Ok(TableWriter { spec: writer.spec(), state: Mutex::new(State::Open(Box::new(writer))) })
    }

    /// Adds rows: tuples with the values in the order of the columns. All of them, or none when one does not fit.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyList>) -> PyResult<()> {
        let mut builder = BatchBuilder::new(self.spec);
        for row in rows {
            append_row(self.spec, &mut builder, &row)?;
        }
        let batch = builder.finish().map_err(Error::from)?;
        self.with_writer(py, |writer| writer.write(&batch))
    }

    /// Puts the rows into a file that readers see. No rows, no file.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with_writer(py, leadline_capture::TableWriter::roll)
    }

    /// Flushes and ends; gives the rows, bytes and segments written. Closing again gives the same figures.
    fn close(&self, py: Python<'_>) -> Result<Written, Error> {
        let stats = py.detach(|| {
            let mut state = self.state.lock();
            let (outcome, stats) = match &mut *state {
                State::Closed(stats) => return Ok(*stats),
                State::Open(writer) => (writer.end_segment(), writer.stats()),
            };
            *state = State::Closed(stats);
            outcome.map(|()| stats).map_err(Error::from)
        })?;
        Ok(stats.into())
    }
}

impl TableWriter {
    fn with_writer<F>(&self, py: Python<'_>, work: F) -> PyResult<()>
    where
        F: Send + FnOnce(&mut leadline_capture::TableWriter) -> Result<(), leadline_capture::Error>,
    {
        let outcome: Result<(), Error> = py.detach(|| match &mut *self.state.lock() {
            State::Open(writer) => Ok(work(writer)?),
            State::Closed(_) => Err(Error::closed(format_args!("the writer of table {}", self.spec.name))),
        });
        Ok(outcome?)
    }
}

/// Adds a stored table of an engine in another package: columns as (name, type, nullable).
#[pyfunction]
pub(crate) fn define_table(name: &str, clock: &str, columns: Vec<(String, String, bool)>) -> PyResult<()> {
    let columns: Vec<_> = columns.iter().map(|(name, kind, nullable)| (&**name, &**kind, *nullable)).collect();
    Ok(leadline_capture::define(name, clock, &columns).map_err(Error::from)?)
}

/// What was written of a table.
#[derive(IntoPyObject)]
pub(crate) struct Written {
    rows: u64,
    bytes: u64,
    segments: u64,
}

impl From<Stats> for Written {
    fn from(Stats { rows, bytes, segments }: Stats) -> Written {
        Written { rows, bytes, segments }
    }
}

/// What was written of each table, by its name.
pub(crate) fn tables_dict(
    py: Python<'_>,
    written: impl IntoIterator<Item = (&'static str, Stats)>,
) -> PyResult<Bound<'_, PyDict>> {
    written.into_iter().map(|(name, stats)| (name, Written::from(stats))).into_py_dict(py)
}

fn append_row(spec: &'static TableSpec, builder: &mut BatchBuilder, row: &Bound<'_, PyAny>) -> PyResult<()> {
    let number = builder.len();
    let unfit =
        |column, detail| Error::from(leadline_capture::Error::Row { table: spec.name, column, row: number, detail });
    let Ok(row) = row.cast::<PyTuple>() else {
        return Err(unfit("", format!("expected a tuple, got {}", type_name(row))).into());
    };
    let items: Vec<Bound<'_, PyAny>> = row.iter().collect();
    let column = |at: usize| spec.columns.get(at).map_or("", |c| c.name);
    let lists: Vec<Vec<Bound<'_, PyAny>>> =
        items.iter().map(|item| item.cast::<PyList>().map(|list| list.iter().collect()).unwrap_or_default()).collect();
    let mut of_lists = Vec::with_capacity(items.len());
    for (at, list) in lists.iter().enumerate() {
        let values: Result<Vec<_>, _> = list.iter().map(value).collect();
        of_lists.push(values.map_err(|detail| unfit(column(at), detail))?);
    }
    let mut values = Vec::with_capacity(items.len());
    for (at, (item, list)) in items.iter().zip(&of_lists).enumerate() {
        values.push(match item.cast::<PyList>() {
            Ok(_) => Value::List(list),
            Err(_) => value(item).map_err(|detail| unfit(column(at), detail))?,
        });
    }
    Ok(builder.append(&values).map_err(Error::from)?)
}

/// A Python value as a column value; the error says why there is none.
fn value<'a>(item: &'a Bound<'_, PyAny>) -> Result<Value<'a>, String> {
    if item.is_none() {
        Ok(Value::Null)
    } else if let Ok(truth) = item.cast::<PyBool>() {
        Ok(Value::Bool(truth.is_true())) // before int: a Python bool is an int too
    } else if let Ok(text) = item.cast::<PyString>() {
        text.to_str()
            .map(Value::Text)
            .map_err(|_| "the string contains lone surrogates, which cannot be encoded in UTF-8".to_owned())
    } else if item.is_instance_of::<PyInt>() {
        let wide =
            || item.extract().map(Value::UInt).map_err(|_| format!("{item} is out of range for int64 and uint64"));
        item.extract().map(Value::Int).or_else(|_| wide())
    } else if let Ok(number) = item.cast::<PyFloat>() {
        Ok(Value::Float(number.value()))
    } else if let Ok(bytes) = item.cast::<PyBytes>() {
        Ok(Value::Bytes(bytes.as_bytes()))
    } else {
        Err(format!("a {} cannot be stored in a table", type_name(item)))
    }
}

fn type_name(item: &Bound<'_, PyAny>) -> String {
    item.get_type().name().map_or_else(|_| "value".to_owned(), |name| name.to_string())
}
