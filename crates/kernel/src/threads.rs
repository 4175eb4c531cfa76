//! Which thread a record is about: threads get numbers of their own, because the kernel uses tids again.

use crate::record::{Head, Named, Origin};
use std::collections::hash_map::Entry;
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

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    thread_id: i32,
    next_seq: u32,
    /// Kernel's side of its last stay off the CPU that had one.
    kernel_stack_id: i32,
}

/// A thread is looked up for each record: one multiplication, since nobody chooses tids to make that slow.
#[derive(Debug, Default)]
pub(crate) struct TidHasher(u64);

/// What is known of threads, by tid.
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
    by_tid: ByTid<Known>,
    last_id: i32,
    /// Rows not yet written.
    pub new: Vec<ThreadRow>,
    /// Records that are known to be missing.
    pub lost: u64,
}

impl Threads {
    /// A thread was found, made, or given another program.
    pub fn named(&mut self, head: Head, named: &Named) {
        if named.origin == Origin::Exec && named.other_tid != head.tid {
            // Not the first thread did it: it has the number of the first one now.
            if let Some(known) = self.by_tid.remove(&named.other_tid) {
                self.by_tid.insert(head.tid, known);
            }
        } else if named.origin != Origin::Exec {
            self.by_tid.remove(&head.tid);
        }
        let parent = if named.origin == Origin::Exec { 0 } else { named.other_tid };
        let known = self.by_tid.entry(head.tid).or_insert_with(|| {
            self.last_id += 1;
            Known { thread_id: self.last_id, ..Known::default() }
        });
        self.lost += known.missing(head.seq);
        let thread_id = known.thread_id;
        self.new.push(ThreadRow {
            thread_id,
            ts: head.ts as i64,
            tid: head.tid as i32,
            pid: named.tgid as i32,
            parent_tid: parent as i32,
            start_ns: named.start_ns as i64,
            comm: named.comm.clone(),
        });
    }

    /// The number of the thread a record is about; counts the records that are missing before it.
    pub fn of(&mut self, head: Head) -> i32 {
        self.take(head).thread_id
    }

    /// Likewise, of a stay off the CPU, and its kernel stack: `kernel_stack_id`, or that of the stay before.
    pub fn of_stay(&mut self, head: Head, kernel_stack_id: Option<i32>) -> (i32, i32) {
        let known = self.take(head);
        if let Some(id) = kernel_stack_id.filter(|id| *id != 0) {
            known.kernel_stack_id = id;
        }
        (known.thread_id, kernel_stack_id.unwrap_or(known.kernel_stack_id))
    }

    /// The number of the thread of a record that is not counted among its others; None when nothing is known of the thread.
    pub fn known(&self, tid: u32) -> Option<i32> {
        self.by_tid.get(&tid).map(|known| known.thread_id)
    }

    /// The thread has ended.
    pub fn ended(&mut self, tid: u32) {
        self.by_tid.remove(&tid);
    }

    #[inline]
    fn take(&mut self, head: Head) -> &mut Known {
        let known = match self.by_tid.entry(head.tid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                self.last_id += 1;
                self.new.push(unnamed(self.last_id, head));
                place.insert(Known { thread_id: self.last_id, ..Known::default() })
            }
        };
        self.lost += known.missing(head.seq);
        known
    }
}

impl Known {
    /// How many records are missing before this one.
    fn missing(&mut self, seq: u32) -> u64 {
        let missing = seq.wrapping_sub(self.next_seq);
        self.next_seq = seq.wrapping_add(1);
        missing.into()
    }
}

/// A thread whose first record was lost.
#[cold]
fn unnamed(thread_id: i32, head: Head) -> ThreadRow {
    let (ts, tid) = (head.ts as i64, head.tid as i32);
    let comm =
        std::fs::read_to_string(format!("/proc/{tid}/comm")).map_or_else(|_| String::new(), |c| c.trim_end().into());
    ThreadRow { thread_id, ts, tid, pid: process_of(tid).unwrap_or(tid), parent_tid: 0, start_ns: 0, comm }
}

/// The process of a thread that still lives.
fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(tid: u32, seq: u32) -> Head {
        Head { cpu: 0, tid, seq, ts: 5 }
    }

    fn named(origin: Origin, other_tid: u32) -> Named {
        Named { origin, tgid: 7, other_tid, start_ns: 1, comm: "sh".into() }
    }

    #[test]
    fn a_tid_that_is_used_again_is_another_thread() {
        let mut threads = Threads::default();
        threads.named(head(7, 0), &named(Origin::Begin, 1));
        threads.named(head(8, 0), &named(Origin::Fork, 7));
        assert_eq!((threads.of(head(7, 1)), threads.of(head(8, 1))), (1, 2));
        threads.ended(8);
        threads.named(head(8, 0), &named(Origin::Fork, 7));
        assert_eq!((threads.of(head(8, 1)), threads.lost), (3, 0));
        assert_eq!(
            threads.new.iter().map(|t| (t.thread_id, t.comm.as_str())).collect::<Vec<_>>(),
            [(1, "sh"), (2, "sh"), (3, "sh")]
        );
    }

    #[test]
    fn records_that_are_missing_are_counted() {
        let mut threads = Threads::default();
        threads.named(head(7, 0), &named(Origin::Begin, 1));
        threads.of(head(7, 1));
        threads.of(head(7, 5));
        assert_eq!(threads.lost, 3);
    }

    #[test]
    fn a_stay_may_have_the_kernel_stack_of_the_one_before() {
        let mut threads = Threads::default();
        let stays = [(7, Some(3)), (8, Some(4)), (7, None), (7, Some(0)), (7, None), (8, None), (9, None)];
        let found: Vec<_> =
            (0..).zip(stays).map(|(seq, (tid, stack))| threads.of_stay(head(tid, seq), stack)).collect();
        assert_eq!(found, [(1, 3), (2, 4), (1, 3), (1, 0), (1, 3), (2, 4), (3, 0)]);
    }

    #[test]
    fn exec_by_another_thread_than_the_first_keeps_who_it_is() {
        let mut threads = Threads::default();
        threads.named(head(7, 0), &named(Origin::Begin, 1));
        threads.named(head(8, 0), &named(Origin::Fork, 7));
        threads.ended(7);
        threads.named(head(7, 1), &named(Origin::Exec, 8));
        assert_eq!((threads.of(head(7, 2)), threads.lost), (2, 0));
    }
}
