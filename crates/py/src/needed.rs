//! Which files rows are read from, for those who have to fetch them first.

use std::path::PathBuf;

use leadline_datadir::RelFile;
use leadline_rows::Needed;
use pyo3::prelude::*;

use crate::error::Error;

/// Tablespace, database (0: shared) and number.
type File = (u32, u32, u32);

/// Of the catalogs of all databases, as far as pg_class can be read.
#[pyfunction]
pub(crate) fn files_of_catalogs(py: Python<'_>, data_dir: PathBuf) -> Result<Vec<File>, Error> {
    Ok(py.detach(|| leadline_rows::files_of_catalogs(&data_dir))?.into_iter().map(file).collect())
}

/// Of a table with its partitions and their TOAST tables; and whether no others may be needed.
#[pyfunction]
#[pyo3(signature = (data_dir, table, database=None))]
pub(crate) fn files_of_table(
    py: Python<'_>,
    data_dir: PathBuf,
    table: Option<&str>,
    database: Option<&str>,
) -> Result<(Vec<File>, bool), Error> {
    Ok(told(py.detach(|| leadline_rows::files_of_table(&data_dir, table, database))?))
}

/// Of all relations with rows of a database; and whether no others may be needed.
#[pyfunction]
pub(crate) fn files_of_database(py: Python<'_>, data_dir: PathBuf, database: &str) -> Result<(Vec<File>, bool), Error> {
    Ok(told(py.detach(|| leadline_rows::files_of_database(&data_dir, database))?))
}

fn told(needed: Needed) -> (Vec<File>, bool) {
    (needed.files.into_iter().map(file).collect(), needed.is_certain)
}

fn file(of: RelFile) -> File {
    (of.spc, of.db, of.rel)
}
