//! The floor under every sampler: a thread of real-time priority that wakes up at a steady rate and does nothing.
//!
//!     wakeups HZ      until SIGTERM; the first line of stdout says that it runs, the last says what was done
//!
//! `bench/overhead.py` measures it beside leadline: what is above it is what leadline does.

use leadline_clockwork::{become_realtime, monotonic_ns, sleep_until};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOPPED.store(true, Relaxed);
}

fn main() {
    let rate_hz: f64 = std::env::args().nth(1).and_then(|hz| hz.parse().ok()).expect("usage: wakeups HZ");
    let period_ns = (1e9 / rate_hz) as i64;
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::signal(libc::SIGTERM, stop as *const () as libc::sighandler_t) };
    println!("{{\"realtime\": {}}}", become_realtime());
    let start = monotonic_ns();
    let (mut moment, mut passes, mut missed) = (0, 0, 0);
    while !STOPPED.load(Relaxed) {
        sleep_until(start + moment * period_ns);
        passes += 1;
        let next = ((monotonic_ns() - start) / period_ns).max(moment) + 1;
        missed += next - (moment + 1);
        moment = next;
    }
    let elapsed_s = (monotonic_ns() - start) as f64 / 1e9;
    println!("{{\"passes\": {passes}, \"missed\": {missed}, \"elapsed_s\": {elapsed_s}}}");
}
