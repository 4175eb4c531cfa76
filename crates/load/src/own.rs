//! What the client itself uses: a load is only as good as the client that makes it.

use leadline_clockwork::{thread_cpu_ns, ProcFile};

/// Of one thread.
pub(crate) struct Own {
    schedstat: Option<ProcFile>,
    cpu_ns: i64,
    waited_ns: Option<i64>,
}

impl Own {
    /// Of the thread that calls.
    pub(crate) fn new() -> Own {
        let mut own = Own { schedstat: ProcFile::open("/proc/thread-self/schedstat").ok(), cpu_ns: 0, waited_ns: None };
        own.since();
        own
    }

    /// Nanoseconds on a CPU and in the run queue, since the last call; the second is None where the kernel does not count it.
    pub(crate) fn since(&mut self) -> (i64, Option<i64>) {
        let mut buffer = [0; 128];
        let text = self.schedstat.as_ref().and_then(|file| file.read(&mut buffer).ok());
        let waited = text.and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<i64>().ok());
        let cpu = thread_cpu_ns();
        let passed = (cpu - self.cpu_ns, waited.zip(self.waited_ns).map(|(now, before)| now - before));
        (self.cpu_ns, self.waited_ns) = (cpu, waited);
        passed
    }
}
