//! What can be wrong, as the user sees it.

use std::fmt;
use std::io;
use std::path::Path;

/// What sort of trouble; the names are those of `leadline.errors.KINDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Usage,
    NotFound,
    Rights,
    Unsupported,
    Storage,
    Invalid,
}

impl Kind {
    /// As `LeadlineError.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Usage => "usage",
            Kind::NotFound => "not_found",
            Kind::Rights => "rights",
            Kind::Unsupported => "unsupported",
            Kind::Storage => "storage",
            Kind::Invalid => "invalid",
        }
    }
}

/// One clear message. Texts that say nothing are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    pub detail: String,
    pub hint: String,
    /// The file or folder.
    pub place: String,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// With a message alone.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), detail: String::new(), hint: String::new(), place: String::new() }
    }

    /// Adds why.
    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = detail.into();
        self
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// Adds the file or folder.
    pub fn at(mut self, path: &Path) -> Error {
        self.place = path.display().to_string();
        self
    }

    /// What the file system said when a file of the data directory was to be read.
    pub fn reading(path: &Path, source: &io::Error) -> Error {
        let (kind, hint) = match source.kind() {
            io::ErrorKind::NotFound => (Kind::NotFound, ""),
            io::ErrorKind::PermissionDenied => {
                (Kind::Rights, "run as the user that owns the data directory, or as root")
            }
            _ => (Kind::Storage, ""),
        };
        Error::new(kind, "a file of the data directory cannot be read").detail(source.to_string()).hint(hint).at(path)
    }

    pub(crate) fn writing(path: &Path, source: &io::Error) -> Error {
        let full = source.kind() == io::ErrorKind::StorageFull;
        let message = if full { "there is no room left for the rows" } else { "the rows cannot be written" };
        let hint = if full { "free space, or write to another file system with -o" } else { "" };
        Error::new(Kind::Storage, message).detail(source.to_string()).hint(hint).at(path)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        [&self.detail, &self.place].iter().filter(|t| !t.is_empty()).try_for_each(|t| write!(f, ": {t}"))
    }
}

impl std::error::Error for Error {}
