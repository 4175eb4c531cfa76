//! Parquet, page by page: what is encoded here goes into a column chunk as it is, without Arrow arrays in between.
//!
//! Owns: a buffer that is written by words ([`Buffer`]), the integer encodings ([`put_delta`], [`put_hybrid`]) and pages with their headers ([`put_page`], [`put_dictionary`]).
//! Does not own: which column is encoded how, the file around the chunks. Written because the general writer costs more CPU a
//! value than a recorder may use, and than reading a row takes.

#![forbid(unsafe_code)]

mod buffer;
mod packing;
mod page;

pub use buffer::{ends, Buffer};
pub use packing::{bit_width, put_delta, put_hybrid, Int};
pub use page::{put_dictionary, put_page};
