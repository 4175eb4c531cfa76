//! The newest minutes of a recording in memory, and the sums of a window of it: what `leadline top` shows all the time.
//!
//! The tables and views of a capture say what each number is; a query over them for each refresh costs more than all the sampling.
//! So the few tables behind these numbers are read once more here. `tests/unit/test_top_window.py` compares the sums with the views.

#![forbid(unsafe_code)]

mod kept;
mod queue;
mod segment;
mod window;

pub use kept::{Description, Recent};
pub use window::{Counts, CpuSplit, Look, SessionNow, Step};
