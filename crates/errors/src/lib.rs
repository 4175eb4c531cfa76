//! The error of every crate, as the user sees it: one message with detail, hint and place.
//!
//! ```
//! use leadline_errors::{Error, Kind};
//! let error = Error::new(Kind::NotFound, "no table named x").hint("run leadline tables to list the tables");
//! assert_eq!(error.to_string(), "no table named x; hint: run leadline tables to list the tables");
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::any::Any;
use std::fmt;
use std::io;
use std::path::Path;

/// What sort of trouble; the names are those of `leadline.errors.KINDS`, where each is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Usage,
    NotFound,
    Rights,
    Unsupported,
    Layout,
    /// A server that cannot be reached or does not answer as it should.
    Connection,
    Gone,
    Storage,
    Invalid,
    /// A fault of leadline itself: a thread that panicked.
    Fault,
}

impl Kind {
    /// As `LeadlineError.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Usage => "usage",
            Kind::NotFound => "not_found",
            Kind::Rights => "rights",
            Kind::Unsupported => "unsupported",
            Kind::Layout => "layout",
            Kind::Connection => "connection",
            Kind::Gone => "gone",
            Kind::Storage => "storage",
            Kind::Invalid => "invalid",
            Kind::Fault => "fault",
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
    /// Where: a file or folder, a position in it, a table.
    pub place: String,
}

/// Result with this error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// With a message alone.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), detail: String::new(), hint: String::new(), place: String::new() }
    }

    /// Adds what was wanted and found.
    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = detail.into();
        self
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// Adds where.
    pub fn at(mut self, place: impl AsRef<Path>) -> Error {
        self.place = place.as_ref().display().to_string();
        self
    }

    /// What the operating system said when `what` was to be read.
    pub fn reading(path: &Path, what: &str, source: &io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound => Error::new(Kind::NotFound, "no such file or folder"),
            io::ErrorKind::PermissionDenied => Error::new(Kind::Rights, format!("cannot read {what}"))
                .detail(source.to_string())
                .hint("run as the owner of the files (often postgres), or as root"),
            _ => Error::new(Kind::Storage, format!("cannot read {what}")).detail(source.to_string()),
        }
        .at(path)
    }

    /// A thread ended by a panic, so that not all of the work was done. `panic` is what `JoinHandle::join` gave.
    pub fn fault(thread: &str, panic: &(dyn Any + Send)) -> Error {
        let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref().cloned());
        Error::new(Kind::Fault, format!("internal error: the thread that {thread} panicked"))
            .detail(said.unwrap_or_default())
            .hint("please report this as a bug, with the output printed before it")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_said_has_a_kind_of_its_own() {
        let of = |kind: io::ErrorKind| Error::reading(Path::new("/d/1"), "the log", &kind.into());
        assert_eq!(of(io::ErrorKind::NotFound).to_string(), "no such file or folder; at: /d/1");
        let rights = of(io::ErrorKind::PermissionDenied);
        assert_eq!((rights.kind, rights.message.as_str()), (Kind::Rights, "cannot read the log"));
        assert_eq!(of(io::ErrorKind::IsADirectory).kind, Kind::Storage);
    }

    #[test]
    fn a_panic_is_a_fault_of_ours_and_says_what_it_said() {
        let panic = std::thread::spawn(|| std::panic::resume_unwind(Box::new("out of range"))).join().unwrap_err();
        let error = Error::fault("read pages", &*panic);
        assert_eq!((error.kind.as_str(), error.detail.as_str()), ("fault", "out of range"));
    }
}
