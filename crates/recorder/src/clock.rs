//! The clocks: CLOCK_MONOTONIC for everything, wall time once to pair with it; and to be awake in time.

fn read(clock: libc::clockid_t) -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec; both clocks always exist on Linux.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, ns since 1970.
pub fn realtime_ns() -> i64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until a moment of CLOCK_MONOTONIC; returns early on a signal.
pub fn sleep_until(at_ns: i64) {
    let t = libc::timespec { tv_sec: at_ns / 1_000_000_000, tv_nsec: at_ns % 1_000_000_000 };
    // SAFETY: `t` is a valid timespec; the remainder is not asked for with an absolute time.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &t, std::ptr::null_mut()) };
}

/// Asks for the lowest real-time priority, so that a saturated server does not decide when it is looked at. A pass takes
/// microseconds. False when the right (CAP_SYS_NICE) is missing: then passes come late or are missed, and counted.
pub fn become_realtime() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: sets the scheduling of the calling thread from a valid struct.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) == 0 }
}
