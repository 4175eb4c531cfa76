//! `fold`: a function-call trace as a tree, by `leadline_calltrace`.

use crate::error::Error;
use leadline_calltrace::Format;
use leadline_errors::{Error as Said, Kind};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Names of the formats.
pub(crate) fn formats() -> Vec<&'static str> {
    Format::ALL.into_iter().map(Format::name).collect()
}

/// Depth, name, count, time.
type Row = (usize, String, u64, Option<u64>);

/// Folds a file: what was read, and the tree as rows.
#[pyfunction]
#[pyo3(signature = (path, *, format=None, depth=None))]
pub(crate) fn fold<'py>(
    py: Python<'py>,
    path: PathBuf,
    format: Option<&str>,
    depth: Option<usize>,
) -> Result<(Bound<'py, PyDict>, Vec<Row>), PyErr> {
    let format = format.and_then(|name| Format::ALL.into_iter().find(|format| format.name() == name));
    let place = path.display().to_string();
    let work = || -> Result<_, Said> {
        let unreadable = |e: std::io::Error| Said::new(Kind::Storage, format!("the trace cannot be read: {e}"));
        let file = File::open(&path).map_err(unreadable)?;
        let input = BufReader::with_capacity(PIECE, file);
        leadline_calltrace::fold(input, format, |_| {
            Python::attach(|py| py.check_signals()).map_err(|_| Said::new(Kind::Gone, "interrupted"))
        })
    };
    let tree = py.detach(work).map_err(|mut e| {
        e.place = place;
        // What a handler raised in check_signals is Python's own.
        PyErr::take(py).unwrap_or_else(|| Error(e).into())
    })?;
    let rows = tree.rows(depth.unwrap_or(usize::MAX));
    let rows =
        rows.map(|(depth, node)| (depth, tree.name(node).to_string(), node.count, node.timed.then_some(node.total_ns)));
    let read = PyDict::new(py);
    read.set_item("format", tree.format.name())?;
    read.set_item("bytes", tree.bytes)?;
    read.set_item("lines", tree.lines)?;
    read.set_item("calls", tree.calls)?;
    read.set_item("threads", tree.threads())?;
    read.set_item("unknown_lines", tree.unknown)?;
    read.set_item("first_unknown", &tree.first_unknown)?;
    read.set_item("returns_alone", tree.returns_alone)?;
    read.set_item("calls_left_out", tree.left_out)?;
    Ok((read, rows.collect()))
}
