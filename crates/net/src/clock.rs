//! CLOCK_MONOTONIC in nanoseconds, what reading it costs, and waiting for a moment of it.

use serde_json::{json, Value};

use leadline_histogram::Times;

/// How long before the moment the thread stops sleeping and reads the clock instead.
const SPIN_NS: i64 = 60_000;
/// Pairs of readings from which the cost is known.
const READINGS: usize = 100_000;

/// Now on CLOCK_MONOTONIC.
pub fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// What one reading of the clock costs: differences of readings that follow each other at once. The largest is no cost of the clock but a
/// pause that the host forced on the thread, which a round trip meets too.
pub fn clock_cost() -> Value {
    let mut times = Times::new();
    let mut before = now_ns();
    for _ in 0..READINGS {
        let now = now_ns();
        times.record(now - before);
        before = now;
    }
    json!({ "readings": READINGS, "p50_ns": times.quantile(0.5), "p99_ns": times.quantile(0.99), "max_ns": times.max() })
}

/// Waits until this moment, or returns at once if it is past: asleep first, then reading the clock.
pub fn wait_until(due_ns: i64) {
    let wake = due_ns - SPIN_NS;
    if wake > now_ns() {
        let at = libc::timespec { tv_sec: wake / 1_000_000_000, tv_nsec: wake % 1_000_000_000 };
        // SAFETY: both pointers are valid or null as the call allows. A signal that ends it early leaves more to spin, not more to wait.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut()) };
    }
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}

/// Timers of this thread fire at their time and not up to 50 us later, which is the default of Linux.
pub fn exact_timers() {
    // SAFETY: the call takes a number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}
