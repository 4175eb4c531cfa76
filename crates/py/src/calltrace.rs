//! `fold`: a function-call trace as a tree, by `leadline_calltrace`.

use crate::error::Error;
use leadline_calltrace::Format;
use leadline_errors::{Error as Said, Kind};
use pyo3::prelude::*;
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
pub(crate) fn fold(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
    depth: Option<usize>,
) -> PyResult<(Read, Vec<Row>)> {
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
    let rows = rows.collect();
    let read = Read {
        format: tree.format.name(),
        bytes: tree.bytes,
        lines: tree.lines,
        calls: tree.calls,
        threads: tree.threads(),
        unknown_lines: tree.unknown,
        returns_alone: tree.returns_alone,
        calls_left_out: tree.left_out,
        first_unknown: tree.first_unknown,
    };
    Ok((read, rows))
}

/// What was read.
#[derive(IntoPyObject)]
pub(crate) struct Read {
    format: &'static str,
    bytes: u64,
    lines: u64,
    calls: u64,
    threads: usize,
    unknown_lines: u64,
    first_unknown: Option<String>,
    returns_alone: u64,
    calls_left_out: u64,
}
