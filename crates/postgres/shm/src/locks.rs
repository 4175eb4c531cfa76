//! Heavyweight lock waits: from a waiting session to who blocks it, as pg_blocking_pids would say, without asking the server.
//!
//! PGPROC.waitLock leads to the LOCK, its list of PROCLOCKs to every holder, its wait queue to who stands ahead. The
//! server changes all of it under us: every list is bounded, every pointer is checked against the array it must point
//! into or is read through a memory that faults, and a waiter whose waitLock moved meanwhile is dropped and counted.

use crate::attach::Anchors;
use crate::layout::{Layout, LARGEST_TAG};
use crate::memory::{Fault, Memory, Read};
use crate::sessions::{is_prepared, is_proc};
use crate::status::UNIX_EPOCH_OFFSET_US;

/// No honest list is longer.
const MAX_LIST: usize = 20_000;

/// Lock modes 1..8 of the default and user lock methods, lockdefs.h.
pub const MODES: [&str; 9] = [
    "",
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
];

/// Conflicts of each mode as a bit mask, lock.c LockConflicts.
const CONFLICTS: [u32; 9] = [
    0,
    1 << 8,
    1 << 7 | 1 << 8,
    1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    0b1_1111_1110,
];

/// The object of a lock, decoded from LOCKTAG (lock.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // columns of lock_wait
pub struct LockTag {
    pub field1: u32,
    pub field2: u32,
    pub field3: u32,
    pub field4: u16,
    pub locktag_type: u8,
    pub lockmethodid: u8,
}

/// Names of locktag types as pg_locks shows them.
const LOCK_TYPES: [&str; 12] = [
    "relation",
    "extend",
    "frozenid",
    "page",
    "tuple",
    "transactionid",
    "virtualxid",
    "spectoken",
    "object",
    "userlock",
    "advisory",
    "applytransaction",
];

/// The columns of pg_locks that a tag gives; those it has not are 0 or -1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of lock_wait
pub struct LockObject {
    pub datid: u32,
    pub relid: u32,
    pub page: i64,
    pub tuple: i32,
    pub transactionid: u32,
    pub classid: u32,
    pub objid: u32,
    pub objsubid: i32,
}

impl LockTag {
    /// As pg_locks.locktype.
    pub fn type_name(&self) -> &'static str {
        LOCK_TYPES.get(usize::from(self.locktag_type)).copied().unwrap_or("unknown")
    }

    /// What is locked.
    pub fn object(&self) -> LockObject {
        let none = LockObject { page: -1, tuple: -1, ..LockObject::default() };
        let (f1, f2, f3, f4) = (self.field1, self.field2, self.field3, self.field4);
        match self.locktag_type {
            0 | 1 => LockObject { datid: f1, relid: f2, ..none },
            2 => LockObject { datid: f1, ..none },
            3 => LockObject { datid: f1, relid: f2, page: f3.into(), ..none },
            4 => LockObject { datid: f1, relid: f2, page: f3.into(), tuple: f4.into(), ..none },
            5 | 7 => LockObject { transactionid: f1, ..none },
            8..=10 => LockObject { datid: f1, classid: f2, objid: f3, objsubid: f4.into(), ..none },
            11 => LockObject { datid: f1, transactionid: f3, objid: f2, ..none },
            _ => none,
        }
    }
}

/// One waiter blocked by one other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// PGPROC of the waiter.
    pub waiter: u64,
    /// Its pid.
    pub waiter_pid: i32,
    /// Pid of the blocker's lock group leader; 0 for a prepared transaction.
    pub blocker_pid: i32,
    /// Holds a conflicting mode, or only waits ahead in the queue.
    pub holder: bool,
    /// What is locked.
    pub tag: LockTag,
    /// Mode waited for, 1..8.
    pub mode: u8,
    /// Strongest conflicting mode the blocker holds or waits for, 1..8.
    pub blocker_mode: u8,
    /// Since when, Unix microseconds; 0 when not known.
    pub wait_start: i64,
}

/// A holder or waiter of a lock.
#[derive(Clone, Copy)]
struct Participant {
    proc: u64,
    group: u64,
    hold_mask: u32,
}

struct Lock {
    tag: LockTag,
    participants: Vec<Participant>,
    queue: Vec<u64>,
}

/// Walks from every waiting PGPROC to its blockers. `torn` counts waiters dropped because their lock changed meanwhile.
pub fn read_edges<M: Memory>(
    mem: &M,
    layout: &Layout,
    anchors: &Anchors,
    waiters: &[u64],
    torn: &mut u32,
) -> Vec<Edge> {
    let mut edges = Vec::new();
    let mut locks: Vec<(u64, Option<Lock>)> = Vec::new(); // each lock is walked once
    for &waiter in waiters {
        let Ok(lock_at) = mem.u64(waiter + layout.proc_wait_lock) else { continue };
        if lock_at == 0 {
            continue; // granted between the two looks
        }
        let position = match locks.iter().position(|(at, _)| *at == lock_at) {
            Some(position) => position,
            None => {
                locks.push((lock_at, read_lock(mem, layout, anchors, lock_at).ok()));
                locks.len() - 1
            }
        };
        let before = edges.len();
        let read = match &locks[position].1 {
            Some(lock) => add_edges(mem, layout, waiter, lock, &mut edges),
            None => Err(Fault { addr: lock_at }),
        };
        if read.is_err() || mem.u64(waiter + layout.proc_wait_lock) != Ok(lock_at) {
            edges.truncate(before);
            *torn += 1;
        }
    }
    edges
}

fn read_tag<M: Memory>(mem: &M, layout: &Layout, at: u64) -> Read<LockTag> {
    let mut b = [0; LARGEST_TAG];
    let b = b.get_mut(..layout.locktag_size as usize).unwrap_or_default();
    mem.read(at, b)?;
    let word = |at: u64| b.get(at as usize..).and_then(|b| b.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w));
    let byte = |at: u64| b.get(at as usize).copied().unwrap_or(0);
    let tag = LockTag {
        field1: word(layout.locktag_field1),
        field2: word(layout.locktag_field2),
        field3: word(layout.locktag_field3),
        field4: u16::from_le_bytes([byte(layout.locktag_field4), byte(layout.locktag_field4 + 1)]),
        locktag_type: byte(layout.locktag_type),
        lockmethodid: byte(layout.locktag_method),
    };
    let known = usize::from(tag.locktag_type) < LOCK_TYPES.len() && matches!(tag.lockmethodid, 1 | 2);
    if known {
        Ok(tag)
    } else {
        Err(Fault { addr: at })
    }
}

fn read_lock<M: Memory>(mem: &M, layout: &Layout, anchors: &Anchors, at: u64) -> Read<Lock> {
    let tag = read_tag(mem, layout, at + layout.lock_tag)?;
    let mut participants = Vec::new();
    let may_hold = |proc| is_proc(layout, anchors, proc) || is_prepared(layout, anchors, proc);
    for link in list(mem, layout, at + layout.lock_proc_locks)? {
        let proclock = link.checked_sub(layout.proclock_lock_link).ok_or(Fault { addr: link })?;
        let (my_lock, proc) =
            (mem.u64(proclock + layout.proclock_my_lock)?, mem.u64(proclock + layout.proclock_my_proc)?);
        if my_lock != at || !may_hold(proc) {
            return Err(Fault { addr: proclock }); // the PROCLOCK was recycled while we walked
        }
        let group = mem.u64(proclock + layout.proclock_group_leader)?;
        let group = if may_hold(group) { group } else { proc };
        participants.push(Participant { proc, group, hold_mask: mem.u32(proclock + layout.proclock_hold_mask)? });
    }
    let queue: Vec<u64> = list(mem, layout, at + layout.lock_wait_procs)?
        .iter()
        .map(|link| link.wrapping_sub(layout.proc_links))
        .collect();
    if queue.iter().any(|&p| !is_proc(layout, anchors, p)) {
        return Err(Fault { addr: at });
    }
    Ok(Lock { tag, participants, queue })
}

/// The links of a doubly linked list {prev, next} with a head; SHM_QUEUE and dlist agree on it.
fn list<M: Memory>(mem: &M, layout: &Layout, head: u64) -> Read<Vec<u64>> {
    let mut found = Vec::new();
    let mut at = mem.u64(head + layout.list_next)?;
    while at != head && at != 0 {
        if found.len() >= MAX_LIST {
            return Err(Fault { addr: head });
        }
        found.push(at);
        at = mem.u64(at.checked_add(layout.list_next).ok_or(Fault { addr: at })?)?;
    }
    Ok(found)
}

fn strongest(mask: u32) -> u8 {
    (1..=8).rev().find(|m| mask & (1 << m) != 0).unwrap_or(0)
}

fn add_edges<M: Memory>(mem: &M, layout: &Layout, waiter: u64, lock: &Lock, edges: &mut Vec<Edge>) -> Read<()> {
    let mode = mem.u32(waiter + layout.proc_wait_lock_mode)?;
    let conflicts = *CONFLICTS.get(mode as usize).filter(|c| **c != 0).ok_or(Fault { addr: waiter })?;
    let waiter_pid = mem.u32(waiter + layout.proc_pid)? as i32;
    let own_group = lock.participants.iter().find(|p| p.proc == waiter).map_or(waiter, |p| p.group);
    let wait_start = match layout.proc_wait_start {
        Some(offset) => match mem.u64(waiter + offset)? as i64 {
            0 => 0,
            us => us.saturating_add(UNIX_EPOCH_OFFSET_US),
        },
        None => 0,
    };
    let place = |proc: u64| lock.queue.iter().position(|&p| p == proc);
    let own_place = place(waiter).unwrap_or(lock.queue.len());
    for other in lock.participants.iter().filter(|p| p.group != own_group) {
        let held = conflicts & other.hold_mask;
        let (holder, blocker_mode) = if held != 0 {
            (true, strongest(held))
        } else {
            let Some(their_place) = place(other.proc) else { continue };
            let their_mode = mem.u32(other.proc + layout.proc_wait_lock_mode)?;
            if their_place > own_place || their_mode > 8 || conflicts & (1 << their_mode) == 0 {
                continue;
            }
            (false, their_mode as u8)
        };
        let blocker_pid = mem.u32(other.group + layout.proc_pid)? as i32;
        let edge =
            Edge { waiter, waiter_pid, blocker_pid, holder, tag: lock.tag, mode: mode as u8, blocker_mode, wait_start };
        if !edges.iter().any(|e| e.waiter == waiter && e.blocker_pid == blocker_pid && e.tag == lock.tag) {
            edges.push(edge);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::FakeMemory;

    const LOCK: u64 = 0x50_0000;

    /// Procs 1 (holder), 2 and 3 (waiters, in this order) on one transactionid lock.
    fn chain(layout: &Layout) -> (FakeMemory, Anchors) {
        let all_procs = 0x10_0000u64;
        let mut mem =
            FakeMemory { pieces: vec![(all_procs, vec![0; 8 * layout.proc_size as usize]), (LOCK, vec![0; 4096])] };
        let anchors = Anchors { all_procs, all_proc_count: 8, ..Anchors::default() };
        mem.put(LOCK, &[0xe7, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1]);
        let proc = |i: u64| all_procs + i * layout.proc_size;
        let proclock = |i: u64| LOCK + 0x200 + i * 64;
        for i in 1..=3 {
            mem.put_u32(proc(i) + layout.proc_pid, 100 + i as u32);
            mem.put_u64(proclock(i), LOCK);
            mem.put_u64(proclock(i) + 8, proc(i));
            mem.put_u64(proclock(i) + layout.proclock_group_leader, proc(i));
            let next = if i < 3 { proclock(i + 1) + layout.proclock_lock_link } else { LOCK + layout.lock_proc_locks };
            mem.put_u64(proclock(i) + layout.proclock_lock_link + 8, next);
        }
        mem.put_u64(LOCK + layout.lock_proc_locks + 8, proclock(1) + layout.proclock_lock_link);
        mem.put_u32(proclock(1) + layout.proclock_hold_mask, 1 << 7);
        for (i, mode) in [(2, 5), (3, 7)] {
            mem.put_u64(proc(i) + layout.proc_wait_lock, LOCK);
            mem.put_u32(proc(i) + layout.proc_wait_lock_mode, mode);
        }
        mem.put_u64(LOCK + layout.lock_wait_procs + 8, proc(2));
        mem.put_u64(proc(2) + 8, proc(3));
        mem.put_u64(proc(3) + 8, LOCK + layout.lock_wait_procs);
        (mem, anchors)
    }

    fn waiters(layout: &Layout, anchors: &Anchors) -> Vec<u64> {
        [2, 3].map(|i| anchors.all_procs + i * layout.proc_size).to_vec()
    }

    #[test]
    fn holders_block_hard_and_those_ahead_in_the_queue_soft() {
        for major in [13, 16, 18] {
            let layout = Layout::of(major).unwrap();
            let (mem, anchors) = chain(&layout);
            let mut torn = 0;
            let edges = read_edges(&mem, &layout, &anchors, &waiters(&layout, &anchors), &mut torn);
            let seen: Vec<_> = edges.iter().map(|e| (e.waiter_pid, e.blocker_pid, e.holder, e.blocker_mode)).collect();
            assert_eq!(seen, [(102, 101, true, 7), (103, 101, true, 7), (103, 102, false, 5)], "{major}");
            assert_eq!(edges[0].tag.type_name(), "transactionid");
            assert_eq!(edges[0].tag.object().transactionid, 999);
            assert_eq!(torn, 0);
        }
    }

    #[test]
    fn a_prepared_transaction_blocks_without_a_process() {
        let layout = Layout::of(16).unwrap();
        let (mut mem, mut anchors) = chain(&layout);
        // entry 1 becomes one of those behind the processes
        anchors.all_proc_count = 7;
        (anchors.prepared_procs, anchors.prepared_proc_count) = (anchors.all_procs + 7 * layout.proc_size, 1);
        mem.put_u64(LOCK + 0x200 + 64 + 8, anchors.prepared_procs);
        mem.put_u64(LOCK + 0x200 + 64 + layout.proclock_group_leader, anchors.prepared_procs);
        let mut torn = 0;
        let edges = read_edges(&mem, &layout, &anchors, &waiters(&layout, &anchors), &mut torn);
        let seen: Vec<_> = edges.iter().map(|e| (e.waiter_pid, e.blocker_pid, e.holder)).collect();
        assert_eq!((seen, torn), (vec![(102, 0, true), (103, 0, true), (103, 102, false)], 0));
    }

    #[test]
    fn members_of_one_lock_group_do_not_block_each_other() {
        let layout = Layout::of(16).unwrap();
        let (mut mem, anchors) = chain(&layout);
        mem.put_u64(LOCK + 0x200 + 2 * 64 + layout.proclock_group_leader, anchors.all_procs + layout.proc_size);
        let edges = read_edges(&mem, &layout, &anchors, &waiters(&layout, &anchors), &mut 0);
        assert!(edges.iter().all(|e| e.waiter_pid != 102));
    }

    #[test]
    fn any_corruption_ends_without_panic_or_endless_list() {
        let layout = Layout::of(16).unwrap();
        let (mem, anchors) = chain(&layout);
        let mut seed = 1u64;
        for _ in 0..5_000 {
            let mut broken = mem.clone();
            for _ in 0..4 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let piece = &mut broken.pieces[(seed >> 60) as usize % 2].1;
                let at = (seed >> 20) as usize % (piece.len() - 8);
                // half of the damage points back into the structures, which makes rings
                let value = if seed.is_multiple_of(2) { seed } else { LOCK + (seed >> 30) % 4096 / 8 * 8 };
                piece[at / 8 * 8..at / 8 * 8 + 8].copy_from_slice(&value.to_le_bytes());
            }
            read_edges(&broken, &layout, &anchors, &waiters(&layout, &anchors), &mut 0);
        }
    }
}
