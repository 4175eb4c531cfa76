//! `informix_page` and `informix_page_type`: pages of Informix. Their files say neither what they are nor how large their
//! pages are, so Python reads the bytes and says it.

use leadline_page::informix;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dict::joined;
use crate::page::TakenApart;

/// One page, taken apart.
#[pyfunction]
#[pyo3(signature = (page, *, version_15=false, row_size=None))]
pub(crate) fn informix_page<'py>(
    py: Python<'py>,
    page: &[u8],
    version_15: bool,
    row_size: Option<u16>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = if version_15 { informix::dissect_15(page) } else { informix::dissect(page, row_size) };
    let page_type = PageType { kind: found.kind, computed_checksum: informix::cksum(page) };
    let apart = TakenApart::of(py, &found.parts, &found.wrong, page.len())?;
    joined(py, [page_type.into_pyobject(py)?, apart.into_pyobject(py)?])
}

#[derive(IntoPyObject)]
struct PageType {
    kind: &'static str,
    computed_checksum: u16,
}

/// The type of a page by its flags, in a few words.
#[pyfunction]
pub(crate) fn informix_page_type(flags: u16) -> &'static str {
    informix::kind(flags)
}
