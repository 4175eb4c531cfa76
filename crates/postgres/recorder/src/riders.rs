//! What is read in the sampler's thread while one runs: to wake a thread up costs several times as much as to read a few positions.
//!
//! A rider has a thread of its own, too, which reads when no sampler does: none was started, its server is away, or its rate is lower.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What is read beside the passes of a sampler.
pub(crate) trait Rider: Send + Sync {
    /// Reads if a reading is due, and waits for nothing.
    fn look_beside(&self);
}

/// Those of this process.
static RIDERS: Mutex<Vec<Weak<dyn Rider>>> = Mutex::new(Vec::new());

/// From now on the samplers of this process read it, until it is dropped.
pub(crate) fn add(rider: &Arc<impl Rider + 'static>) {
    let mut riders = RIDERS.lock();
    riders.retain(|other| other.strong_count() > 0);
    let rider: Weak<dyn Rider> = Arc::downgrade(rider) as _;
    riders.push(rider);
}

/// Has all of them read that are due.
pub(crate) fn look() {
    let Some(riders) = RIDERS.try_lock() else { return };
    for rider in riders.iter().filter_map(Weak::upgrade) {
        rider.look_beside();
    }
}
