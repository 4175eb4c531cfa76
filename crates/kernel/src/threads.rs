//! Which thread a record is about: each has a number in the trace, because the kernel uses tids again.

use crate::record::{Head, Named, Origin};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A thread as it is to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ThreadRow {
    pub thread_id: i32,
    pub ts: i64,
    pub tid: i32,
    pub pid: i32,
    pub parent_tid: i32,
    pub start_ns: i64,
    pub comm: String,
}

/// A thread is looked up for each record: one multiplication, since nobody chooses tids to make that slow.
#[derive(Debug, Default)]
pub(crate) struct TidHasher(u64);

/// What is known of threads, by tid or by number in the trace.
pub(crate) type ByTid<T> = HashMap<u32, T, BuildHasherDefault<TidHasher>>;

impl Hasher for TidHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u32(u32::from(*b)));
    }

    fn write_u32(&mut self, tid: u32) {
        self.0 = (self.0 ^ u64::from(tid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// The threads of a trace.
#[derive(Debug, Default)]
pub struct Threads {
    /// By number: the kernel's side of the last stay off the CPU that had one.
    known: ByTid<i32>,
    /// Numbers up to this one were given before the trace began.
    before: u32,
    ended: Vec<u32>,
    /// Rows not yet written, of traced threads.
    pub new: Vec<ThreadRow>,
    /// Likewise, of others that woke them.
    pub wakers: Vec<ThreadRow>,
}

impl Threads {
    /// The trace begins: the next thread is its first.
    pub fn begin(&mut self, newest: u32) {
        self.before = newest;
    }

    /// The number of a thread in the capture, from 1; 0: none that is traced.
    #[inline]
    pub fn id(&self, head: Head) -> i32 {
        head.thread.saturating_sub(self.before) as i32
    }

    /// A thread was found, made, or given another program or name; or it woke one that is traced.
    pub fn named(&mut self, head: Head, named: &Named) {
        let row = ThreadRow {
            thread_id: self.id(head),
            ts: head.ts as i64,
            tid: head.tid as i32,
            pid: named.tgid as i32,
            parent_tid: named.other_tid as i32,
            start_ns: named.start_ns as i64,
            comm: named.comm.clone(),
        };
        if named.origin == Origin::Waker {
            self.wakers.push(row);
            return;
        }
        self.known.entry(head.thread).or_default();
        self.new.push(row);
    }

    /// The number of the thread a record is about.
    #[inline]
    pub fn of(&mut self, head: Head) -> i32 {
        self.take(head);
        self.id(head)
    }

    /// Likewise, of a stay off the CPU, and its kernel stack: `kernel_stack_id`, or that of the stay before.
    pub fn of_stay(&mut self, head: Head, kernel_stack_id: Option<i32>) -> (i32, i32) {
        let last = self.take(head);
        if let Some(id) = kernel_stack_id.filter(|id| *id != 0) {
            *last = id;
        }
        let stack = kernel_stack_id.unwrap_or(*last);
        (self.id(head), stack)
    }

    /// The thread has ended: its last record comes before the next [`Threads::forget`].
    pub fn ended(&mut self, head: Head) {
        self.ended.push(head.thread);
    }

    /// Forgets threads that have ended; their numbers.
    pub fn forget(&mut self) -> Vec<u32> {
        let ended = std::mem::take(&mut self.ended);
        for number in &ended {
            self.known.remove(number);
        }
        ended
    }

    #[inline]
    fn take(&mut self, head: Head) -> &mut i32 {
        let (new, id) = (&mut self.new, head.thread.saturating_sub(self.before) as i32);
        self.known.entry(head.thread).or_insert_with(|| {
            new.push(unnamed(head, id));
            0
        })
    }
}

/// A thread for whose name there was no room.
#[cold]
fn unnamed(head: Head, thread_id: i32) -> ThreadRow {
    let (ts, tid) = (head.ts as i64, head.tid as i32);
    let comm =
        std::fs::read_to_string(format!("/proc/{tid}/comm")).map_or_else(|_| String::new(), |c| c.trim_end().into());
    let pid = process_of(tid).unwrap_or(tid);
    ThreadRow { thread_id, ts, tid, pid, parent_tid: 0, start_ns: 0, comm }
}

/// The process of a thread that still lives.
fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(thread: u32) -> Head {
        Head { cpu: 0, tid: 0x7fff_fff0 + thread, thread, ts: 5 }
    }

    fn named(origin: Origin, comm: &str) -> Named {
        Named { origin, tgid: 7, other_tid: 1, start_ns: 1, comm: comm.into() }
    }

    #[test]
    fn each_name_of_a_thread_is_a_row_and_one_without_a_name_has_a_row_too() {
        let mut threads = Threads::default();
        threads.named(head(1), &named(Origin::Begin, "sh"));
        threads.named(head(1), &named(Origin::Renamed, "worker"));
        threads.named(head(0), &named(Origin::Waker, "cron"));
        assert_eq!((threads.of(head(1)), threads.of(head(2)), threads.of(head(2))), (1, 2, 2));
        let rows = |rows: &[ThreadRow]| rows.iter().map(|t| (t.thread_id, t.comm.clone())).collect::<Vec<_>>();
        assert_eq!(rows(&threads.new), [(1, "sh".into()), (1, "worker".into()), (2, String::new())]);
        assert_eq!(rows(&threads.wakers), [(0, "cron".into())]);
    }

    #[test]
    fn threads_are_counted_from_the_begin_of_the_trace() {
        let mut threads = Threads::default();
        threads.begin(5);
        threads.named(head(6), &named(Origin::Begin, "sh"));
        assert_eq!((threads.of(head(6)), threads.of(head(8)), threads.id(head(0)), threads.id(head(3))), (1, 3, 0, 0));
        assert_eq!(threads.new.iter().map(|t| t.thread_id).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_stay_may_have_the_kernel_stack_of_the_one_before() {
        let mut threads = Threads::default();
        let stays = [(1, Some(3)), (2, Some(4)), (1, None), (1, Some(0)), (1, None), (2, None), (3, None)];
        let found: Vec<_> = stays.into_iter().map(|(thread, stack)| threads.of_stay(head(thread), stack)).collect();
        assert_eq!(found, [(1, 3), (2, 4), (1, 3), (1, 0), (1, 3), (2, 4), (3, 0)]);
    }

    #[test]
    fn a_thread_that_has_ended_is_forgotten_after_its_last_records() {
        let mut threads = Threads::default();
        threads.named(head(1), &named(Origin::Begin, "sh"));
        threads.ended(head(1));
        threads.of(head(1));
        assert_eq!(threads.new.len(), 1);
        threads.forget();
        assert!(threads.known.is_empty());
    }
}
