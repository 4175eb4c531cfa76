//! `check`: redo compared with the images of a log.

use std::path::PathBuf;
use std::sync::Arc;

use leadline_page::postgres::DEFAULT_BLOCK_SIZE;
use leadline_redo::consistency::Consistency;
use leadline_redo::Context;
use leadline_wal::rmgr::type_names;
use leadline_wal::{Kind, Lsn, Reader, Wal};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

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
) -> PyResult<Compared<'py>> {
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
    let tally = |(kind, tally): (&u16, &leadline_redo::consistency::Tally)| {
        let leadline_redo::consistency::Tally { records, compared, begun, unnamed, differences } = *tally;
        (type_names(major, *kind), Tally { records, compared, begun, unnamed, differences })
    };
    let difference = |one: &leadline_redo::consistency::Difference| {
        let (rmgr, kind) = type_names(major, one.type_id);
        format!("{rmgr} {kind}, {one}")
    };
    Ok(Compared {
        major,
        pages: found.pages(),
        kinds: found.tallies.iter().map(tally).into_py_dict(py)?,
        differences: found.differences.iter().map(difference).collect(),
    })
}

#[derive(IntoPyObject)]
pub(crate) struct Compared<'py> {
    major: u8,
    pages: usize,
    /// By resource manager and kind of record.
    kinds: Bound<'py, PyDict>,
    differences: Vec<String>,
}

#[derive(IntoPyObject)]
struct Tally {
    records: u64,
    compared: u64,
    begun: u64,
    unnamed: u64,
    differences: u64,
}
