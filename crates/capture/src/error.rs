//! What can go wrong while evidence is written. Nothing here panics.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use leadline_errors::{Error as Shown, Kind};

/// What was being done to the file system when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageOp {
    /// Making the folder of a table.
    CreateFolder,
    /// Listing the folder of a table.
    List,
    /// Making the file of a segment.
    Create,
    /// Writing a segment.
    Write,
    /// Forcing a segment or its folder to disk.
    Sync,
    /// Giving a whole segment its final name.
    Rename,
}

impl fmt::Display for StorageOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StorageOp::CreateFolder => "create folder",
            StorageOp::List => "list",
            StorageOp::Create => "create",
            StorageOp::Write => "write",
            StorageOp::Sync => "sync",
            StorageOp::Rename => "rename",
        })
    }
}

/// Why rows did not become evidence.
#[derive(Debug)]
pub enum Error {
    /// The file system said no. `source` keeps the operating system's own error number.
    Storage {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        op: StorageOp,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is no stored table of this name.
    UnknownTable {
        /// The name asked for.
        table: String,
        /// It exists, but as a view, which is never written.
        is_view: bool,
    },
    /// A table cannot be defined so.
    Definition {
        /// The name it was to have.
        table: String,
        /// What is wrong.
        detail: String,
    },
    /// A batch does not have the schema of its table.
    Schema {
        /// The table.
        table: &'static str,
        /// The first difference.
        detail: String,
    },
    /// A row does not fit its table. `row` counts from 0 within the call that failed.
    Row {
        /// The table.
        table: &'static str,
        /// The column; empty when the row as a whole is wrong.
        column: &'static str,
        /// Which row.
        row: usize,
        /// What is wrong.
        detail: String,
    },
    /// Parquet could not encode a batch that has the right schema.
    Encode {
        /// The table.
        table: &'static str,
        /// What the Parquet library said.
        detail: String,
    },
}

impl Error {
    /// No room left: the device is full or a quota is used up. What is on disk already stays whole.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Error::Storage { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Storage { path, op, source } => write!(f, "{op} {}: {source}", path.display()),
            Error::UnknownTable { table, is_view: true } => write!(f, "{table} is a view and cannot be written"),
            Error::UnknownTable { table, is_view: false } => write!(f, "no table named {table}"),
            Error::Definition { table, detail } => write!(f, "table {table} cannot be defined: {detail}"),
            Error::Schema { table, detail } => write!(f, "a batch does not fit table {table}: {detail}"),
            Error::Row { table, column: "", row, detail } => {
                write!(f, "row {row} does not fit table {table}: {detail}")
            }
            Error::Row { table, column, row, detail } => {
                write!(f, "row {row} does not fit column {table}.{column}: {detail}")
            }
            Error::Encode { table, detail } => write!(f, "rows of table {table} cannot be encoded: {detail}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Storage { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// As the user sees it.
impl From<Error> for Shown {
    fn from(e: Error) -> Shown {
        let said = e.to_string();
        match &e {
            Error::Storage { path, op, source } => {
                let (message, hint) = if e.is_disk_full() {
                    let hint =
                        format!("free space (df -h {}) or write to another file system with -o DIR", folder(path));
                    ("no space left to write the capture", hint)
                } else if source.kind() == io::ErrorKind::PermissionDenied {
                    let hint = format!("choose a writable folder with -o DIR, or: chown $(id -un) {}", folder(path));
                    ("cannot write the capture", hint)
                } else {
                    ("cannot write the capture", String::new())
                };
                let detail = format!("{op}: {source}; finished segments are complete and readable");
                Shown::new(Kind::Storage, message).detail(detail).hint(hint).at(path)
            }
            Error::UnknownTable { table, is_view } => {
                let kind = if *is_view { Kind::Invalid } else { Kind::NotFound };
                Shown::new(kind, said).hint("run leadline tables to list the tables").at(table)
            }
            Error::Definition { table, detail } => {
                Shown::new(Kind::Invalid, format!("table {table} cannot be defined")).detail(detail).at(table)
            }
            Error::Schema { table, detail } | Error::Encode { table, detail } => {
                Shown::new(Kind::Invalid, format!("rows do not fit table {table}")).detail(detail).at(table)
            }
            Error::Row { table, column, row, detail } => {
                let at = if column.is_empty() { (*table).to_owned() } else { format!("{table}.{column}") };
                Shown::new(Kind::Invalid, format!("row {row} does not fit {at}"))
                    .detail(detail)
                    .hint(format!("run leadline tables {table} to list the columns"))
                    .at(format!("{at}, row {row}"))
            }
        }
    }
}

/// The folder of a path, for commands people type.
fn folder(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}
