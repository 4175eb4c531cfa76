//! The one place where Rust errors become `leadline.errors.LeadlineError(kind, message, detail, hint, where)`.

use leadline_capture::Error as CaptureError;
use leadline_pagescan::Error as PageError;
use leadline_recorder::Error as RecorderError;
use leadline_rows::Error as RowsError;
use leadline_wal::Error as WalError;
use pyo3::prelude::*;

/// What `LeadlineError` is made of. `kind` is one of `leadline.errors.KINDS`; empty texts are left out when shown.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub kind: &'static str,
    pub message: String,
    pub detail: String,
    pub hint: String,
    pub place: String,
}

/// Any error of the Rust crates that Python can meet.
#[derive(Debug)]
pub(crate) enum Error {
    Capture(CaptureError),
    Recorder(RecorderError),
    Page(PageError),
    Wal(WalError),
    Rows(RowsError),
    /// Something that was closed before is used.
    Closed {
        what: String,
    },
}

impl From<CaptureError> for Error {
    fn from(e: CaptureError) -> Error {
        Error::Capture(e)
    }
}

impl From<RecorderError> for Error {
    fn from(e: RecorderError) -> Error {
        Error::Recorder(e)
    }
}

impl From<PageError> for Error {
    fn from(e: PageError) -> Error {
        Error::Page(e)
    }
}

impl From<RowsError> for Error {
    fn from(e: RowsError) -> Error {
        Error::Rows(e)
    }
}

impl From<WalError> for Error {
    fn from(e: WalError) -> Error {
        Error::Wal(e)
    }
}

impl From<Error> for PyErr {
    fn from(e: Error) -> PyErr {
        let shape = shape(&e);
        Python::attach(|py| {
            let make = || -> PyResult<Bound<'_, PyAny>> {
                let class = py.import("leadline.errors")?.getattr("LeadlineError")?;
                class.call1((shape.kind, shape.message, shape.detail, shape.hint, shape.place))
            };
            make().map_or_else(|failed| failed, PyErr::from_value)
        })
    }
}

pub(crate) fn shape(e: &Error) -> Shape {
    match e {
        Error::Capture(e) => capture_shape(e),
        Error::Recorder(e) => recorder_shape(e),
        Error::Page(e) => page_shape(e),
        Error::Wal(e) => wal_shape(e),
        Error::Rows(e) => rows_shape(e),
        Error::Closed { what } => Shape { kind: "usage", message: format!("{what} is closed"), ..Shape::default() },
    }
}

/// The error that ended a recording, as the manifest and the user see it.
pub(crate) fn recorder_shape(e: &RecorderError) -> Shape {
    match e {
        RecorderError::Capture(e) => capture_shape(e),
        RecorderError::Server(e) => Shape {
            kind: e.kind.as_str(),
            message: e.message.clone(),
            detail: e.detail.clone(),
            hint: e.hint.clone(),
            ..Shape::default()
        },
        RecorderError::Usage(text) => Shape { kind: "usage", message: text.clone(), ..Shape::default() },
    }
}

fn page_shape(e: &PageError) -> Shape {
    match e {
        PageError::Capture(e) => capture_shape(e),
        PageError::Fault => Shape {
            kind: "gone",
            message: e.to_string(),
            detail: "not all pages were looked at".into(),
            hint: "please report it, with what was printed before".into(),
            ..Shape::default()
        },
        PageError::Usage(text) => Shape { kind: "usage", message: text.clone(), ..Shape::default() },
        PageError::NotPages { path, detail } => Shape {
            kind: "invalid",
            message: "there are no such pages here".into(),
            detail: detail.clone(),
            hint: "name a file of a relation, its folder (base/16384), or a data directory; --block-size 8192 takes any file as pages".into(),
            place: path.display().to_string(),
        },
        PageError::Read { path, source } => {
            use std::io::ErrorKind::{NotFound, PermissionDenied};
            let (kind, hint) = match source.kind() {
                NotFound => ("not_found", String::new()),
                PermissionDenied => ("rights", "run as the user that owns the data directory, or as root".into()),
                _ => ("storage", String::new()),
            };
            Shape {
                kind,
                message: "the pages cannot be read".into(),
                detail: source.to_string(),
                hint,
                place: path.display().to_string(),
            }
        }
    }
}

fn rows_shape(e: &RowsError) -> Shape {
    Shape {
        kind: e.kind.as_str(),
        message: e.message.clone(),
        detail: e.detail.clone(),
        hint: e.hint.clone(),
        place: e.place.clone(),
    }
}

fn wal_shape(e: &WalError) -> Shape {
    Shape {
        kind: e.kind.as_str(),
        message: e.message.clone(),
        detail: e.detail.clone(),
        hint: e.hint.clone(),
        place: e.place.clone(),
    }
}

fn capture_shape(e: &CaptureError) -> Shape {
    match e {
        CaptureError::Storage { path, op, source } => Shape {
            kind: "storage",
            message: if e.is_disk_full() {
                "there is no room left for the capture".into()
            } else {
                "the capture cannot be written".into()
            },
            detail: format!("{op}: {source}; finished segments are whole and readable"),
            hint: if e.is_disk_full() {
                format!("free space (df -h {}) or write to another file system with -o DIR", folder(path))
            } else if source.kind() == std::io::ErrorKind::PermissionDenied {
                format!("choose a folder you may write with -o DIR, or: chown $(id -un) {}", folder(path))
            } else {
                String::new()
            },
            place: path.display().to_string(),
        },
        CaptureError::UnknownTable { table, is_view } => Shape {
            kind: if *is_view { "invalid" } else { "not_found" },
            message: e.to_string(),
            hint: "leadline tables lists the tables".into(),
            place: table.clone(),
            ..Shape::default()
        },
        CaptureError::Schema { table, detail } | CaptureError::Encode { table, detail } => Shape {
            kind: "invalid",
            message: format!("rows do not fit table {table}"),
            detail: detail.clone(),
            place: (*table).to_owned(),
            ..Shape::default()
        },
        CaptureError::Row { table, column, row, detail } => {
            let at = if column.is_empty() { (*table).to_owned() } else { format!("{table}.{column}") };
            Shape {
                kind: "invalid",
                message: format!("row {row} does not fit {at}"),
                detail: detail.clone(),
                hint: format!("leadline tables {table} lists the columns"),
                place: format!("{at}, row {row}"),
            }
        }
    }
}

/// The folder of a path, for commands people type.
fn folder(path: &std::path::Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}
