//! The host as /proc, /sys and taskstats tell it, at 1 to 10 readings a second.
//!
//! [`HostProbe`] is the work of one tick of `leadline_clockwork`: counters of the whole host (`counters`), what each process used
//! (`processes`), processes that ended between two readings (`exits`), block devices and network interfaces (`devices`) and
//! control groups (`cgroups`). [`SocketsProbe`] is another such work: the TCP connections of one server. Everything here reads only, and what cannot be read gives no row.

mod cgroups;
mod counters;
mod devices;
mod exits;
mod probe;
mod processes;
pub mod procfile;
mod sockets;
mod task;
pub mod taskstats;

pub use probe::{Access, HostProbe, Losses};
pub use sockets::SocketsProbe;
