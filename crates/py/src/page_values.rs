//! `PageValues`: the typed values of a page's items.

use std::path::PathBuf;

use leadline_rows::{Encoding, ItemValues, PageValues as Values};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::Error;

#[pyclass(frozen, module = "leadline._core.pages")]
pub(crate) struct PageValues {
    values: Mutex<Values>,
    #[pyo3(get)]
    relation: String,
    #[pyo3(get)]
    columns: Vec<(String, String)>,
    #[pyo3(get)]
    encoding: Option<&'static str>,
}

#[pymethods]
impl PageValues {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> Result<PageValues, Error> {
        let values = py.detach(|| Values::open(&path))?;
        let columns = values.columns().iter().map(|c| (c.name.clone(), c.type_name.clone())).collect();
        let (relation, encoding) = (values.relation().to_owned(), values.other_encoding().map(Encoding::name));
        Ok(PageValues { relation, columns, encoding, values: Mutex::new(values) })
    }

    /// Line pointer and values by column of each item of a page of the relation.
    fn of(&self, py: Python<'_>, page: &[u8], block: u32) -> Result<Vec<ItemValues>, Error> {
        py.detach(|| Ok(self.values.lock().of(page, block)?))
    }

    /// Characters so far that could not be converted from the encoding.
    #[getter]
    fn unconverted_characters(&self) -> u64 {
        self.values.lock().other_encoding().map_or(0, Encoding::unconverted)
    }
}
