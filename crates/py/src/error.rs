//! The one place where Rust errors become `leadline.errors.LeadlineError(kind, message, detail, hint, where)`.

use leadline_capture::Error as CaptureError;
use leadline_recorder::Error as RecorderError;
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
