//! What `ALTER TABLE` and `pg_upgrade` left behind: rows and indexes in a form that the server would not write any more.
//!
//! [`relations`] says which relations there are and what their rows would look like if they were written now ([`Form`]);
//! [`scan`] counts the old ones of all of them on all cores; [`OldPages`] names those of one table, page by page. Nothing is written.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod form;
mod index;
mod old_pages;
mod reason;
mod relations;
mod scan;
mod tally;

pub use form::{Form, OldRow};
pub use index::{btree_meta, gin_page, hash_meta, GinPage};
pub use leadline_errors::{Error, Kind};
pub use old_pages::{OldPage, OldPages};
pub use reason::Reason;
pub use relations::{relations, Found, Relation, Wanted, What};
pub use scan::{scan, Look};
pub use tally::{Count, Tally};
