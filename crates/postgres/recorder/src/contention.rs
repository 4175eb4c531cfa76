//! Looks at locks, buffers and LWLocks: made only when someone waits, each within its share of a core.
//!
//! A look that took `d` is not made again before `d / share` has passed, so a large server makes looks rarer, never the
//! tool dearer. All looks together stay under 0.16 % of a core at 100 Hz; who asks for more passes gets more looks.

use crate::evidence::{mode, BufferRow, Evidence, Holder, LockRow, LwlockRow, ScanRow, WaiterRow};
use crate::lock_passes::LockPasses;
use leadline_clockwork::{monotonic_ns, thread_cpu_ns};
use leadline_datadir::RelFile;
use leadline_shm::attach::Attached;
use leadline_shm::buffers::{self, BufferWait, Buffers, WaitKind, Wanted};
use leadline_shm::held_locks::HeldLocks;
use leadline_shm::lwlocks::{self, Waiter};
use leadline_shm::memory::SharedMemory;
use leadline_shm::sessions::Sessions;
use leadline_shm::wait_events::class;
use leadline_shm::{layout::Layout, locks};
use std::collections::{HashMap, HashSet};

/// When a kind of look may be made again. Costs are CPU of this thread: time would count what others did meanwhile, and without real-time
/// priority a saturated server would not be looked at just when it matters.
#[derive(Debug)]
struct Budget {
    /// Part of a core it may use.
    share: f64,
    at_least_ns: i64,
    at_most_ns: i64,
    due: i64,
}

impl Budget {
    fn new(share: f64, at_least_ns: i64, at_most_ns: i64) -> Self {
        Budget { share, at_least_ns, at_most_ns, due: i64::MIN }
    }

    fn is_due(&self, now: i64) -> bool {
        now >= self.due
    }

    /// Books a look; returns the time until the next.
    fn spend(&mut self, now: i64, cost_ns: i64) -> i64 {
        let pause = ((cost_ns as f64 / self.share) as i64).clamp(self.at_least_ns, self.at_most_ns);
        self.due = now + pause;
        pause
    }
}

const MS: i64 = 1_000_000;
/// Turning an edge into a stored row costs about this much in the background thread.
const EDGE_ROW_NS: i64 = 1_500;
/// Buffers (1 GB of them) above which single buffers are looked at between scans.
const LARGE_POOL: u32 = 131_072;
/// How long a file length is believed.
const FILE_LENGTH_NS: i64 = 1_000 * MS;

/// What the looks need to remember between passes.
#[derive(Debug)]
pub struct Contention {
    layout: Layout,
    anchors: leadline_shm::attach::Anchors,
    postmaster: i32,
    buffers: Buffers,
    held_locks: Option<HeldLocks>,
    content_code: u32,
    io_code: Option<u32>,
    lock_passes: LockPasses,
    period_ns: i64,
    lock_budget: Budget,
    scan_budget: Budget,
    hot_budget: Budget,
    lwlock_budget: Budget,
    page_holder_budget: Budget,
    lwlock_holder_budget: Budget,
    file_lengths: HashMap<RelFile, (i64, Option<u64>)>,
    waiters: Vec<u64>,
}

impl Contention {
    /// For a server attached to, sampled every `period_ns`.
    pub fn new(server: &Attached, period_ns: i64) -> Self {
        let events = &server.wait_events;
        let at_least = |ns: i64| ns.max(period_ns);
        let scale = (1e7 / period_ns as f64).clamp(1.0, 4.0); // 1 at 100 Hz
        let budget =
            |share: f64, least_ms: i64, most_ms: i64| Budget::new(share * scale, at_least(least_ms * MS), most_ms * MS);
        Contention {
            layout: server.layout.clone(),
            anchors: server.anchors.clone(),
            postmaster: server.process.pid,
            buffers: Buffers::new(&server.layout, &server.anchors),
            held_locks: server.anchors.held_locks,
            content_code: class::LWLOCK << 24 | server.layout.buffer_content_tranche(),
            io_code: events.code("IPC", "BufferIO").or_else(|| events.code("LWLock", "BufferIO")),
            lock_passes: LockPasses::default(),
            period_ns,
            lock_budget: budget(0.0003, 50, 1_000),
            // fewer scans than this name a hot page too rarely: at 0.08 % of a core 9 waiters in 4 s of a storm of 8 sessions
            scan_budget: Budget::new(0.001 * scale.min(2.0), at_least(10 * MS), 60_000 * MS),
            hot_budget: budget(0.0001, 10, 1_000),
            lwlock_budget: budget(0.0001, 50, 1_000),
            // of their own: looks at LWLocks are more frequent, and left none for 25 of 28 scans that saw a page waited for
            page_holder_budget: budget(0.0004, 50, 5_000),
            lwlock_holder_budget: budget(0.0001, 100, 5_000),
            file_lengths: HashMap::new(),
            waiters: Vec::new(),
        }
    }

    /// Makes the looks this pass calls for.
    pub fn examine(&mut self, mem: &SharedMemory, ts: i64, sessions: &Sessions, out: &mut Evidence) {
        let (mut wanted, mut lwlock_waits) = (Wanted::default(), 0);
        self.waiters.clear();
        for (code, proc) in sessions.waits() {
            match code {
                0 => {}
                code if code >> 24 == class::LOCK => {
                    self.waiters.push(proc);
                    self.lock_passes.count(ts, proc, code);
                }
                code if code == self.content_code => wanted.content += 1,
                code if code >> 24 == class::BUFFER_PIN => wanted.pin += 1,
                code if Some(code) == self.io_code => wanted.io += 1,
                code if code >> 24 == class::LWLOCK => lwlock_waits += 1,
                _ => {}
            }
        }
        if !self.waiters.is_empty() && self.lock_budget.is_due(ts) {
            self.look_at_locks(mem, ts, sessions, out);
        }
        let mut contended = Vec::new();
        if wanted.total() > 0 {
            contended = self.look_at_buffers(mem, ts, wanted, sessions, out);
        }
        let mut lwlocks = Vec::new();
        if lwlock_waits > 0 && self.lwlock_budget.is_due(ts) {
            let from = thread_cpu_ns();
            lwlocks = lwlocks::contended(mem, &self.layout, &self.anchors, &mut 0);
            self.lwlock_budget.spend(ts, thread_cpu_ns() - from);
        }
        if contended.is_empty() && lwlocks.is_empty() {
            return;
        }
        let holders = self.look_for_holders(ts, sessions, !contended.is_empty(), !lwlocks.is_empty());
        let ids: HashMap<u64, i32> = if contended.is_empty() { HashMap::new() } else { sessions.procs().collect() };
        for wait in contended {
            out.waiters.extend(wait.waiters.iter().map(|w| WaiterRow {
                ts,
                buf_id: wait.buf_id,
                session_id: ids.get(&w.proc).copied().unwrap_or(-1),
                exclusive: w.exclusive,
            }));
            let row = self.buffer_row(ts, wait, &holders);
            out.buffers.push(row);
        }
        for lock in lwlocks {
            out.lwlocks.push(LwlockRow {
                ts,
                wait_event_info: class::LWLOCK << 24 | lock.tranche,
                index: lock.index,
                partition: lock.partition.map_or(-1, |p| p as i32),
                waiters: lock.waiters.len() as i32,
                waiters_exclusive: exclusive(&lock.waiters),
                holder: holders.get(&lock.lock).copied().unwrap_or(Holder::NONE),
            });
        }
    }

    fn look_at_locks(&mut self, mem: &SharedMemory, ts: i64, sessions: &Sessions, out: &mut Evidence) {
        let from = thread_cpu_ns();
        let edges = locks::read_edges(mem, &self.layout, &self.anchors, &self.waiters, &mut 0);
        let cost = thread_cpu_ns() - from + edges.len() as i64 * EDGE_ROW_NS;
        self.lock_budget.spend(ts, cost);
        let explained: HashSet<u64> = edges.iter().map(|e| e.waiter).collect();
        let mut periods = HashMap::new();
        for (code, proc) in sessions.waits().filter(|(code, _)| code >> 24 == class::LOCK) {
            if explained.contains(&proc) {
                periods.insert(proc, self.lock_passes.take(proc, code) * self.period_ns);
            }
        }
        self.lock_passes.forget(ts);
        let id = |pid: i32| sessions.id_of_pid(pid).unwrap_or(-1);
        out.locks.extend(edges.into_iter().map(|edge| LockRow {
            ts,
            period_ns: periods.get(&edge.waiter).copied().unwrap_or(0),
            session_id: id(edge.waiter_pid),
            blocker_session_id: id(edge.blocker_pid),
            edge,
        }));
    }

    fn look_at_buffers(
        &mut self,
        mem: &SharedMemory,
        ts: i64,
        wanted: Wanted,
        sessions: &Sessions,
        out: &mut Evidence,
    ) -> Vec<BufferWait> {
        let mut found = Vec::new();
        for scope in ["hot", "all"] {
            // A few remembered buffers are cheap to look at, but the edge of a growing index is never among them: they are
            // for pools so large that whole scans are rare.
            let due = match scope {
                "hot" => self.anchors.buffers > LARGE_POOL && self.hot_budget.is_due(ts),
                _ => self.scan_budget.is_due(ts),
            };
            if !due {
                continue;
            }
            let (from, cpu_from, mut torn) = (monotonic_ns(), thread_cpu_ns(), 0);
            let (waits, looked_at) = if scope == "hot" {
                self.buffers.scan_hot(mem, wanted, &mut torn)
            } else {
                (self.buffers.scan_all(mem, wanted, &mut torn), u64::from(self.anchors.buffers))
            };
            let (duration_ns, cost) = (monotonic_ns() - from, thread_cpu_ns() - cpu_from);
            if scope == "hot" {
                self.hot_budget.spend(ts, cost);
                if looked_at == 0 {
                    continue;
                }
            } else {
                self.scan_budget.spend(ts, cost);
            }
            let attributed = self.attributed(&waits, wanted, sessions);
            out.scans.push(ScanRow {
                ts,
                scope,
                buffers: looked_at,
                duration_ns,
                waiting: wanted.total(),
                attributed,
                torn,
            });
            found = waits;
            if attributed >= wanted.total() {
                break; // the hot buffers explain everything
            }
        }
        found
    }

    /// How many of the waiting sessions stand in the wait list of a found buffer. Pin and I/O waiters leave no list:
    /// they count as found when exactly one such buffer was.
    fn attributed(&self, found: &[BufferWait], wanted: Wanted, sessions: &Sessions) -> u32 {
        let listed = sessions
            .waits()
            .filter(|(code, _)| *code == self.content_code)
            .filter(|(_, proc)| found.iter().any(|b| b.waiters.iter().any(|w| w.proc == *proc)))
            .count() as u32;
        let only = |kind: WaitKind| found.iter().filter(|b| b.kind == kind).count() == 1;
        listed + if only(WaitKind::Pin) { wanted.pin } else { 0 } + if only(WaitKind::Io) { wanted.io } else { 0 }
    }

    /// Every held LWLock, by address, with one holder (an exclusive one if there is). Who waits for a client, for work or for a heavyweight
    /// lock holds none.
    fn look_for_holders(&mut self, ts: i64, sessions: &Sessions, pages: bool, lwlocks: bool) -> HashMap<u64, Holder> {
        let mut holders = HashMap::new();
        let budget = match (pages, lwlocks) {
            (true, _) if self.page_holder_budget.is_due(ts) => &mut self.page_holder_budget,
            (_, true) if self.lwlock_holder_budget.is_due(ts) => &mut self.lwlock_holder_budget,
            _ => return holders,
        };
        let Some(held_locks) = self.held_locks else { return holders };
        let from = thread_cpu_ns();
        for listed in sessions.list() {
            let (session_id, pid, wait_event_info) = (listed.session_id, listed.pid, listed.wait_event_info);
            if [class::ACTIVITY, class::CLIENT, class::LOCK].contains(&(wait_event_info >> 24)) {
                continue;
            }
            for held in held_locks.read(listed.host_pid, &self.layout).unwrap_or_default() {
                let mode = mode(held.exclusive);
                let holder = Holder { session_id, pid, mode, wait_event_info };
                let place = holders.entry(held.lock).or_insert(holder);
                if held.exclusive {
                    *place = holder;
                }
            }
        }
        budget.spend(ts, thread_cpu_ns() - from);
        holders
    }

    fn buffer_row(&mut self, ts: i64, wait: BufferWait, holders: &HashMap<u64, Holder>) -> BufferRow {
        let mut page_kind = wait.page_kind;
        if page_kind == "heap" && wait.tag.fork == 0 {
            let key = wait.tag.relation;
            let known = self.file_lengths.get(&key).filter(|(at, _)| ts - at < FILE_LENGTH_NS);
            let blocks = match known {
                Some(&(_, blocks)) => blocks,
                None => {
                    let blocks = buffers::relation_blocks(self.postmaster, self.layout.major, &self.anchors, &wait.tag);
                    self.file_lengths.insert(key, (ts, blocks));
                    blocks
                }
            };
            if blocks.is_some_and(|blocks| buffers::is_heap_tail(blocks, wait.tag.block)) {
                page_kind = "heap tail";
            }
        }
        BufferRow {
            ts,
            buf_id: wait.buf_id,
            tag: wait.tag,
            page_kind,
            kind: wait.kind,
            waiters: wait.waiters.len() as i32,
            waiters_exclusive: exclusive(&wait.waiters),
            holder: holders.get(&wait.lock).copied().unwrap_or(Holder::NONE),
        }
    }
}

fn exclusive(waiters: &[Waiter]) -> i32 {
    waiters.iter().filter(|w| w.exclusive).count() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_look_is_made_rarer() {
        let mut budget = Budget::new(0.01, 50, 10_000);
        assert!(budget.is_due(0));
        assert_eq!(budget.spend(0, 10), 1_000);
        assert!(!budget.is_due(999) && budget.is_due(1_000));
        assert_eq!(budget.spend(0, 0), 50);
        assert_eq!(budget.spend(0, i64::MAX / 2), 10_000);
    }
}
