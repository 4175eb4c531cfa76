//! `informix_page_type`: what the flags in output of `onstat` say a page is.

use leadline_page::informix;
use pyo3::prelude::*;

/// The type of a page by its flags, in a few words.
#[pyfunction]
pub(crate) fn informix_page_type(flags: u16) -> &'static str {
    informix::kind(flags)
}
