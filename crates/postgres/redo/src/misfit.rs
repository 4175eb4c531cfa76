//! A record that does not fit its page.

use std::fmt;
use std::ops::Deref;

use leadline_bytes::Truncated;
use leadline_wal::{Lsn, Record};

use crate::target::Target;

/// Result of redo.
pub type Result<T> = std::result::Result<T, Misfit>;

/// What a record wants and its page does not have, or what the record itself lacks.
///
/// As small as a pointer, so that results of redo are handed on in registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit(Box<Details>);

/// What a [`Misfit`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
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
        let (expected, found) = (expected.to_string(), found.to_string());
        Misfit(Box::new(Details { what, expected, found, lsn: Lsn(0), target: None }))
    }

    #[cold]
    pub(crate) fn of(mut self, record: &Record<'_>, target: &Target) -> Misfit {
        self.0.lsn = record.start;
        self.0.target = Some(*target);
        self
    }
}

impl Deref for Misfit {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
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
