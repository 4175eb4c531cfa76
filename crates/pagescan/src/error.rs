//! Why files could not be read as pages.

use std::fmt;
use std::io;
use std::path::PathBuf;

use leadline_capture::Error as CaptureError;

/// Why a run could not be made or ended early.
#[derive(Debug)]
pub enum Error {
    /// The file system said no.
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// There are no pages here: not a relation file, not a data directory, no such block.
    NotPages {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
    /// The tables cannot be written.
    Capture(CaptureError),
    /// A thread ended by a fault of its own: what was seen is incomplete.
    Fault,
    /// The call makes no sense.
    Usage(String),
}

impl From<CaptureError> for Error {
    fn from(e: CaptureError) -> Error {
        Error::Capture(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read { path, source } => write!(f, "{}: {source}", path.display()),
            Error::NotPages { path, detail } => write!(f, "{}: {detail}", path.display()),
            Error::Capture(e) => e.fmt(f),
            Error::Fault => f.write_str("a thread that looked at pages ended by a fault of leadline"),
            Error::Usage(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
