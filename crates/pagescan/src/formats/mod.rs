//! Formats of pages: how each is told from the others, and how one of its pages is taken apart.
//!
//! A new format is a module here with a type that is a [`Format`]. Files of it are told by their first bytes ([`TOLD_BY_BYTES`]) or by their
//! names (`told_by_name`); where neither says it, the caller does ([`read_as`](crate::read_as)).

mod informix;
mod named;
mod oracle;
mod postgres;

use std::fmt;
use std::path::Path;

use leadline_page::postgres::Fork;
use leadline_page::{Part, Wrong};

pub use informix::Informix;
pub(crate) use named::NamedFile;
pub use oracle::Oracle;
pub use postgres::Postgres;

/// A format of pages.
pub trait Format: Sync {
    /// Whose it is, as `--engine` and JSON name it.
    fn engine(&self) -> &'static str;

    /// The same as its maker writes it.
    fn owner(&self) -> &'static str;

    /// Bytes that a page can have, the usual number first.
    fn page_sizes(&self) -> &'static [u32];

    /// How large the pages of a file are that begins with these bytes; none when it is not of this format, or does not say so.
    fn told_size(&self, start: &[u8]) -> Option<u32>;

    /// Whether pages have checksums, where the format alone decides that.
    fn checksums(&self) -> Option<bool> {
        None
    }

    /// Takes a page apart. Never fails: what cannot be read is in [`Dissected::wrong`].
    fn dissect(&self, page: &[u8], at: PageAt) -> Dissected;
}

/// Those whose files say by their first bytes what they are.
pub const TOLD_BY_BYTES: [&dyn Format; 2] = [&Postgres, &Oracle];

/// A file that its name and folder tell.
pub(crate) fn told_by_name(path: &Path) -> Option<NamedFile> {
    NamedFile::of(path)
}

/// What is known of a page beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct PageAt {
    /// Of which fork it is.
    pub fork: Fork,
    /// Its number, from the beginning of the fork.
    pub block: u32,
    /// Whether pages have checksums; none when nobody knows.
    pub checksums: Option<bool>,
}

/// A page taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Dissected {
    /// What it is, in words.
    pub kind: String,
    /// Its parts, the header first.
    pub parts: Vec<Part>,
    /// What cannot be.
    pub wrong: Vec<Wrong>,
    /// The checksum as it should be, where the format has one.
    pub checksum: Option<u32>,
}

impl fmt::Debug for dyn Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.owner())
    }
}

impl PartialEq for dyn Format {
    fn eq(&self, other: &dyn Format) -> bool {
        self.engine() == other.engine()
    }
}

impl Eq for dyn Format {}
