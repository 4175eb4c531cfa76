//! What all threads counted, put together second by second, as JSON.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use base64::prelude::{Engine, BASE64_STANDARD};
use leadline_histogram::Times;
use serde_json::{json, Value as Json};

use crate::client::{Mode, Shared};
use crate::plan::Plan;
use crate::schedule::Phase;
use crate::steady::is_steady;
use crate::tally::{Part, Second, AFTER};
use crate::worker::Ended;

/// From the moment at which the rate is found to be steady to the end of the warm-up.
const NOTICE_NS: i64 = 2_000_000_000;

/// The run so far.
pub(crate) struct Results<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    begins_ns: i64,
    threads: usize,
    /// Seconds that some thread has still to tell of, by phase and number.
    open: BTreeMap<(usize, i64), (usize, Second)>,
    phases: Vec<PhaseSum>,
    gone: u64,
    unfinished: u64,
    oldest_ns: i64,
    not_begun: u64,
    first_late_ns: i64,
    /// Of the warm-up: what ended in each second.
    warm_up: Vec<u64>,
}

/// A phase of all threads.
struct PhaseSum {
    phase: Phase,
    all: Option<Second>,
    /// Ended well within the phase, whenever they were due.
    in_time: u64,
    part: Part,
    /// By thread: on a CPU, in the run queue, and the time of both.
    own: Vec<(i64, Option<i64>, i64)>,
    last_retransmits: Option<u64>,
}

impl<'a> Results<'a> {
    pub(crate) fn new(plan: &'a Plan, shared: &'a Shared, begins_ns: i64, threads: usize) -> Results<'a> {
        let lengths: Vec<usize> = shared.scripts.iter().map(|script| script.commands.len()).collect();
        let phase = |(number, phase): (usize, &Phase)| PhaseSum {
            phase: *phase,
            all: None,
            in_time: 0,
            part: Part::new(number, &lengths),
            own: vec![(0, Some(0), 0); threads],
            last_retransmits: None,
        };
        Results {
            plan,
            shared,
            begins_ns,
            threads,
            open: BTreeMap::new(),
            phases: plan.phases.iter().enumerate().map(phase).collect(),
            gone: 0,
            unfinished: 0,
            oldest_ns: 0,
            not_begun: 0,
            first_late_ns: 0,
            warm_up: Vec::new(),
        }
    }

    pub(crate) fn second(&mut self, thread: usize, second: Second, show: &mut dyn FnMut(&Json)) {
        if let Some(sum) = self.phases.get_mut(second.phase).filter(|_| second.number != AFTER) {
            let (cpu, waited, passed) = &mut sum.own[thread];
            *cpu += second.cpu_ns;
            *waited = waited.zip(second.waited_ns).map(|(a, b)| a + b);
            *passed += second.ends_ns - second.begins_ns;
        }
        let key = (second.phase, second.number);
        let told = match self.open.get_mut(&key) {
            Some((told, all)) => {
                all.add(&second);
                *told += 1;
                *told
            }
            None => {
                self.open.insert(key, (1, second));
                1
            }
        };
        if told == self.threads {
            self.close(key, show);
        }
    }

    /// No thread has more of this second.
    fn close(&mut self, key: (usize, i64), show: &mut dyn FnMut(&Json)) {
        let Some((_, second)) = self.open.remove(&key) else { return };
        if second.number != AFTER || second.is_last(self.phases.len()) || second.has_any() {
            show(&self.row(&second));
        }
        self.look_for_the_end_of_the_warm_up(&second);
        let Some(sum) = self.phases.get_mut(second.phase) else { return };
        sum.in_time += if second.number == AFTER { 0 } else { second.ended };
        sum.last_retransmits = second.retransmits.or(sum.last_retransmits);
        match &mut sum.all {
            Some(all) => all.add(&second),
            None => sum.all = Some(second),
        }
    }

    fn look_for_the_end_of_the_warm_up(&mut self, second: &Second) {
        let Some(batch) = self.plan.auto_warm_up.filter(|_| second.phase == 0 && second.number != AFTER) else {
            return;
        };
        self.warm_up.push(second.ended);
        let steady = &self.shared.steady_ns;
        if steady.load(Relaxed) == i64::MAX && is_steady(&self.warm_up, batch) {
            // In time for all threads to end it at the same moment.
            steady.store(second.ends_ns + NOTICE_NS, Relaxed);
        }
    }

    pub(crate) fn part(&mut self, part: &Part) {
        if let Some(sum) = self.phases.get_mut(part.phase) {
            sum.part.add(part);
        }
    }

    pub(crate) fn ended(&mut self, ended: &Ended) {
        self.gone += ended.gone;
        self.unfinished += ended.unfinished;
        self.not_begun += ended.not_begun;
        self.oldest_ns = self.oldest_ns.max(ended.oldest_ns);
        self.first_late_ns = self.first_late_ns.max(ended.first_late_ns);
    }

    /// A second as a row.
    fn row(&self, second: &Second) -> Json {
        let phase = self.phases.get(second.phase).map(|sum| sum.phase);
        let histogram = self.plan.histograms.then(|| BASE64_STANDARD.encode(second.latency.v2_compressed()));
        let mut row = json!({
            "histogram": histogram,
            "ts": second.ends_ns,
            "duration_ns": second.ends_ns - second.begins_ns,
            "phase": second.phase,
            "warm_up": phase.is_some_and(|phase| phase.warm_up),
            "after_the_end": second.number == AFTER,
            "rate": phase.and_then(|phase| phase.rate),
        });
        put_counts(&mut row, second);
        for (name, times) in self.kinds(second) {
            row[name] = times.summary();
            if self.plan.histograms {
                let buckets: Vec<Json> =
                    times.buckets().iter().map(|(low, high, count)| json!([low, high, count])).collect();
                row[name]["buckets"] = buckets.into();
            }
        }
        row
    }

    fn kinds<'s>(&self, second: &'s Second) -> Vec<(&'static str, &'s Times)> {
        let mut kinds = vec![("latency", &second.latency), ("service", &second.service)];
        if self.shared.open {
            kinds.extend([("lag", &second.lag), ("schedule_error", &second.schedule_error)]);
        }
        kinds
    }

    pub(crate) fn json(mut self, show: &mut dyn FnMut(&Json), interrupted: bool) -> Json {
        let open: Vec<(usize, i64)> = self.open.keys().copied().collect();
        open.into_iter().for_each(|key| self.close(key, show));
        let phases: Vec<Json> = self.phases.iter().enumerate().map(|(number, sum)| self.phase(number, sum)).collect();
        json!({
            "begins_ns": self.begins_ns,
            "clients": self.plan.clients,
            "threads": self.threads,
            "mode": match self.plan.mode {
                Mode::Simple => "simple",
                Mode::Extended => "extended",
                Mode::Prepared => "prepared",
            },
            "seed": self.plan.seed,
            "steady": self.plan.auto_warm_up.map(|_| self.shared.steady_ns.load(Relaxed) != i64::MAX),
            "realtime_priority": self.shared.open.then(|| self.shared.realtime.load(Relaxed)),
            "terminals": self.plan.terminals.as_ref().map(|terminals| terminals.count),
            "transactions": self.plan.transactions,
            "scale": self.plan.scale,
            "phases": phases,
            "clients_gone": self.gone,
            "unfinished": self.unfinished,
            "oldest_ns": self.oldest_ns,
            "not_begun": self.not_begun,
            "first_late_ns": self.first_late_ns,
            "interrupted": interrupted,
        })
    }

    fn phase(&self, number: usize, sum: &PhaseSum) -> Json {
        let none = Second::new(number, 0, 0);
        let all = sum.all.as_ref().unwrap_or(&none);
        let passed = sum.own.iter().map(|(_, _, passed)| *passed).max().unwrap_or(0);
        let seconds = passed as f64 / 1e9;
        let share = |part: i64, of: i64| if of > 0 { part as f64 / of as f64 } else { 0.0 };
        let busiest = sum.own.iter().map(|(cpu, _, passed)| share(*cpu, *passed)).fold(0.0, f64::max);
        let waited: Option<Vec<f64>> =
            sum.own.iter().map(|(_, waited, passed)| waited.map(|waited| share(waited, *passed))).collect();
        let mut row = json!({
            "phase": number,
            "rate": sum.phase.rate,
            "warm_up": sum.phase.warm_up,
            "seconds": seconds,
            "per_second": if passed > 0 { sum.in_time as f64 / seconds } else { 0.0 },
            "offered_per_second": if passed > 0 { all.due as f64 / seconds } else { 0.0 },
            "busiest_thread": busiest,
            "longest_queue": waited.map(|waited| waited.into_iter().fold(0.0, f64::max)),
        });
        put_counts(&mut row, all);
        row["retransmits"] = sum.last_retransmits.into();
        for (name, times) in self.kinds(all) {
            row[name] = times.summary();
        }
        row["scripts"] = self.scripts(sum).into();
        row["errors"] = sum
            .part
            .errors
            .iter()
            .map(|(sqlstate, errors)| {
                json!({ "sqlstate": sqlstate, "count": errors.count, "retried": errors.retried, "message": errors.message })
            })
            .collect();
        row
    }

    fn scripts(&self, sum: &PhaseSum) -> Vec<Json> {
        let scripts = self.shared.scripts.iter().zip(&sum.part.statements).zip(&sum.part.scripts);
        scripts
            .map(|((script, statements), times)| {
                let rows = statements.iter().enumerate().filter_map(|(at, statement)| {
                    let (line, text) = match &script.commands[at] {
                        crate::script::Command::Sql(sql) => (Some(sql.line), sql.text.trim()),
                        crate::script::Command::EndPipeline => (None, "\\endpipeline"),
                        _ => return None,
                    };
                    Some(json!({
                        "command": at + 1,
                        "line": line,
                        "text": text,
                        "rows": statement.rows,
                        "failed": statement.failed,
                        "retried": statement.retried,
                        "times": statement.times.as_ref().map(|times| self.times(times)),
                    }))
                });
                json!({
                    "name": script.name,
                    "weight": script.weight,
                    "failed": times.failed,
                    "latency": times.latency.as_ref().map(|times| times.summary()),
                    "statements": rows.collect::<Vec<_>>(),
                })
            })
            .collect()
    }

    fn times(&self, times: &Times) -> Json {
        let mut summary = times.summary();
        if self.plan.histograms {
            summary["buckets"] = times.buckets().iter().map(|(low, high, count)| json!([low, high, count])).collect();
        }
        summary
    }
}

fn put_counts(row: &mut Json, of: &Second) {
    for (name, count) in [
        ("due", of.due),
        ("begun", of.begun),
        ("done", of.done),
        ("ended", of.ended),
        ("failed", of.failed),
        ("skipped", of.skipped),
        ("retries", of.retries),
        ("rows", of.rows),
        ("sent_bytes", of.sent_bytes),
        ("received_bytes", of.received_bytes),
    ] {
        row[name] = count.into();
    }
    row["cpu_ns"] = of.cpu_ns.into();
    row["waited_ns"] = of.waited_ns.into();
    row["rtt_us"] = of.rtt_us.into();
    row["min_rtt_us"] = of.min_rtt_us.into();
    row["retransmits"] = of.retransmits.into();
}
