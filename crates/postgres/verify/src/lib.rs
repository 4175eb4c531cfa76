//! Relations checked across their pages: what no page shows by itself.
//!
//! A page that is wrong by itself is the business of `leadline_page::postgres::check`. Here pages are compared with each other, with other
//! relations, and with the catalog: siblings, downlinks, the order of keys, chains of row versions, rows against indexes, values against
//! their types and their TOAST chunks.
//!
//! Files of a server that runs or crashed are not of one moment. But whatever was changed before the redo point of the last checkpoint is in
//! them: a page whose LSN is before it is exactly as it was at that point. So only such pages are compared with others
//! ([`Page::is_settled`]), and the others are counted.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blocks;
mod brin;
mod btree;
mod catalog_rows;
mod check;
mod gin;
mod gist;
mod hash;
mod heap;
mod heap_tids;
mod index;
mod index_pages;
#[cfg(test)]
mod made;
mod maps;
mod order;
mod problem;
mod progress;
mod run;
mod scalars;
mod sequence;
mod spgist;
mod target;
mod toast;
mod values;

pub use blocks::{Blocks, Page, Settled};
pub use check::{check, Summary};
pub use index::{Index, Key};
pub use problem::{Level, Problem, Report, Sure};
pub use progress::Progress;
pub use run::Run;
pub use target::Target;
