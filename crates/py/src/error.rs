//! The one place where Rust errors become `leadline.errors.LeadlineError(kind, message, detail, hint, where)`.

use leadline_errors::{Error as Said, Kind};
use pyo3::prelude::*;

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
#[derive(IntoPyObject)]
pub(crate) struct ErrorDict {
    kind: &'static str,
    message: String,
    detail: String,
    hint: String,
    #[pyo3(item("where"))]
    place: String,
}

impl From<&Said> for ErrorDict {
    fn from(e: &Said) -> ErrorDict {
        let Said { kind, message, detail, hint, place } = e.clone();
        ErrorDict { kind: kind.as_str(), message, detail, hint, place }
    }
}
