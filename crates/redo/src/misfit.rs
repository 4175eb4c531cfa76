//! A record that does not fit its page.

use std::fmt;

use leadline_bytes::Truncated;
use leadline_wal::{Lsn, Record};

use crate::target::Target;

/// Result of redo.
pub type Result<T> = std::result::Result<T, Misfit>;

/// What a record wants and its page does not have, or what the record itself lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// What was looked at.
    pub what: &'static str,
    /// What it should have been.
    pub expected: String,
    /// What it was.
    pub found: String,
    /// Where the record begins; 0 until it is known.
    pub lsn: Lsn,
    /// The page; none until it is known.
    pub target: Option<Target>,
}

impl Misfit {
    /// Without a place: [`crate::apply`] adds it.
    #[cold]
    pub fn new(what: &'static str, expected: impl fmt::Display, found: impl fmt::Display) -> Misfit {
        Misfit { what, expected: expected.to_string(), found: found.to_string(), lsn: Lsn(0), target: None }
    }

    #[cold]
    pub(crate) fn of(mut self, record: &Record<'_>, target: &Target) -> Misfit {
        self.lsn = record.start;
        self.target = Some(*target);
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.what, self.expected, self.found)
    }
}

impl std::error::Error for Misfit {}

impl From<Truncated> for Misfit {
    #[cold]
    fn from(short: Truncated) -> Misfit {
        Misfit::new(short.what, format!("{} bytes in the record", short.wanted), short.left)
    }
}
