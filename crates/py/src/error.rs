//! The one place where Rust errors become `leadline.errors.LeadlineError(kind, message, detail, hint, where)`.

use leadline_errors::{Error as Said, Kind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Any error of the Rust crates, on its way to Python.
#[derive(Debug)]
pub(crate) struct Error(pub Said);

impl Error {
    /// Something that was closed before is used.
    pub(crate) fn closed(what: impl std::fmt::Display) -> Error {
        Error(Said::new(Kind::Usage, format!("{what} is closed")))
    }
}

impl From<Said> for Error {
    fn from(e: Said) -> Error {
        Error(e)
    }
}

impl From<leadline_capture::Error> for Error {
    fn from(e: leadline_capture::Error) -> Error {
        Error(e.into())
    }
}

impl From<Error> for PyErr {
    fn from(Error(e): Error) -> PyErr {
        Python::attach(|py| {
            let make = || -> PyResult<Bound<'_, PyAny>> {
                let class = py.import("leadline.errors")?.getattr("LeadlineError")?;
                class.call1((e.kind.as_str(), e.message, e.detail, e.hint, e.place))
            };
            make().map_or_else(|failed| failed, PyErr::from_value)
        })
    }
}

/// An error as Python's `LeadlineError.as_dict` gives it.
pub(crate) fn error_dict<'py>(py: Python<'py>, e: &Said) -> PyResult<Bound<'py, PyDict>> {
    let error = PyDict::new(py);
    error.set_item("kind", e.kind.as_str())?;
    error.set_item("message", &e.message)?;
    error.set_item("detail", &e.detail)?;
    error.set_item("hint", &e.hint)?;
    error.set_item("where", &e.place)?;
    Ok(error)
}
