//! LWLocks: who is in a lock's wait list, which locks of the main array are contended, who holds them.

use crate::attach::Anchors;
use crate::layout::Layout;
use crate::memory::{Memory, Read};

/// lwlock.h: LW_EXCLUSIVE, LW_SHARED, LW_WAIT_UNTIL_FREE.
const LW_EXCLUSIVE: u8 = 0;

/// A session in a wait list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// Address of its PGPROC.
    pub proc: u64,
    /// Waits for exclusive mode.
    pub exclusive: bool,
}

/// A contended lock of the main array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contended {
    /// Index in MainLWLockArray.
    pub index: u32,
    /// Address of the LWLock.
    pub lock: u64,
    /// Its tranche: the low part of the wait code.
    pub tranche: u32,
    /// Partition number of a partitioned tranche.
    pub partition: Option<u32>,
    /// Who waits.
    pub waiters: Vec<Waiter>,
}

/// The wait list of an LWLock; None when it changed while it was walked.
///
/// `waiters` is a proclist: head and tail are indexes into the PGPROC array, the link {next, prev} sits in each PGPROC.
/// An empty list has a head outside the array (the end marker changed between majors).
pub fn read_waiters<M: Memory>(mem: &M, layout: &Layout, anchors: &Anchors, lock: u64) -> Read<Option<Vec<Waiter>>> {
    let head = mem.u32(lock + layout.lw_waiters)?;
    let tail = mem.u32(lock + layout.lw_waiters_tail)?;
    let mut found = Vec::new();
    let (mut at, mut before) = (head, None);
    while at < anchors.all_proc_count {
        if found.len() as u32 > anchors.all_proc_count {
            return Ok(None);
        }
        let proc = anchors.all_procs + u64::from(at) * layout.proc_size;
        let link =
            mem.u64(proc + layout.proc_lw_wait_link).or_else(|_| two_halves(mem, proc + layout.proc_lw_wait_link))?;
        let (next, prev) = (link as u32, (link >> 32) as u32);
        if before.is_some_and(|b| b != prev) {
            return Ok(None);
        }
        found.push(Waiter { proc, exclusive: mem.u8(proc + layout.proc_lw_wait_mode)? == LW_EXCLUSIVE });
        if at == tail {
            return Ok(Some(found));
        }
        (before, at) = (Some(at), next);
    }
    Ok(if found.is_empty() { Some(found) } else { None })
}

/// A u64 that is only 4-byte aligned.
fn two_halves<M: Memory>(mem: &M, addr: u64) -> Read<u64> {
    Ok(u64::from(mem.u32(addr)?) | u64::from(mem.u32(addr + 4)?) << 32)
}

/// The contended locks of the main array; `torn` counts lists that changed while being walked.
pub fn contended<M: Memory>(mem: &M, layout: &Layout, anchors: &Anchors, torn: &mut u32) -> Vec<Contended> {
    let mut found = Vec::new();
    for index in 0..layout.main_lwlocks {
        let lock = anchors.main_lwlocks + u64::from(index) * layout.lw_padded_size;
        if !matches!(mem.u32(lock + layout.lw_waiters), Ok(head) if head < anchors.all_proc_count) {
            continue;
        }
        match read_waiters(mem, layout, anchors, lock) {
            Ok(Some(waiters)) if !waiters.is_empty() => {
                let tranche = mem.u32(lock + layout.lw_tranche).unwrap_or(0) & 0xffff;
                found.push(Contended { index, lock, tranche, partition: partition(layout, index), waiters });
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => *torn += 1,
        }
    }
    found
}

fn partition(layout: &Layout, index: u32) -> Option<u32> {
    if index < layout.buffer_mapping_first {
        return None;
    }
    let predicate_first = layout.lock_manager_first + layout.lock_partitions;
    [predicate_first, layout.lock_manager_first, layout.buffer_mapping_first]
        .into_iter()
        .find(|&first| index >= first)
        .map(|first| index - first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::FakeMemory;

    pub(crate) fn anchors(layout: &Layout, procs: u32) -> (FakeMemory, Anchors) {
        let all_procs = 0x10_0000;
        let main_lwlocks = 0x80_0000;
        let mem = FakeMemory {
            pieces: vec![
                (all_procs, vec![0; procs as usize * layout.proc_size as usize]),
                (main_lwlocks, vec![0xff; layout.main_lwlocks as usize * layout.lw_padded_size as usize]),
            ],
        };
        let anchors = Anchors { all_procs, all_proc_count: procs, main_lwlocks, ..Anchors::default() };
        (mem, anchors)
    }

    fn link(mem: &mut FakeMemory, layout: &Layout, anchors: &Anchors, index: u32, next: u32, prev: u32) {
        let at = anchors.all_procs + u64::from(index) * layout.proc_size + layout.proc_lw_wait_link;
        mem.put_u32(at, next);
        mem.put_u32(at + 4, prev);
    }

    #[test]
    fn a_wait_list_is_walked_from_head_to_tail() {
        let layout = Layout::of(16).unwrap();
        let (mut mem, anchors) = anchors(&layout, 8);
        let lock = anchors.main_lwlocks + 8 * 128;
        mem.put_u32(lock + layout.lw_tranche, 8);
        mem.put_u32(lock + layout.lw_waiters, 3);
        mem.put_u32(lock + layout.lw_waiters_tail, 5);
        link(&mut mem, &layout, &anchors, 3, 5, u32::MAX);
        link(&mut mem, &layout, &anchors, 5, u32::MAX, 3);
        let mut torn = 0;
        let found = contended(&mem, &layout, &anchors, &mut torn);
        assert_eq!((found.len(), torn), (1, 0));
        assert_eq!((found[0].index, found[0].tranche, found[0].partition), (8, 8, None));
        assert_eq!(
            found[0].waiters.iter().map(|w| (w.proc - anchors.all_procs) / layout.proc_size).collect::<Vec<_>>(),
            [3, 5]
        );
    }

    #[test]
    fn a_ring_or_a_broken_link_ends_as_torn() {
        let layout = Layout::of(16).unwrap();
        let (mut mem, anchors) = anchors(&layout, 8);
        let lock = anchors.main_lwlocks;
        mem.put_u32(lock + layout.lw_waiters, 1);
        mem.put_u32(lock + layout.lw_waiters_tail, 7);
        link(&mut mem, &layout, &anchors, 1, 2, 2);
        link(&mut mem, &layout, &anchors, 2, 1, 1);
        assert_eq!(read_waiters(&mem, &layout, &anchors, lock), Ok(None));
        link(&mut mem, &layout, &anchors, 2, 3, 6);
        assert_eq!(read_waiters(&mem, &layout, &anchors, lock), Ok(None));
    }

    #[test]
    fn partitions_are_numbered_within_their_tranche() {
        let layout = Layout::of(16).unwrap();
        assert_eq!(partition(&layout, 7), None);
        assert_eq!(partition(&layout, layout.buffer_mapping_first + 127), Some(127));
        assert_eq!(partition(&layout, layout.lock_manager_first + 3), Some(3));
        assert_eq!(partition(&layout, layout.lock_manager_first + 16), Some(0));
    }
}
