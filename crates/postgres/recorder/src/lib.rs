//! The recorder: samples one server at a steady rate and writes what it sees as the tables of a capture.
//!
//! Two threads. The sampler (`sampler`) wakes at each due time, makes one pass over shared memory and, when someone
//! waits, looks at locks and buffers within a budget (`contention`). It never touches a file. The background thread
//! (`background`) turns what it hands over into Parquet, reads the counters of each process once a second
//! (`deltas`) and notices when the server is gone. What it shares with other probes is in `leadline_clockwork`. Positions in the WAL
//! (`pipeline`) have a thread of their own, which rests while the sampler reads them after its passes (`riders`).

mod background;
mod contention;
mod deltas;
mod evidence;
mod lock_passes;
mod pipeline;
mod recorder;
mod riders;
mod sampler;
mod shared;
mod tables;

pub use pipeline::{PipelineMemory, PipelineProbe};
pub use recorder::{Description, Recorder, Status};
pub use shared::Config;
