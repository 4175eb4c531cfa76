//! The clocks: CLOCK_MONOTONIC for everything, the others to pair with it; and to be awake in time.

fn read(clock: libc::clockid_t) -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec; the clocks asked for always exist on Linux.
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

/// The clocks of the kernel at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: i64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime_ns: i64,
    /// CLOCK_BOOTTIME, ns: goes on while the host is suspended.
    pub boottime_ns: i64,
    /// The three belong to one moment within this many ns.
    pub uncertainty_ns: i64,
}

impl ClockReading {
    /// Reads the other clocks between two readings of CLOCK_MONOTONIC. Of a few tries the tightest counts, so that being interrupted in
    /// between does not show up as an offset.
    pub fn now() -> ClockReading {
        let mut best = ClockReading::once();
        for _ in 0..4 {
            let next = ClockReading::once();
            if next.uncertainty_ns < best.uncertainty_ns {
                best = next;
            }
        }
        best
    }

    fn once() -> ClockReading {
        let before = monotonic_ns();
        let (realtime_ns, boottime_ns) = (realtime_ns(), read(libc::CLOCK_BOOTTIME));
        let uncertainty_ns = monotonic_ns() - before;
        ClockReading { monotonic_ns: before + uncertainty_ns / 2, realtime_ns, boottime_ns, uncertainty_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_go_on_together() {
        let (first, second) = (ClockReading::now(), ClockReading::now());
        assert!(second.monotonic_ns > first.monotonic_ns);
        assert!(second.boottime_ns > first.boottime_ns, "the three are read anew each time");
        let drift = (second.boottime_ns - first.boottime_ns) - (second.monotonic_ns - first.monotonic_ns);
        assert!(drift.abs() <= first.uncertainty_ns + second.uncertainty_ns, "{drift}");
    }
}
