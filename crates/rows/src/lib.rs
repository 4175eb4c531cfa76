//! Rows of PostgreSQL's tables, typed, straight from the files of a data directory: majors 13 to 18, no server.
//!
//! [`RowScan`] finds a relation through the directory's own catalog and reads its rows; [`export`] writes them. What bytes
//! mean is in [`tuple`], [`varlena`] and [`value`], which do no I/O and never panic, loop or allocate by a number that was
//! not checked.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod catalog;
mod data_dir;
mod error;
pub mod export;
mod heap_file;
mod scan;
mod toast;
pub mod tuple;
pub mod value;
pub mod varlena;
mod xact;

pub use error::{Error, Kind};
pub use scan::{Column, Place, Row, RowScan, Unread};
pub use xact::Status;
