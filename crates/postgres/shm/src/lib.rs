//! Reads a live PostgreSQL's shared memory from outside: no extension, no SQL, no connection, no stop.
//!
//! The way of the data: [`attach`] finds the server's anchors and proves the layout against the running processes,
//! [`sessions`] makes one pass over all sessions, and when someone waits, [`locks`] walks to the blocker and
//! [`buffers`] and [`lwlocks`] name the page or lock. Everything reads through the [`memory::Memory`] trait, so the same
//! code runs on a mapped segment, on `process_vm_readv` and on the made-up memory of the tests.
//!
//! Addresses in this crate are addresses *in the server's processes*. They are never dereferenced here, only passed
//! to a `Memory`. Postmaster and backends are forks of each other: shared memory and globals sit at the same address in all.

pub mod attach;
pub mod buffers;
#[cfg(test)]
mod corrupt;
pub mod counters;
pub mod elf;
pub mod held_locks;
pub mod layout;
pub mod locks;
pub mod lwlocks;
pub mod memory;
pub mod page_kind;
pub mod pipeline;
pub mod process;
pub mod procfs;
pub mod sessions;
pub mod statement;
pub mod status;
pub mod wait_events;

pub use leadline_errors::{Error, Kind, Result};
