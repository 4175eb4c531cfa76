//! The clockwork that every probe of a capture shares, whatever it looks at.
//!
//! [`clock`](ClockReading) reads the three clocks as one, [`Ticker`] runs a probe's work at a steady rate in a thread of its own and counts
//! the ticks that came too late, [`OpenTables`] holds its tables and [`SegmentPolicy`] says when they are rolled, and [`OverheadProbe`]
//! is the work that every capture has: the rows of `clock`, and of `self_cost` for the whole process. [`Moments`] says when a sampler's
//! passes are due. [`ProcFile`] reads a file of /proc again and again.

mod clock;
mod moments;
mod overhead;
mod procfile;
mod segments;
mod self_cost;
mod tables;
mod ticker;

pub use clock::{become_realtime, monotonic_ns, realtime_ns, sleep_until, thread_cpu_ns, ClockReading};
pub use moments::Moments;
pub use overhead::OverheadProbe;
pub use procfile::ProcFile;
pub use segments::SegmentPolicy;
pub use self_cost::Cost;
pub use tables::{OpenTables, OwnedRow, Row};
pub use ticker::{Status, Tick, Ticker};

/// Nanoseconds of a second.
pub const SECOND: i64 = 1_000_000_000;
