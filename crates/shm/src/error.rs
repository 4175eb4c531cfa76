//! The error of this crate: one message with detail and hint, in the shape every part of leadline uses.

use std::fmt;

/// What sort of thing went wrong; the names are those of `python/leadline/errors.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No such process, or it is not a PostgreSQL postmaster.
    NotFound,
    /// The memory of the server may not be read; the hint says what would allow it.
    Rights,
    /// A major version, build or platform this crate has no layout for.
    Unsupported,
    /// The server's memory does not look as the layout says; nothing read from it could be trusted.
    Layout,
    /// The server ended or re-created its shared memory.
    Gone,
}

impl Kind {
    /// The word used in Python and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::NotFound => "not_found",
            Kind::Rights => "rights",
            Kind::Unsupported => "unsupported",
            Kind::Layout => "layout",
            Kind::Gone => "gone",
        }
    }
}

/// An error for people: `detail` and `hint` may be empty.
#[derive(Debug, Clone)]
pub struct Error {
    /// Sort of error.
    pub kind: Kind,
    /// One line: what went wrong.
    pub message: String,
    /// One line: what was seen.
    pub detail: String,
    /// One line: what to do.
    pub hint: String,
}

impl Error {
    /// An error with only a message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), detail: String::new(), hint: String::new() }
    }

    /// Adds what was seen.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
