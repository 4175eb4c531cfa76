//! The sampling thread: one pass at each due time, misses counted, nothing written to disk here.

use crate::evidence::Evidence;
use crate::looks::Looks;
use crate::shared::Shared;
use leadline_clockwork::{become_realtime, monotonic_ns, sleep_until, thread_cpu_ns};
use leadline_shm::attach::Attached;
use leadline_shm::memory::Memory;
use leadline_shm::sessions::{Pass, Run, Sessions};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;

/// Hand over at this many runs,
const RUNS: usize = 16_384;
/// or after this long. The background thread does all its work when it is handed something: each time it is woken costs, too.
const HAND_OVER_NS: i64 = 500_000_000;

/// Runs until asked to stop. `server` must stay attached to the segment it was proved on. `list_ns`: a list of the sessions goes with what
/// is handed over this often. `emptied`: lists of runs handed over earlier, for their memory.
pub fn run(
    mut server: Attached,
    period_ns: i64,
    list_ns: i64,
    shared: Arc<Shared>,
    hand_over: Sender<Evidence>,
    emptied: Receiver<Vec<Run>>,
) {
    shared.realtime.store(become_realtime(), Relaxed);
    let mut sessions = Sessions::new(&server.layout, &server.anchors, &server.process);
    let mut looks = Looks::new(&server, period_ns);
    let mut pass = Pass::default();
    let mut evidence = Evidence::default();
    let start = monotonic_ns();
    let (mut handed_over, mut next_list) = (start, start);
    // the moments a pass is due are counted, and so are the passes that are made
    let mut moment: i64 = 0;
    let mut tick: i64 = 0;
    let mut missed: i64 = 0;
    let mut now = start;
    shared.ts_from.store(start, Relaxed);
    while !shared.stop.load(Relaxed) {
        let due = start + moment * period_ns;
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
        looks.look(&server.memory, ts, &sessions, &mut evidence);
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
        shared
            .sampler_cpu_ns
            .store(if tick % 256 == 0 { thread_cpu_ns() } else { shared.sampler_cpu_ns.load(Relaxed) }, Relaxed);

        let list_due = ts >= next_list;
        if list_due {
            next_list = (next_list + list_ns).max(ts);
            evidence.list = Some(sessions.list().collect());
        }
        if list_due || pass.runs.len() >= RUNS || ts - handed_over >= HAND_OVER_NS {
            handed_over = ts;
            sessions.end_runs(&mut pass);
            evidence.runs = std::mem::replace(&mut pass.runs, emptied.try_recv().unwrap_or_default());
            if hand_over.send(std::mem::take(&mut evidence)).is_err() {
                break; // the background thread ended with an error, which it has stored
            }
        }
        // The next pass is the last one due by now, or the one to come; those between are lost and counted.
        let due_by_now = (now - start) / period_ns;
        let next = due_by_now.max(moment + 1);
        missed = next - (moment + 1);
        moment = next;
        tick += 1;
    }
    shared.sampler_cpu_ns.store(thread_cpu_ns(), Relaxed);
    shared.missed.fetch_add(missed as u64, Relaxed);
    sessions.end_runs(&mut pass);
    evidence.runs = pass.runs;
    // what sessions used since the last list belongs to the window, too
    evidence.list = Some(sessions.list().collect());
    let _ = hand_over.send(evidence); // no receiver: its error is what counts
}
