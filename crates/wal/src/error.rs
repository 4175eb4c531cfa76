//! What can be wrong with a log, and where.

use std::fmt;
use std::io;
use std::path::Path;

/// What sort of trouble; the names are those of `leadline.errors.KINDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The call makes no sense as given.
    Usage,
    /// There is no log, or a part of it is missing.
    NotFound,
    /// A file may not be read.
    Rights,
    /// A log of a version that is not known.
    Unsupported,
    /// A file cannot be read.
    Storage,
    /// A file holds what it should not.
    Invalid,
    /// The server used a segment again, or removed it, while the log was read.
    Gone,
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
            Kind::Gone => "gone",
        }
    }
}

/// One clear message. Texts that say nothing are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What sort.
    pub kind: Kind,
    /// What is wrong, in one line.
    pub message: String,
    /// What was wanted and what was found.
    pub detail: String,
    /// What to do about it.
    pub hint: String,
    /// File, offset in it, position in the log.
    pub place: String,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), detail: String::new(), hint: String::new(), place: String::new() }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = detail.into();
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    pub(crate) fn at(mut self, place: impl Into<String>) -> Error {
        self.place = place.into();
        self
    }

    /// A segment that was there is not there any more.
    pub(crate) fn moved_on(path: &Path) -> Error {
        Error::new(Kind::Gone, "the log moved on while it was read")
            .detail("the server removed a segment, or took it for new log")
            .hint("run it again; --from a later LSN reads what stays longer")
            .at(path.display().to_string())
    }

    /// What the operating system said about a file or folder.
    pub(crate) fn io(path: &Path, what: &str, e: &io::Error) -> Error {
        let place = path.display().to_string();
        match e.kind() {
            io::ErrorKind::NotFound => Error::new(Kind::NotFound, "there is no such file or folder").at(place),
            io::ErrorKind::PermissionDenied => Error::new(Kind::Rights, format!("{what} may not be read"))
                .detail(e.to_string())
                .hint("run as the owner of the files (often postgres), or as root")
                .at(place),
            _ => Error::new(Kind::Storage, format!("{what} cannot be read")).detail(e.to_string()).at(place),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (name, text) in [("at", &self.place), ("detail", &self.detail), ("hint", &self.hint)] {
            if !text.is_empty() {
                write!(f, "; {name}: {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
