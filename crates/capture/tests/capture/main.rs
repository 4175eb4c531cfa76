//! Rows that were written come back as they were, and what is on disk is whole whatever ended the writer.
//! One test program, since each one links the whole Parquet library.

mod disk_full;
mod killed;
mod row_groups;
mod rows;
mod scratch;
mod segments;
mod tables;
