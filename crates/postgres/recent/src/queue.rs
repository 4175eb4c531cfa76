//! How long one session waited for a CPU, and how much of that its samples show as something else: the views `session_queue` and
//! `db_time`, over the samples of a window.

use crate::kept::Interval;

/// What a sample counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// No wait: it runs or is ready to run.
    Cpu,
    /// In a wait from which it is woken: then it may be ready to run.
    Waits,
    /// In a wait in which it may run too: a system call for I/O, an extension.
    MayRun,
    /// In a wait that comes seldom and is long: for a heavyweight lock, a pin, another process, a timeout.
    Long,
    /// In a wait for its client, until its state changes.
    Client,
    /// Waits for work.
    Activity,
}

/// One session in one pass. since: when its state changed. fresh: no more than one period before. visible: its state is known.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub ts: i64,
    pub weight_s: f64,
    pub doing: Doing,
    pub active: bool,
    pub visible: bool,
    pub since: i64,
    pub fresh: bool,
}

/// Samples that fell into one interval of the scheduler's counters, in seconds.
#[derive(Default)]
struct Seen {
    last_ts: Option<i64>,
    /// Without a wait, of the active session and of one that is not.
    active_s: f64,
    idle_s: f64,
    may_run_s: f64,
    waited_s: f64,
    long_s: f64,
    /// One pass for each long wait; and the change of state before the last of them.
    long_once_s: f64,
    long_since: i64,
    client_s: f64,
    /// The first pass of each wait for the client.
    client_once_s: f64,
    /// Active and without a wait, from the interval before on.
    cpu_s: f64,
}

/// The session's time in the run queue.
pub struct Queue<'a> {
    intervals: Vec<&'a Interval>,
    seen: Vec<Seen>,
    /// The interval of the newest sample.
    at: usize,
    /// Database time without a wait of which no counter tells.
    unknown_s: f64,
}

/// The outcome.
#[derive(Default)]
pub struct Split {
    pub run_s: f64,
    /// Without `hidden`.
    pub queue_s: f64,
    pub unknown_s: f64,
    /// The part of its waits that was spent waiting for a CPU, by interval.
    pub woken: Vec<Woken>,
    /// Seconds that samples show as something else, and the last sample of their interval.
    pub hidden: Vec<(i64, f64)>,
}

/// Which part of the waits of one interval was spent waiting for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Woken {
    waits: f64,
    long: f64,
    client: f64,
}

impl Woken {
    /// Of a wait of this kind.
    pub fn part(&self, doing: Doing) -> f64 {
        match doing {
            Doing::Cpu | Doing::Activity => 0.0,
            Doing::Waits | Doing::MayRun => self.waits,
            Doing::Long => self.long,
            Doing::Client => self.client,
        }
    }
}

impl<'a> Queue<'a> {
    /// Intervals in the order of time that reach into a window.
    pub fn new(intervals: &'a [Interval], from: i64, to: i64) -> Queue<'a> {
        let reaches = |i: &&Interval| i.ts > from && i.ts - i.dt_ns < to && i.run_ns.is_some() && i.queue_ns.is_some();
        let intervals: Vec<_> = intervals.iter().filter(reaches).collect();
        let seen = intervals.iter().map(|_| Seen::default()).collect();
        Queue { intervals, seen, at: 0, unknown_s: 0.0 }
    }

    /// Adds the next sample. Gives the interval that ends after it.
    pub fn add(&mut self, sample: Sample) -> Option<usize> {
        let Sample { ts, weight_s, doing, active, .. } = sample;
        while self.intervals.get(self.at).is_some_and(|i| i.ts < ts) {
            self.at += 1;
        }
        let active_cpu = active && doing == Doing::Cpu;
        let (Some(interval), Some(seen)) = (self.intervals.get(self.at), self.seen.get_mut(self.at)) else {
            if active_cpu {
                self.unknown_s += weight_s;
            }
            return None;
        };
        if active_cpu {
            seen.cpu_s += weight_s;
        }
        if sample.visible && ts > interval.ts - interval.dt_ns {
            seen.last_ts = Some(ts);
            match doing {
                Doing::Cpu if active => seen.active_s += weight_s,
                Doing::Cpu => seen.idle_s += weight_s,
                Doing::Waits => seen.waited_s += weight_s,
                Doing::MayRun => {
                    seen.waited_s += weight_s;
                    seen.may_run_s += weight_s;
                }
                Doing::Long => {
                    seen.long_s += weight_s;
                    if sample.since == 0 || sample.since > seen.long_since {
                        seen.long_once_s += weight_s;
                        seen.long_since = sample.since;
                    }
                }
                Doing::Client => {
                    seen.client_s += weight_s;
                    if sample.fresh {
                        seen.client_once_s += weight_s;
                    }
                }
                Doing::Activity => {}
            }
        }
        Some(self.at)
    }

    /// When all samples were added. Samples of one interval are few: what they miss by chance is more certain over all intervals.
    pub fn split(&self) -> Split {
        let mut out = Split { unknown_s: self.unknown_s, ..Split::default() };
        let shown = self.shown();
        let (mut hidden_s, mut excess_s, mut idle_queue_s, mut woken_s) = (0.0, 0.0, 0.0, 0.0);
        let (mut excesses, mut woken) = (Vec::new(), Vec::new());
        for (interval, seen) in self.intervals.iter().zip(&self.seen) {
            let (run_s, queue_s) = times(interval);
            let part = shown.queue_part(run_s, queue_s);
            match part {
                Some(part) => {
                    out.run_s += seen.cpu_s * (1.0 - part);
                    out.queue_s += seen.cpu_s * part;
                }
                None => out.unknown_s += seen.cpu_s,
            }
            let Some(last_ts) = seen.last_ts else {
                woken.push(0.0);
                continue;
            };
            let active_queue_s = seen.active_s * part.unwrap_or(0.0);
            hidden_s += queue_s - active_queue_s;
            idle_queue_s += seen.idle_s * part.unwrap_or(0.0);
            let excess = (queue_s - active_queue_s).max(0.0);
            excess_s += excess;
            excesses.push((last_ts, excess));
            let room_s = f64::min(queue_s * (1.0 - shown.queue_rate), seen.waited_s + seen.long_s + seen.client_s);
            woken_s += room_s;
            woken.push(room_s);
        }
        let hidden_s = f64::max(hidden_s, 0.0);
        if excess_s > 0.0 && hidden_s > 0.0 {
            let scaled = excesses.into_iter().map(|(ts, excess)| (ts, excess * hidden_s / excess_s));
            out.hidden = scaled.filter(|(_, s)| *s > 0.0).collect();
        }
        let rate = ratio(hidden_s - f64::min(idle_queue_s, hidden_s), woken_s);
        let woken = woken.into_iter().zip(&self.seen).map(|(room_s, seen)| {
            // where no wait was seen to begin, the time of long ones decides
            let long_once_s = seen.long_once_s + 1e-3 * seen.long_s;
            let client_once_s = seen.client_once_s + 1e-3 * seen.client_s;
            let part = ratio(room_s * rate, seen.waited_s + long_once_s + client_once_s);
            Woken {
                waits: part.min(1.0),
                long: ratio(part * long_once_s, seen.long_s).min(1.0),
                client: ratio(part * client_once_s, seen.client_s).min(1.0),
            }
        });
        out.woken = woken.collect();
        out
    }

    /// Without a wait, a process runs or is ready to run. In a wait it sleeps, and is ready to run once it has been woken; only a system
    /// call for I/O and an extension also run in one. So the run queue is what samples without a wait have beyond the time on a CPU. The
    /// rest of it fell into waits: each is woken once, however long it was. A statement waits seldom, but long, for heavyweight locks,
    /// pins, other processes and timeouts, and a session once for its client until its state changes: there, one pass stands for the wait.
    fn shown(&self) -> Shown {
        let (mut no_wait_s, mut may_run_s, mut run_s, mut queue_s) = (0.0, 0.0, 0.0, 0.0);
        let sampled = self.intervals.iter().zip(&self.seen).filter(|(_, seen)| seen.last_ts.is_some());
        for (interval, seen) in sampled {
            let (run, queue) = times(interval);
            run_s += run;
            queue_s += queue;
            no_wait_s += seen.active_s + seen.idle_s;
            may_run_s += seen.may_run_s;
        }
        let in_proportion = ratio(no_wait_s * run_s, run_s + queue_s);
        let shown_s = f64::max(run_s - may_run_s, in_proportion).min(no_wait_s).min(run_s);
        Shown { run_rate: ratio(shown_s, run_s), queue_rate: ratio(f64::min(no_wait_s - shown_s, queue_s), queue_s) }
    }
}

/// Which part of the time on a CPU, and of that in the run queue, samples without a wait show.
struct Shown {
    run_rate: f64,
    queue_rate: f64,
}

impl Shown {
    /// Which part of an interval's samples without a wait was spent ready to run. None: the counters did not move.
    fn queue_part(&self, run_s: f64, queue_s: f64) -> Option<f64> {
        let (shown_run_s, shown_queue_s) = (run_s * self.run_rate, queue_s * self.queue_rate);
        if run_s + queue_s <= 0.0 {
            None
        } else if run_s == 0.0 {
            Some(1.0)
        } else if shown_run_s + shown_queue_s > 0.0 {
            Some(shown_queue_s / (shown_run_s + shown_queue_s))
        } else {
            Some(0.0)
        }
    }
}

/// 0 when there is nothing to be a part of.
fn ratio(part: f64, of: f64) -> f64 {
    if of > 0.0 {
        part / of
    } else {
        0.0
    }
}

/// On a CPU, and in the run queue, in seconds.
fn times(interval: &Interval) -> (f64, f64) {
    (interval.run_ns.unwrap_or(0) as f64 / 1e9, interval.queue_ns.unwrap_or(0) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn sample(ts: i64, weight_s: f64, doing: Doing, active: bool, visible: bool) -> Sample {
        Sample { ts, weight_s, doing, active, visible, since: 0, fresh: true }
    }

    fn interval(second: i64, run_ns: i64, queue_ns: i64) -> Interval {
        let ts = second * S;
        Interval { ts, dt_ns: S, run_ns: Some(run_ns), queue_ns: Some(queue_ns), read_bytes: None, write_bytes: None }
    }

    #[test]
    fn a_sample_without_a_wait_is_split_as_the_scheduler_counts() {
        let intervals = [interval(1, S / 4, 3 * S / 4)];
        let mut queue = Queue::new(&intervals, 0, S);
        assert_eq!(queue.add(sample(S / 2, 1.0, Doing::Cpu, true, true)), Some(0));
        assert_eq!(queue.add(sample(S + 1, 0.5, Doing::Cpu, true, true)), None); // no counter tells
        let split = queue.split();
        assert_eq!((split.run_s, split.queue_s, split.unknown_s), (0.25, 0.75, 0.5));
        assert_eq!((split.hidden, split.woken), (vec![], vec![Woken::default()]));
    }

    #[test]
    fn what_the_samples_do_not_show_is_taken_from_the_waits() {
        // Ready to run for 0.6 s while the server says that it waits for a second.
        let intervals = [interval(1, S / 10, 6 * S / 10)];
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(sample(S / 2, 1.0, Doing::Waits, true, true));
        let split = queue.split();
        assert_eq!(split.hidden, [(S / 2, 0.6)]);
        assert!((split.woken[0].waits - 0.6).abs() < 1e-12);
    }

    #[test]
    fn run_queue_in_a_wait_is_not_taken_from_the_time_on_a_cpu() {
        // Each second: 0.2 s on a CPU, 0.1 s ready to run without a wait, 0.5 s woken from a lock and not on a CPU yet.
        let intervals: Vec<_> = (1..=10).map(|second| interval(second, S / 5, 3 * S / 5)).collect();
        let mut queue = Queue::new(&intervals, 0, 10 * S);
        for second in 0..10 {
            queue.add(sample(second * S + S / 4, 0.3, Doing::Cpu, true, true));
            queue.add(sample(second * S + S / 2, 0.7, Doing::Waits, true, true));
        }
        let split = queue.split();
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(near(split.run_s, 2.0) && near(split.queue_s, 1.0), "{} {}", split.run_s, split.queue_s);
        assert!(near(split.hidden.iter().map(|h| h.1).sum(), 5.0));
        assert!(split.woken.iter().all(|woken| near(woken.waits, 0.5 / 0.7)));
    }

    #[test]
    fn an_interval_without_run_queue_keeps_its_wait_whole() {
        let intervals = [interval(1, S / 10, 0), interval(2, S / 10, S / 2)];
        let mut queue = Queue::new(&intervals, 0, 2 * S);
        queue.add(sample(S / 2, 1.0, Doing::Waits, true, true));
        queue.add(sample(S + S / 2, 1.0, Doing::Waits, true, true));
        assert_eq!(queue.split().woken.iter().map(|woken| woken.waits).collect::<Vec<_>>(), [0.0, 0.5]);
    }

    #[test]
    fn a_long_wait_for_a_lock_is_woken_once() {
        // Ten passes in one lock, ten in another wait: run queue for as long as the second, and one pass of the first.
        let intervals = [interval(2, 0, 11 * S / 10)];
        let mut queue = Queue::new(&intervals, S, 2 * S);
        for pass in 1..=20 {
            let doing = if pass <= 10 { Doing::Long } else { Doing::Waits };
            queue.add(Sample { since: 7, ..sample(S + pass * S / 20, 0.1, doing, true, true) });
        }
        let split = queue.split();
        assert!((split.woken[0].long - 0.1).abs() < 2e-3 && (split.woken[0].waits - 1.0).abs() < 2e-3);
    }

    #[test]
    fn a_system_call_for_io_runs_in_its_wait() {
        // As long in the wait as without one, always on a CPU or ready to run, equally in both.
        let intervals = [interval(1, S / 2, S / 2)];
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(sample(S / 4, 0.5, Doing::Cpu, true, true));
        queue.add(sample(S / 2, 0.5, Doing::MayRun, true, true));
        let split = queue.split();
        assert_eq!((split.run_s, split.queue_s, split.woken[0].waits), (0.25, 0.25, 0.5));
    }

    #[test]
    fn idle_sessions_wait_for_a_cpu_too_and_hidden_ones_are_not_known() {
        let intervals = [interval(1, S / 10, S / 2)];
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(sample(S / 2, 1.0, Doing::Waits, false, true));
        assert_eq!(queue.split().hidden, [(S / 2, 0.5)]);
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(sample(S / 2, 1.0, Doing::Waits, false, false));
        assert!(queue.split().hidden.is_empty());
    }
}
