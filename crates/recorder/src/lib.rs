//! The recorder: samples one server at a steady rate and writes what it sees as the tables of a capture.
//!
//! Two threads. The sampler ([`sampler`]) wakes at each due time, makes one pass over shared memory and, when someone
//! waits, looks at locks and buffers within a budget ([`looks`]). It never touches a file. The background thread
//! ([`background`]) turns what it hands over into Parquet, reads the counters of each process once a second
//! ([`deltas`], [`host_stat`], [`self_cost`]) and notices when the server is gone.

mod background;
mod clock;
mod deltas;
mod evidence;
mod host_stat;
mod looks;
mod procfile;
mod recorder;
mod sampler;
mod self_cost;
mod tables;
mod taskstats;

pub use clock::{become_realtime, monotonic_ns, realtime_ns, sleep_until};
pub use recorder::{Config, Description, Recorder, Status};
