//! What the threads of a recording and its owner share.

use leadline_errors::Error;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// What to record.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Config {
    pub capture_dir: PathBuf,
    pub pid: i32,
    pub rate_hz: f64,
    pub delta_interval_s: f64,
    pub flush_interval_s: f64,
    /// Let segments get longer than the flush interval as the recording does.
    pub growing_segments: bool,
    /// False: copy the segment for each pass instead of mapping it.
    pub allow_map: bool,
}

/// What the threads and the owner share.
#[derive(Debug, Default)]
pub struct Shared {
    pub stop: AtomicBool,
    pub realtime: AtomicBool,
    pub ts_from: AtomicI64,
    pub ticks: AtomicU64,
    pub missed: AtomicU64,
    pub torn: AtomicU64,
    pub unverified: AtomicU64,
    pub sessions: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub sampler_cpu_ns: AtomicI64,
    pub writer_cpu_ns: AtomicI64,
    pub error: Mutex<Option<Error>>,
    /// Somebody is about to read the segments: they are finished with what is handed over next.
    pub wanted: AtomicBool,
}

impl Shared {
    /// Stores what ended the recording and lets the sampler stop. The first error counts.
    pub fn fail(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.stop.store(true, Relaxed);
    }

    /// The server is there again.
    pub fn begin_again(&self) {
        *self.error.lock() = None;
        self.stop.store(false, Relaxed);
    }
}
