//! Where threads spend their time, call by call: system calls, sleeps and waits for a CPU of any process, traced by BPF.
//!
//! [`programs`] loads the programs of `bpf/` and hands over their records, [`record`] reads them, [`KernelProbe`] is the work of one
//! tick of `leadline_clockwork` and writes the tables. Accounting happens in the kernel (bpf/trace.bpf.c): what a thread did is exact even
//! when the buffer between kernel and reader was full, and how much of the detail was lost is known.

mod accounting;
mod aio;
mod block;
mod calibration;
mod cpus;
mod files;
mod functions;
mod governor;
mod jit;
mod kernel_stacks;
mod objects;
mod perf;
mod probe;
mod proc_threads;
pub mod programs;
pub mod record;
mod retransmits;
mod ring;
mod sideband;
mod signals;
mod source;
mod stacks;
mod starts;
mod symbols;
mod syscalls;
mod threads;
mod tracepoints;
mod unwind;
mod uring;

pub use calibration::PerWaking;
pub use probe::{Counts, KernelProbe};
pub use programs::Options;
pub use source::Tier;
