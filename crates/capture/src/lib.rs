//! The tables of leadline as Arrow schemas, and captures written as Parquet segments.
//!
//! Owns: what a table looks like ([`spec`]), how rows become files ([`TableWriter`]). Does not own: where rows come
//! from, the manifest, reading. The truth about columns is in the table files (`python/leadline/tables`, and
//! `tables/` of each engine), compiled in by `build.rs`, or given to [`define`]; the layout of a capture folder is in `docs/concepts/contracts.md`.

mod batch;
mod dictionary;
mod error;
mod int_column;
mod int_segment;
mod rename;
mod row_group;
mod segment;
mod spec;
mod writer;

pub use batch::{BatchBuilder, Value};
pub use error::{Error, StorageOp};
pub use rename::exchange;
pub use spec::{define, spec, specs, Column, ColumnSpec, ColumnType, Kind, TableSpec};
pub use writer::{Stats, TableWriter, WriterOptions};
