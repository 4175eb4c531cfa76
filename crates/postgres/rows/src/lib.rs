//! Rows of PostgreSQL's tables, typed, straight from the files of a data directory: majors 13 to 18, no server.
//!
//! [`RowScan`] finds a relation through the directory's own catalog and reads its rows; [`export`] writes them. What bytes
//! mean is in [`mod@tuple`], [`varlena`] and [`value`], which do no I/O and never panic, loop or allocate by a number that was
//! not checked.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod beside;
pub mod catalog;
pub mod catalog_names;
mod cell;
mod cells;
mod compare;
mod cut_off;
mod damage;
mod decode;
mod encoding;
pub mod export;
mod file_names;
mod filter;
mod find;
pub mod heap_file;
mod losses;
mod lost_logs;
pub mod names;
mod needed;
mod outside;
mod page_values;
mod relation;
mod scan;
mod segments;
mod settle;
mod slru;
mod tables;
pub mod toast;
pub mod toast_places;
pub mod tuple;
pub mod value;
mod value_texts;
pub mod varlena;
pub mod xact;
mod zeros;

pub use beside::Beside;
pub use cell::Place;
pub use compare::{compare, Fault};
pub use cut_off::CutOff;
pub use damage::Damage;
pub use decode::Unread;
pub use encoding::Encoding;
pub use file_names::{file_names, FileName};
pub use find::{database_names, relation_of_file};
pub use leadline_errors::{Error, Kind};
pub use losses::{Loss, Losses};
pub use needed::{files_of_catalogs, files_of_database, files_of_table, Needed};
pub use page_values::{ItemValues, PageValues};
pub use relation::Column;
pub use scan::{Row, RowScan, Wanted};
pub use tables::{built_in_types, BuiltIn, Elsewhere, Given, Tables};
pub use value_texts::ValueTexts;
pub use xact::{Moment, Status, Until};
pub use zeros::Zeros;
