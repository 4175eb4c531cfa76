//! `check`: redo compared with the images of a log.

use std::path::PathBuf;
use std::sync::Arc;

use leadline_page::postgres::DEFAULT_BLOCK_SIZE;
use leadline_redo::consistency::Consistency;
use leadline_redo::Context;
use leadline_wal::rmgr::type_names;
use leadline_wal::{Kind, Lsn, Reader, Wal};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Error;

/// Redoes a log written with `wal_consistency_checking`, and compares each page with its image after each record.
#[pyfunction]
#[pyo3(signature = (path, *, start=None, block_size=None, hint_bits_are_logged=true))]
pub(crate) fn check<'py>(
    py: Python<'py>,
    path: PathBuf,
    start: Option<String>,
    block_size: Option<u32>,
    hint_bits_are_logged: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let run = || -> Result<(u8, Consistency), Error> {
        let not_an_lsn =
            |text: &str| leadline_errors::Error::new(Kind::Usage, format!("{text} is not an LSN, such as 16/B374D848"));
        let start = start.map(|text| text.parse::<Lsn>().map_err(|()| not_an_lsn(&text))).transpose()?;
        let log = Arc::new(Wal::open(&path, None, start, None)?);
        let range = log.range(start, None)?;
        let block_size = block_size.unwrap_or(DEFAULT_BLOCK_SIZE);
        let mut check = Consistency::new(Context { major: log.major, block_size, hint_bits_are_logged });
        check.read(&mut Reader::new(log.clone(), range))?;
        Ok((log.major, check))
    };
    let (major, found) = py.detach(run)?;
    let kinds = PyDict::new(py);
    for (kind, tally) in &found.tallies {
        let one = PyDict::new(py);
        one.set_item("records", tally.records)?;
        one.set_item("compared", tally.compared)?;
        one.set_item("begun", tally.begun)?;
        one.set_item("unnamed", tally.unnamed)?;
        one.set_item("differences", tally.differences)?;
        kinds.set_item(type_names(major, *kind), one)?;
    }
    let differences = found.differences.iter().map(|one| {
        let (rmgr, kind) = type_names(major, one.type_id);
        format!("{rmgr} {kind}, {one}")
    });
    let out = PyDict::new(py);
    out.set_item("major", major)?;
    out.set_item("pages", found.pages())?;
    out.set_item("kinds", kinds)?;
    out.set_item("differences", differences.collect::<Vec<_>>())?;
    Ok(out)
}
