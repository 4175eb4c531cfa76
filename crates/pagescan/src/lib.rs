//! Relation files and whole data directories of PostgreSQL, page by page, on all cores and in bounded memory.
//!
//! [`Run`] reads them piece by piece: it reports what is wrong, and with a capture folder it writes a row for each
//! page, line pointer and tuple header. [`files`] says which files there are and what their names mean. What pages mean is
//! `leadline-page`'s business.

#![warn(missing_docs)]

mod backups;
mod error;
mod extract;
pub mod files;
pub mod formats;
mod hole;
mod incremental;
mod layout;
mod listing;
mod lock;
mod one;
mod passed;
mod plan;
mod reread;
mod run;
mod segments;
mod tables;

pub use extract::{Extract, Extractable};
pub use files::RelationFile;
pub use layout::Layout;
pub use leadline_backup::{backups_in, list_of, mount, ArchivedWal, GoOn, ListObjects, Passphrase, ReadObject, Unread};
pub use leadline_errors::Error;
pub use lock::try_lock;
pub use one::{read_as, read_page, OnePage};
pub use passed::{Passed, PassedOver};
pub use plan::{FileTask, PartTask, Plan, Task};
pub use reread::{check_fast, look_again};
pub use run::{Options, Problem, Run, Status, Summary};
