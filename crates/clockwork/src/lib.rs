//! The clockwork that every probe of a capture shares, whatever it looks at.
//!
//! [`clock`](ClockReading) reads the three clocks as one, [`Beat`] runs a probe's work at a steady rate in a thread of its own and counts
//! the beats that came too late, [`OpenTables`] holds its tables and [`SegmentPolicy`] says when they are rolled, and [`Keeper`]
//! is the work that every capture has: the rows of `clock`, and of `self_cost` for the whole process. [`ProcFile`] reads a file of /proc
//! again and again.

mod beat;
mod clock;
mod keeper;
mod procfile;
mod segments;
mod self_cost;
mod tables;

pub use beat::{Beat, Status, Work};
pub use clock::{become_realtime, monotonic_ns, realtime_ns, sleep_until, thread_cpu_ns, ClockReading};
pub use keeper::Keeper;
pub use procfile::ProcFile;
pub use segments::SegmentPolicy;
pub use self_cost::Cost;
pub use tables::{OpenTables, OwnedRow, Row};

/// Nanoseconds of a second.
pub const SECOND: i64 = 1_000_000_000;
