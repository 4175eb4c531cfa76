//! The simulator of disk arrays. What it finds comes as JSON.

use leadline_storage::{Layout, Loads, Loop, TraceRow};
use pyo3::prelude::*;

use crate::error::Error;
use crate::net::until_interrupted;

/// Names of the loads in a file; the file is checked.
#[pyfunction]
pub(crate) fn loads(text: &str, name: &str) -> Result<Vec<String>, Error> {
    Ok(Loads::parse(text, name)?.load.into_iter().map(|load| load.name).collect())
}

/// The name of the layout in a file; the file is checked.
#[pyfunction]
pub(crate) fn layout(text: &str, name: &str) -> Result<String, Error> {
    Ok(Layout::parse(text, name)?.name)
}

/// One run of a load, by its number in the file.
#[pyfunction]
#[pyo3(signature = (layout, loads, number, *, seed, for_s, warm_up_s))]
pub(crate) fn simulate(
    py: Python<'_>,
    layout: (String, String),
    loads: (String, String),
    number: usize,
    seed: u64,
    for_s: f64,
    warm_up_s: f64,
) -> PyResult<(String, bool)> {
    let layout = Layout::parse(&layout.0, &layout.1).map_err(Error)?;
    let load = Loads::parse(&loads.0, &loads.1).map_err(Error)?.load.swap_remove(number);
    let work = move |stop: &_| leadline_storage::simulate(&layout, &load, seed, for_s, warm_up_s, stop);
    let (found, interrupted) = until_interrupted(py, work)?;
    Ok((found.to_string(), interrupted))
}

/// Issued and ended (ns), device, first byte, length, whether it writes, and thread.
type Row = (u64, u64, String, u64, u64, bool, i64);

/// A trace once more: rows in the order in which they were issued.
#[pyfunction]
#[pyo3(signature = (layout, rows, *, closed))]
pub(crate) fn replay(
    py: Python<'_>,
    layout: (String, String),
    rows: Vec<Row>,
    closed: bool,
) -> PyResult<(String, bool)> {
    let layout = Layout::parse(&layout.0, &layout.1).map_err(Error)?;
    let row = |(issued, ended, device, at, bytes, write, thread)| TraceRow {
        issued,
        ended,
        device,
        at,
        bytes,
        write,
        thread,
    };
    let rows: Vec<TraceRow> = rows.into_iter().map(row).collect();
    let how = if closed { Loop::Closed } else { Loop::Open };
    let (found, interrupted) = until_interrupted(py, move |stop| leadline_storage::replay(&layout, &rows, how, stop))?;
    Ok((found.to_string(), interrupted))
}
