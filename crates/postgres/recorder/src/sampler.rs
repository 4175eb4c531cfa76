//! The sampling thread: one pass at each due time, misses counted, nothing written to disk here.

use crate::contention::Contention;
use crate::evidence::Evidence;
use crate::riders;
use crate::shared::Shared;
use leadline_clockwork::{become_realtime, monotonic_ns, sleep_until, thread_cpu_ns, Moments};
use leadline_errors::Error;
use leadline_shm::attach::Attached;
use leadline_shm::memory::Memory;
use leadline_shm::sessions::{Known, Pass, Run, Sessions};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;

/// Hand over at this many runs,
const RUNS: usize = 16_384;
/// or after this long. The background thread does all its work when it is handed something: each time it is woken costs, too.
const HAND_OVER_NS: i64 = 500_000_000;
/// How often the server must have been seen to use the segment, where that costs little. A segment that nobody writes any more still
/// reads like a server, so what was read since is left out when the server is found to be gone.
const VERIFY_NS: i64 = 100_000_000;

/// What one sampler leaves to the next one, when the server has started again: its last pass that counts, and what it knows.
#[derive(Debug)]
pub struct Left {
    tick: i64,
    ts: i64,
    known: Known,
}

impl Default for Left {
    fn default() -> Self {
        Left { tick: -1, ts: i64::MIN, known: Known::default() }
    }
}

impl Left {
    /// When the last pass began that counts.
    pub fn last_seen(&self) -> Option<i64> {
        (self.tick >= 0).then_some(self.ts)
    }
}

/// Runs until asked to stop, or until the server is gone. `server` must stay attached to the segment it was proved on. `list_ns`: a list
/// of the sessions goes with what is handed over this often. `emptied`: lists of runs handed over earlier, for their memory.
pub fn run(
    mut server: Attached,
    left: Left,
    period_ns: i64,
    list_ns: i64,
    shared: Arc<Shared>,
    hand_over: Sender<Evidence>,
    emptied: Receiver<Vec<Run>>,
) -> Left {
    shared.realtime.store(become_realtime(), Relaxed);
    let mut sessions = Sessions::new(&server.layout, &server.anchors, &server.process).knowing(left.known);
    let cpu_before = shared.sampler_cpu_ns.load(Relaxed);
    let verify_ns = if server.not_mapped_why.is_empty() { VERIFY_NS } else { HAND_OVER_NS };
    let mut contention = Contention::new(&server, period_ns);
    let mut pass = Pass::default();
    let mut evidence = Evidence::default();
    let start = monotonic_ns();
    let (mut handed_over, mut next_list) = (start, start);
    let moments = Moments::new(start, period_ns);
    // the periods are counted, and so are the passes that are made
    let mut period: i64 = 0;
    let mut tick = left.tick + 1;
    let mut verified = (left.tick, left.ts);
    let mut gone: Option<Error> = None;
    let mut missed = if tick == 0 { 0 } else { ((start - left.ts) / period_ns - 1).clamp(0, i64::from(i32::MAX)) };
    let mut now = start;
    let _ = shared.ts_from.compare_exchange(0, start, Relaxed, Relaxed);
    while !shared.stop.load(Relaxed) {
        let due = moments.due(period);
        if now < due {
            sleep_until(due);
        }
        let ts = monotonic_ns();
        if ts < due {
            now = ts;
            continue; // a signal ended the sleep early
        }
        if server.memory.pays_per_read() {
            server.memory.prepare(&sessions.ranges());
        }
        sessions.pass(&server.memory, tick, ts, &mut pass);
        contention.examine(&server.memory, ts, &sessions, &mut evidence);
        now = monotonic_ns();
        let pass_ns = now - ts;

        let t = &mut evidence.ticks;
        t.tick.push(tick);
        t.ts.push(ts);
        t.late_ns.push(ts - due);
        t.pass_ns.push(pass_ns);
        t.missed.push(missed as i32);
        t.sessions.push(pass.sampled as i32);
        t.retried.push(pass.retried as i32);
        t.torn.push(pass.torn as i32);
        t.next_xid.push(pass.next_xid as i64);
        evidence.sessions.extend(pass.sessions.drain(..).map(|s| (ts, s)));
        evidence.statements.append(&mut pass.statements);

        shared.ticks.fetch_add(1, Relaxed);
        shared.missed.fetch_add(missed as u64, Relaxed);
        shared.torn.fetch_add(u64::from(pass.torn), Relaxed);
        shared.sessions.store(u64::from(pass.sampled), Relaxed);
        shared.sampler_cpu_ns.store(
            if tick % 256 == 0 { cpu_before + thread_cpu_ns() } else { shared.sampler_cpu_ns.load(Relaxed) },
            Relaxed,
        );

        let list_due = ts >= next_list;
        let hand_over_due = list_due || pass.runs.len() >= RUNS || ts - handed_over >= HAND_OVER_NS;
        if hand_over_due || ts - verified.1.max(start) >= verify_ns {
            if let Err(error) = server.process.still_there() {
                gone = Some(error);
                break;
            }
            verified = (tick, ts);
        }
        if list_due {
            next_list = (next_list + list_ns).max(ts);
            evidence.list = Some(sessions.list().collect());
        }
        if hand_over_due {
            handed_over = ts;
            sessions.end_runs(&mut pass);
            evidence.runs = std::mem::replace(&mut pass.runs, emptied.try_recv().unwrap_or_default());
            if hand_over.send(std::mem::take(&mut evidence)).is_err() {
                break; // the background thread ended with an error, which it has stored
            }
        }
        riders::look();
        // The next pass is the last one due by now, or the one to come; those between are lost and counted.
        let next = moments.due_by(now).max(period + 1);
        missed = next - (period + 1);
        period = next;
        tick += 1;
    }
    shared.missed.fetch_add(missed as u64, Relaxed);
    sessions.end_runs(&mut pass);
    evidence.runs = pass.runs;
    // what sessions used since the last list belongs to the window, too
    evidence.list = Some(sessions.list().collect());
    match gone.map_or_else(|| server.process.still_there(), Err) {
        Ok(()) => {
            verified = evidence.ticks.tick.last().copied().zip(evidence.ticks.ts.last().copied()).unwrap_or(verified)
        }
        Err(error) => {
            let unverified = evidence.cut_after(verified.0, verified.1);
            shared.unverified.fetch_add(unverified as u64, Relaxed);
            shared.fail(error);
        }
    }
    let _ = hand_over.send(evidence); // no receiver: its error is what counts
    shared.sampler_cpu_ns.store(cpu_before + thread_cpu_ns(), Relaxed);
    Left { tick: verified.0, ts: verified.1, known: sessions.into_known() }
}
