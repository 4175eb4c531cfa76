//! Pages of database files, dissected: what is in them, byte by byte, and what is wrong with them.
//!
//! Pure: bytes in, structures out. No I/O, no clock, no state. Nothing here panics, loops or allocates by a number that a
//! page holds before that number was checked against the page's size.
//!
//! [`postgres::dissect`] gives all of a page as [`Part`]s with [`Field`]s under their owner's names; [`regions`] lays the
//! fields side by side so that they cover the page without gap and overlap. [`postgres::check`] is the fast way over many
//! pages: only what is wrong.
//!
//! ```
//! use leadline_page::postgres::{dissect, Fork, Kind};
//! let page = dissect(&[0; 8192], Fork::Main);
//! assert_eq!(page.kind, Kind::New);
//! assert!(page.wrong.is_empty());
//! assert_eq!(leadline_page::regions(&page.parts, 8192).len(), 1);
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod informix;
mod lsn;
pub mod oracle;
mod part;
pub mod postgres;
mod reader;
mod region;

pub use lsn::Lsn;
pub use part::{Field, FieldKind, Part, Tid, Value, Wrong};
pub use reader::{Flag, Reader};
pub use region::{regions, Region};
