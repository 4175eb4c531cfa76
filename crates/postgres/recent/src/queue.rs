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
    /// A long wait, which stays whole: heavyweight locks, pins.
    Whole,
    /// Waits for work.
    Activity,
}

/// Samples that fell into one interval of the scheduler's counters, in seconds.
#[derive(Default)]
struct Seen {
    last_ts: Option<i64>,
    active_s: f64,
    no_wait_s: f64,
    waited_s: f64,
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
    /// The part of its waits that was spent waiting for a CPU.
    pub wait_part: f64,
    /// Seconds that samples show as something else, and the last sample of their interval.
    pub hidden: Vec<(i64, f64)>,
}

impl<'a> Queue<'a> {
    /// Intervals in the order of time that reach into a window.
    pub fn new(intervals: &'a [Interval], from: i64, to: i64) -> Queue<'a> {
        let reaches = |i: &&Interval| i.ts > from && i.ts - i.dt_ns < to && i.run_ns.is_some() && i.queue_ns.is_some();
        let intervals: Vec<_> = intervals.iter().filter(reaches).collect();
        let seen = intervals.iter().map(|_| Seen::default()).collect();
        Queue { intervals, seen, at: 0, unknown_s: 0.0 }
    }

    /// Adds the next sample. visible: of a session whose state is known. Gives whether an interval ends after it.
    pub fn add(&mut self, ts: i64, weight_s: f64, doing: Doing, active: bool, visible: bool) -> bool {
        while self.intervals.get(self.at).is_some_and(|i| i.ts < ts) {
            self.at += 1;
        }
        let (Some(interval), Some(seen)) = (self.intervals.get(self.at), self.seen.get_mut(self.at)) else {
            if active && doing == Doing::Cpu {
                self.unknown_s += weight_s;
            }
            return false;
        };
        if active && doing == Doing::Cpu {
            seen.cpu_s += weight_s;
        }
        if visible && ts > interval.ts - interval.dt_ns {
            seen.last_ts = Some(ts);
            match doing {
                Doing::Cpu if active => seen.active_s += weight_s,
                Doing::Cpu => seen.no_wait_s += weight_s,
                Doing::Waits => seen.waited_s += weight_s,
                Doing::Whole | Doing::Activity => {}
            }
        }
        true
    }

    /// When all samples were added. Samples of one interval are few: what they miss by chance is more certain over all intervals.
    pub fn split(&self) -> Split {
        let mut out = Split { unknown_s: self.unknown_s, ..Split::default() };
        let (mut queued_s, mut active_s, mut excess_s) = (0.0, 0.0, 0.0);
        let (mut idle_s, mut waited_s) = (0.0, 0.0);
        let mut excesses = Vec::new();
        for (interval, seen) in self.intervals.iter().zip(&self.seen) {
            let run_s = interval.run_ns.unwrap_or(0) as f64 / 1e9;
            let queue_s = interval.queue_ns.unwrap_or(0) as f64 / 1e9;
            let part = (run_s + queue_s > 0.0).then(|| queue_s / (run_s + queue_s));
            match part {
                Some(part) => {
                    out.run_s += seen.cpu_s * (1.0 - part);
                    out.queue_s += seen.cpu_s * part;
                }
                None => out.unknown_s += seen.cpu_s,
            }
            let Some(last_ts) = seen.last_ts else { continue };
            let shown_s = seen.active_s * part.unwrap_or(0.0);
            queued_s += queue_s;
            active_s += shown_s;
            idle_s += seen.no_wait_s * part.unwrap_or(0.0);
            waited_s += seen.waited_s;
            let excess = (queue_s - shown_s).max(0.0);
            excess_s += excess;
            excesses.push((last_ts, excess));
        }
        let hidden_s = f64::max(queued_s - active_s, 0.0);
        if excess_s > 0.0 && hidden_s > 0.0 {
            let scaled = excesses.into_iter().map(|(ts, excess)| (ts, excess * hidden_s / excess_s));
            out.hidden = scaled.filter(|(_, s)| *s > 0.0).collect();
        }
        if waited_s > 0.0 {
            out.wait_part = f64::min((hidden_s - f64::min(idle_s, hidden_s)) / waited_s, 1.0);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn interval(second: i64, run_ns: i64, queue_ns: i64) -> Interval {
        let ts = second * S;
        Interval { ts, dt_ns: S, run_ns: Some(run_ns), queue_ns: Some(queue_ns), read_bytes: None, write_bytes: None }
    }

    #[test]
    fn a_sample_without_a_wait_is_split_as_the_scheduler_counts() {
        let intervals = [interval(1, S / 4, 3 * S / 4)];
        let mut queue = Queue::new(&intervals, 0, S);
        assert!(queue.add(S / 2, 1.0, Doing::Cpu, true, true));
        assert!(!queue.add(S + 1, 0.5, Doing::Cpu, true, true)); // no counter tells
        let split = queue.split();
        assert_eq!((split.run_s, split.queue_s, split.unknown_s), (0.25, 0.75, 0.5));
        assert!(split.hidden.is_empty() && split.wait_part == 0.0);
    }

    #[test]
    fn what_the_samples_do_not_show_is_taken_from_the_waits() {
        // Ready to run for 0.6 s while the server says that it waits for a second.
        let intervals = [interval(1, S / 10, 6 * S / 10)];
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(S / 2, 1.0, Doing::Waits, true, true);
        let split = queue.split();
        assert_eq!(split.hidden, [(S / 2, 0.6)]);
        assert!((split.wait_part - 0.6).abs() < 1e-12);
    }

    #[test]
    fn idle_sessions_wait_for_a_cpu_too_and_hidden_ones_are_not_known() {
        let intervals = [interval(1, S / 10, S / 2)];
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(S / 2, 1.0, Doing::Waits, false, true);
        assert_eq!(queue.split().hidden, [(S / 2, 0.5)]);
        let mut queue = Queue::new(&intervals, 0, S);
        queue.add(S / 2, 1.0, Doing::Waits, false, false);
        assert!(queue.split().hidden.is_empty());
    }
}
