//! What the tool itself uses: CPU of the process and of its threads, memory; rows of `self_cost`.

use crate::procfile::ProcFile;
use crate::tables::Row;
use leadline_capture::Value;

/// User and system CPU of the process since it started, ns.
pub(crate) fn process_cpu_ns() -> (i64, i64) {
    // SAFETY: an all-zero rusage is valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ns = |t: libc::timeval| t.tv_sec * 1_000_000_000 + t.tv_usec * 1_000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// Resident memory of this process.
#[derive(Debug)]
pub(crate) struct OwnMemory(Option<ProcFile>);

impl Default for OwnMemory {
    fn default() -> Self {
        OwnMemory(ProcFile::open("/proc/self/statm").ok())
    }
}

impl OwnMemory {
    /// Bytes now; 0 when it cannot be read.
    pub fn rss_bytes(&self) -> i64 {
        let mut buffer = [0; 128];
        let text = self.0.as_ref().and_then(|file| file.read(&mut buffer).ok()).unwrap_or("");
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        text.split_ascii_whitespace().nth(1).and_then(|p| p.parse::<i64>().ok()).unwrap_or(0) * page
    }
}

/// A row of `self_cost`.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// When it was read.
    pub ts: i64,
    /// `process`, or the name of a thread.
    pub component: &'static str,
    /// Since the start of the window; of a thread all CPU time, since its clock does not tell user from system.
    pub user_ns: i64,
    /// Since the start of the window.
    pub system_ns: i64,
    /// Of the process; 0 for a thread.
    pub rss_bytes: i64,
    /// Written so far.
    pub bytes: i64,
    /// Written so far.
    pub rows: i64,
}

impl Cost {
    /// The row in the order of the columns.
    pub fn row(&self) -> Row<'static> {
        vec![
            Value::Int(self.ts),
            Value::Text(self.component),
            Value::Int(self.user_ns),
            Value::Int(self.system_ns),
            Value::Int(self.rss_bytes),
            Value::Int(self.bytes),
            Value::Int(self.rows),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_used_shows() {
        let memory = OwnMemory::default();
        let before = memory.rss_bytes();
        let used = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(memory.rss_bytes() - before > 32 << 20, "{before} before {} bytes", used.len());
    }
}
