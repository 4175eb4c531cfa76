//! What the sampler hands to the background thread: columns for the hot tables, rows for the rare ones.

use leadline_datadir::BlockId;
use leadline_shm::buffers::WaitKind;
use leadline_shm::locks::Edge;
use leadline_shm::sessions::{Listed, Run, SessionSeen, StatementSeen};

/// Columns of `tick`.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Ticks {
    pub tick: Vec<i64>,
    pub ts: Vec<i64>,
    pub late_ns: Vec<i64>,
    pub pass_ns: Vec<i64>,
    pub missed: Vec<i32>,
    pub sessions: Vec<i32>,
    pub retried: Vec<i32>,
    pub torn: Vec<i32>,
    pub next_xid: Vec<i64>,
}

/// A row of `lock_wait`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct LockRow {
    pub ts: i64,
    pub period_ns: i64,
    pub session_id: i32,
    pub blocker_session_id: i32,
    pub edge: Edge,
}

/// Who holds a contended lock, as far as seen.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Holder {
    pub session_id: i32,
    pub pid: i32,
    pub mode: &'static str,
    pub wait_event_info: u32,
}

impl Holder {
    /// Nobody could be seen.
    pub const NONE: Holder = Holder { session_id: -1, pid: 0, mode: "", wait_event_info: 0 };
}

/// The mode in which an LWLock is held or waited for.
pub(crate) fn mode(is_exclusive: bool) -> &'static str {
    if is_exclusive {
        "exclusive"
    } else {
        "shared"
    }
}

/// A row of `buffer_wait`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct BufferRow {
    pub ts: i64,
    pub buf_id: u32,
    pub tag: BlockId,
    pub page_kind: &'static str,
    pub kind: WaitKind,
    pub waiters: i32,
    pub waiters_exclusive: i32,
    pub holder: Holder,
}

/// A row of `buffer_waiter`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct WaiterRow {
    pub ts: i64,
    pub buf_id: u32,
    pub session_id: i32,
    pub exclusive: bool,
}

/// A row of `lwlock_wait`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct LwlockRow {
    pub ts: i64,
    pub wait_event_info: u32,
    pub index: u32,
    pub partition: i32,
    pub waiters: i32,
    pub waiters_exclusive: i32,
    pub holder: Holder,
}

/// A row of `buffer_scan`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ScanRow {
    pub ts: i64,
    pub scope: &'static str,
    pub buffers: u64,
    pub duration_ns: i64,
    pub waiting: u32,
    pub attributed: u32,
    pub torn: u32,
}

/// One hand-over.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Evidence {
    pub ticks: Ticks,
    pub runs: Vec<Run>,
    pub sessions: Vec<(i64, SessionSeen)>,
    pub statements: Vec<StatementSeen>,
    pub locks: Vec<LockRow>,
    pub buffers: Vec<BufferRow>,
    pub waiters: Vec<WaiterRow>,
    pub lwlocks: Vec<LwlockRow>,
    pub scans: Vec<ScanRow>,
    /// The sessions now, when they were asked for.
    pub list: Option<Vec<Listed>>,
}

impl Evidence {
    /// Leaves out what was seen after this pass, which began at `ts`; -1 for every pass. Gives the number of passes left out.
    pub fn cut_after(&mut self, tick: i64, ts: i64) -> usize {
        let t = &mut self.ticks;
        let kept = t.tick.partition_point(|&number| number <= tick);
        let cut = t.tick.len() - kept;
        for column in [&mut t.tick, &mut t.ts, &mut t.late_ns, &mut t.pass_ns, &mut t.next_xid] {
            column.truncate(kept);
        }
        for column in [&mut t.missed, &mut t.sessions, &mut t.retried, &mut t.torn] {
            column.truncate(kept);
        }
        self.runs.retain_mut(|run| {
            run.ticks = (tick + 1 - run.tick).clamp(0, i64::from(run.ticks)) as i32;
            run.ticks > 0
        });
        self.sessions.retain(|(seen, _)| *seen <= ts);
        self.locks.retain(|row| row.ts <= ts);
        self.buffers.retain(|row| row.ts <= ts);
        self.waiters.retain(|row| row.ts <= ts);
        self.lwlocks.retain(|row| row.ts <= ts);
        self.scans.retain(|row| row.ts <= ts);
        self.list = None;
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_after_a_pass_is_left_out() {
        let run = |tick, ticks| Run { tick, ticks, ..Run::default() };
        let mut evidence = Evidence { runs: vec![run(3, 2), run(4, 3), run(6, 1)], ..Evidence::default() };
        for tick in 3..7 {
            let t = &mut evidence.ticks;
            t.tick.push(tick);
            t.ts.push(tick * 10);
            for column in [&mut t.late_ns, &mut t.pass_ns, &mut t.next_xid] {
                column.push(0);
            }
            for column in [&mut t.missed, &mut t.sessions, &mut t.retried, &mut t.torn] {
                column.push(0);
            }
            let scan =
                ScanRow { ts: tick * 10, scope: "", buffers: 0, duration_ns: 0, waiting: 0, attributed: 0, torn: 0 };
            evidence.scans.push(scan);
        }
        assert_eq!(evidence.cut_after(5, 50), 1);
        assert_eq!(evidence.ticks.ts, [30, 40, 50]);
        assert_eq!([evidence.ticks.missed.len(), evidence.ticks.next_xid.len(), evidence.scans.len()], [3, 3, 3]);
        assert_eq!(evidence.runs, [run(3, 2), run(4, 2)]);
        assert_eq!(evidence.cut_after(-1, i64::MIN), 3);
        assert!(evidence.runs.is_empty() && evidence.scans.is_empty() && evidence.ticks.torn.is_empty());
    }
}
