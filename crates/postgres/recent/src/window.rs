//! The sums of a window.

use crate::kept::{Description, Pass, Recent, Run, Session};
use crate::queue::{Doing, Queue, Sample};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a session used is averaged over the last seconds.
const USED_OVER_NS: i64 = 4_000_000_000;
/// Two looks at waiters are at most this far apart, also on a busy host.
const LOOKS_APART_NS: i64 = 2_000_000_000;

// States, as table `session_run` numbers them.
const ACTIVE: i64 = 2;
const IDLE_IN_XACT: i64 = 4;
const FASTPATH: i64 = 5;
const ABORTED: i64 = 6;
const HIDDEN: i64 = 8;

/// Database time without a wait, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct CpuSplit {
    pub run_s: f64,
    pub queue_s: f64,
    pub unknown_s: f64,
}

/// Sessions of the last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counts {
    pub clients: u64,
    pub active: u64,
    pub idle_in_xact: u64,
    pub lock_waiters: u64,
}

/// Seconds of database time by class, of the passes of one step.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Step {
    pub number: i64,
    pub observed_s: f64,
    pub classes: Vec<(String, f64)>,
}

/// A session at the last pass. age_s: in the statement, or else in the state. busy_s: its database time. cpu, read_bytes, write_bytes: a second.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct SessionNow {
    pub session_id: i64,
    pub who: Option<Description>,
    pub backend_start: i64,
    pub state: i64,
    pub wait_class: String,
    pub event: String,
    pub age_s: Option<f64>,
    pub xact_age_s: Option<f64>,
    pub xmin_age: Option<i64>,
    pub in_db_time: bool,
    pub busy_s: f64,
    pub blocked_by: Vec<i64>,
    pub statement: String,
    pub cpu: Option<f64>,
    pub read_bytes: Option<f64>,
    pub write_bytes: Option<f64>,
}

/// The window. last_ts: its last pass with samples. events: class, event, seconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Look {
    pub ticks: u64,
    pub missed: i64,
    pub observed_s: f64,
    pub last_ts: Option<i64>,
    pub counts: Counts,
    pub events: Vec<(String, String, f64)>,
    pub cpu: CpuSplit,
    pub steps: Vec<Step>,
    pub sessions: Vec<SessionNow>,
}

/// Database time of one session in one pass. step: its index. woken: the interval of the counters that tell how much of a wait was run queue.
struct Spent {
    step: usize,
    code: u32,
    doing: Doing,
    weight_s: f64,
    woken: Option<usize>,
}

/// Sums over sessions. Codes of one event are one.
struct Sums {
    codes: BTreeMap<u32, f64>,
    /// By step and class.
    steps: Vec<HashMap<u32, f64>>,
}

impl Sums {
    fn add(&mut self, step: usize, code: u32, weight_s: f64) {
        *self.codes.entry(code).or_default() += weight_s;
        if let Some(step) = self.steps.get_mut(step) {
            *step.entry(code).or_default() += weight_s;
        }
    }
}

impl Recent {
    /// The sums of [from, to), ns on CLOCK_MONOTONIC, in steps that begin at multiples of step_ns. listed: the sessions of the last pass too.
    pub fn look(&self, from: i64, to: i64, step_ns: i64, listed: bool) -> Look {
        let step_ns = step_ns.max(1);
        let passes = &self.passes[self.passes.partition_point(|p| p.ts < from)..];
        let passes = &passes[..passes.partition_point(|p| p.ts < to)];
        let last = passes.iter().rposition(|p| p.samples > 0);
        let mut out = Look {
            ticks: passes.len() as u64,
            missed: passes.iter().map(|p| p.missed).sum(),
            observed_s: seconds(passes.iter().map(|p| p.period_ns).sum()),
            last_ts: last.map(|at| passes[at].ts),
            ..Look::default()
        };
        let mut numbers: Vec<i64> = Vec::new();
        let mut step_of = Vec::with_capacity(passes.len());
        for pass in passes {
            let number = pass.ts.div_euclid(step_ns);
            if numbers.last() != Some(&number) {
                numbers.push(number);
                out.steps.push(Step { number, ..Step::default() });
            }
            let step = numbers.len() - 1;
            out.steps[step].observed_s += seconds(pass.period_ns);
            step_of.push(step);
        }
        let mut sums = Sums { codes: BTreeMap::new(), steps: numbers.iter().map(|_| HashMap::new()).collect() };
        for (&id, session) in &self.sessions {
            let (spent, queue) = self.spent(session, passes, &step_of, (from, to));
            let split = queue.split();
            let mut busy_s = 0.0;
            // Neighbours are mostly of the same step and event: one look into the maps for all of them.
            for alike in spent.chunk_by(|a, b| (a.step, a.code) == (b.step, b.code)) {
                let weights = alike.iter().map(|s| {
                    let part = s.woken.map_or(0.0, |interval| split.woken[interval].part(s.doing));
                    s.weight_s * (1.0 - part)
                });
                let weight_s = weights.sum();
                busy_s += weight_s;
                sums.add(alike[0].step, alike[0].code, weight_s);
            }
            for &(ts, hidden_s) in &split.hidden {
                let step = numbers.partition_point(|&n| n < ts.div_euclid(step_ns));
                busy_s += hidden_s;
                out.cpu.queue_s += hidden_s;
                sums.add(step, 0, hidden_s);
            }
            out.cpu.run_s += split.run_s;
            out.cpu.queue_s += split.queue_s;
            out.cpu.unknown_s += split.unknown_s;
            let Some(pass) = last.map(|at| &passes[at]) else { continue };
            let Some(run) = run_at(session, pass.tick) else { continue };
            self.count(session, run, pass, &mut out.counts);
            if listed {
                out.sessions.push(self.now(id, session, run, pass, busy_s, from, to));
            }
        }
        out.events = self.by_event(&sums.codes);
        for (step, codes) in out.steps.iter_mut().zip(&sums.steps) {
            step.classes = self.by_class(codes);
        }
        out
    }

    /// What a session did in the passes: its database time, and all its samples beside the counters of the scheduler.
    fn spent<'a>(
        &self,
        session: &'a Session,
        passes: &[Pass],
        step_of: &[usize],
        (from, to): (i64, i64),
    ) -> (Vec<Spent>, Queue<'a>) {
        let mut queue = Queue::new(&session.intervals, from, to);
        let mut spent: Vec<Spent> = Vec::new();
        let (Some(first), Some(last)) = (passes.first(), passes.last()) else { return (spent, queue) };
        let runs = &session.runs[session.runs.partition_point(|r| r.last() < first.tick)..];
        let mut at = 0;
        for run in runs.iter().take_while(|r| r.tick <= last.tick) {
            let doing = self.doing(run.code);
            let known = (1..HIDDEN).contains(&run.state);
            while passes.get(at).is_some_and(|p| p.tick < run.tick) {
                at += 1;
            }
            while let Some(pass) = passes.get(at).filter(|p| p.tick <= run.last()) {
                let kind = session.at(pass.ts).map(|d| d.backend_type.as_str());
                let active = is_active(run.state, doing, kind);
                let weight_s = seconds(pass.period_ns);
                let visible = known && kind.is_some_and(|kind| kind != "walsender");
                let age_ns = pass.ts + pass.wall_offset_ns - run.state_change * 1000;
                let fresh = run.state_change == 0 || age_ns < pass.period_ns - 1000; // the server counts in us
                let since = run.state_change;
                let woken = queue.add(Sample { ts: pass.ts, weight_s, doing, active, visible, since, fresh });
                if active {
                    spent.push(Spent { step: step_of[at], code: run.code, doing, weight_s, woken });
                }
                at += 1;
            }
        }
        (spent, queue)
    }

    fn count(&self, session: &Session, run: &Run, pass: &Pass, counts: &mut Counts) {
        let kind = session.at(pass.ts).map(|d| d.backend_type.as_str());
        counts.clients += u64::from(kind == Some("client backend"));
        counts.active += u64::from(is_active(run.state, self.doing(run.code), kind));
        counts.idle_in_xact += u64::from(matches!(run.state, IDLE_IN_XACT | ABORTED));
        counts.lock_waiters += u64::from(self.names(run.code).0 == "Lock");
    }

    #[allow(clippy::too_many_arguments)] // one row, from all that is known
    fn now(&self, id: i64, session: &Session, run: &Run, pass: &Pass, busy_s: f64, from: i64, to: i64) -> SessionNow {
        let who = session.at(pass.ts).cloned();
        let doing = self.doing(run.code);
        let in_db_time = is_active(run.state, doing, who.as_ref().map(|d| d.backend_type.as_str()));
        let (class, event) = self.names(run.code);
        let is_recent = |ts: i64, dt_ns: i64| ts > pass.ts - USED_OVER_NS && ts > from && ts - dt_ns < to;
        let used: Vec<_> = session.intervals.iter().filter(|i| is_recent(i.ts, i.dt_ns)).collect();
        let took_s = seconds(used.iter().map(|i| i.dt_ns).sum());
        let rate = |grown: &mut dyn Iterator<Item = Option<i64>>| {
            let known: Vec<i64> = grown.flatten().collect();
            (took_s > 0.0 && !known.is_empty()).then(|| known.iter().sum::<i64>() as f64 / took_s)
        };
        let blocked_by = match class {
            "Lock" => {
                // The last look at waiters, which a busy host makes later than planned.
                let looks = self.blocked.iter().filter(|b| b.ts >= from.max(pass.ts - LOOKS_APART_NS) && b.ts < to);
                let last = looks.clone().map(|b| b.ts).max();
                let own = looks.filter(|b| b.session_id == id && Some(b.ts) == last);
                own.map(|b| b.blocker_pid).collect::<BTreeSet<_>>()
            }
            _ => BTreeSet::new(),
        };
        let now_us = (pass.ts + pass.wall_offset_ns) / 1000;
        let age_s = |start_us: i64| (start_us != 0).then(|| (now_us - start_us) as f64 / 1e6);
        let xmin_age =
            (run.backend_xmin != 0 && pass.next_xid != 0).then(|| (pass.next_xid - run.backend_xmin) % 4_294_967_296);
        SessionNow {
            session_id: id,
            backend_start: session.descriptions.iter().map(|d| d.backend_start).max().unwrap_or(0),
            who,
            state: run.state,
            wait_class: class.to_owned(),
            event: event.to_owned(),
            age_s: match run.state {
                ACTIVE | FASTPATH => age_s(run.query_start),
                1..=HIDDEN => age_s(run.state_change),
                _ => None,
            },
            xact_age_s: age_s(run.xact_start),
            xmin_age,
            in_db_time,
            busy_s,
            blocked_by: blocked_by.into_iter().collect(),
            statement: self.statements.get(&run.statement_id).cloned().unwrap_or_default(),
            cpu: rate(&mut used.iter().map(|i| i.run_ns)).map(|ns| ns / 1e9),
            read_bytes: rate(&mut used.iter().map(|i| i.read_bytes)),
            write_bytes: rate(&mut used.iter().map(|i| i.write_bytes)),
        }
    }

    /// Class and event of a code; what has no name is not a wait.
    fn names(&self, code: u32) -> (&str, &str) {
        self.events.get(&code).map_or(("CPU", "CPU"), |(class, event)| (class, event))
    }

    fn doing(&self, code: u32) -> Doing {
        match self.names(code).0 {
            "CPU" => Doing::Cpu,
            "IO" | "Extension" => Doing::MayRun,
            "Lock" | "BufferPin" | "IPC" | "Timeout" => Doing::Long,
            "Client" => Doing::Client,
            "Activity" => Doing::Activity,
            _ => Doing::Waits,
        }
    }

    fn by_event(&self, codes: &BTreeMap<u32, f64>) -> Vec<(String, String, f64)> {
        let mut found: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for (&code, seconds) in codes {
            *found.entry(self.names(code)).or_default() += seconds;
        }
        found.into_iter().map(|((class, event), s)| (class.to_owned(), event.to_owned(), s)).collect()
    }

    fn by_class(&self, codes: &HashMap<u32, f64>) -> Vec<(String, f64)> {
        let mut found: BTreeMap<&str, f64> = BTreeMap::new();
        for (&code, seconds) in codes {
            *found.entry(self.names(code).0).or_default() += seconds;
        }
        found.into_iter().map(|(class, s)| (class.to_owned(), s)).collect()
    }
}

impl Session {
    /// The description that held at a moment.
    fn at(&self, ts: i64) -> Option<&Description> {
        let after = self.descriptions.partition_point(|d| d.ts <= ts);
        self.descriptions.get(after.saturating_sub(1))
    }
}

fn run_at(session: &Session, tick: i64) -> Option<&Run> {
    let after = session.runs.partition_point(|r| r.tick <= tick);
    session.runs[..after].last().filter(|r| r.last() >= tick)
}

fn is_active(state: i64, doing: Doing, backend_type: Option<&str>) -> bool {
    matches!(state, ACTIVE | FASTPATH) && doing != Doing::Activity && backend_type != Some("walsender")
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
