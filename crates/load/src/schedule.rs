//! When transactions are due.

use crate::random::Random;

/// A part of a run in which the rate is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Transactions a second of all threads; None: each client begins one when the one before has ended.
    pub rate: Option<f64>,
    /// How long.
    pub for_ns: i64,
    /// Not part of the results.
    pub warm_up: bool,
}

/// The due moments of a rate, in order.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    /// Begin, end, and mean time between two transactions of this thread.
    phases: Vec<(i64, i64, Option<f64>)>,
    at: usize,
    /// Since the begin of the phase.
    since: f64,
    random: Option<Random>,
    /// Of a period: the threads' moments lie between each other.
    offset: f64,
}

impl Schedule {
    /// share: of the rate. number: of the thread, among so many. random: for waits that know nothing of each other.
    pub(crate) fn new(
        phases: &[Phase],
        begins: i64,
        share: f64,
        (number, threads): (usize, usize),
        random: Option<Random>,
    ) -> Schedule {
        let mut at = begins;
        let phases = phases.iter().map(|phase| {
            let begin = at;
            at += phase.for_ns;
            (begin, at, phase.rate.map(|rate| 1e9 / (rate * share)))
        });
        let offset = number as f64 / threads as f64;
        let mut schedule = Schedule { phases: phases.collect(), at: 0, since: 0.0, random, offset };
        schedule.enter(0);
        schedule
    }

    fn enter(&mut self, phase: usize) {
        self.at = phase;
        let Some((_, _, Some(period))) = self.phases.get(phase).copied() else { return };
        self.since = match &mut self.random {
            Some(random) => random.wait(period),
            None => self.offset * period,
        };
    }

    /// The next moment; None when there is none any more, or none in this phase.
    pub(crate) fn due(&mut self) -> Option<i64> {
        loop {
            let (begin, end, period) = *self.phases.get(self.at)?;
            let due = begin + self.since as i64;
            if period.is_some() && due < end {
                return Some(due);
            }
            self.enter(self.at + 1);
        }
    }

    /// The phase of the next moment; after the last one, their number.
    pub(crate) fn phase(&self) -> usize {
        self.at
    }

    /// Takes the next moment.
    pub(crate) fn take(&mut self) {
        if let Some((_, _, Some(period))) = self.phases.get(self.at).copied() {
            self.since += match &mut self.random {
                Some(random) => random.wait(period),
                None => period,
            };
        }
    }

    /// See `Dues`.
    pub(crate) fn end_first_phase(&mut self, ends: i64) {
        let Some(saved) = self.phases.first().map(|(_, end, _)| end - ends) else { return };
        for (number, (begin, end, _)) in self.phases.iter_mut().enumerate() {
            *begin -= if number > 0 { saved } else { 0 };
            *end -= saved;
        }
    }

    /// Takes what was due before this moment; how many.
    pub(crate) fn pass(&mut self, until: i64) -> u64 {
        let mut passed = 0;
        while self.due().is_some_and(|due| due < until) {
            self.take();
            passed += 1;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn moments(phases: &[Phase], number: usize, threads: usize, random: Option<Random>) -> Vec<i64> {
        let mut schedule = Schedule::new(phases, 0, 1.0 / threads as f64, (number, threads), random);
        let mut found = Vec::new();
        while let Some(due) = schedule.due() {
            found.push(due);
            schedule.take();
        }
        found
    }

    #[test]
    fn threads_share_a_rate_evenly_and_phases_follow_each_other() {
        let phase = |rate| Phase { rate: Some(rate), for_ns: SECOND, warm_up: false };
        let mut all: Vec<i64> = (0..2).flat_map(|n| moments(&[phase(4.0), phase(8.0)], n, 2, None)).collect();
        all.sort_unstable();
        let expected: Vec<i64> =
            (0..4).map(|n| n * SECOND / 4).chain((0..8).map(|n| SECOND + n * SECOND / 8)).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn poisson_has_the_rate_and_the_spread() {
        let phase = Phase { rate: Some(10_000.0), for_ns: 10 * SECOND, warm_up: false };
        let all = moments(&[phase], 0, 1, Some(Random::new(3)));
        assert!((99_000..101_000).contains(&all.len()), "{}", all.len());
        let gaps: Vec<f64> = all.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "as wide as its mean: {variance} {mean}");
    }

    #[test]
    fn a_first_phase_that_ends_early_moves_the_others() {
        let phase = |rate| Phase { rate: Some(rate), for_ns: 10 * SECOND, warm_up: false };
        let mut schedule = Schedule::new(&[phase(1.0), phase(2.0)], 0, 1.0, (0, 1), None);
        schedule.pass(2 * SECOND + 1);
        schedule.end_first_phase(4 * SECOND);
        let mut found = Vec::new();
        while let Some(due) = schedule.due() {
            found.push(due);
            schedule.take();
        }
        let expected: Vec<i64> = [3 * SECOND].into_iter().chain((0..20).map(|n| 4 * SECOND + n * SECOND / 2)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_past_is_counted() {
        let phase = Phase { rate: Some(10.0), for_ns: SECOND, warm_up: false };
        let mut schedule = Schedule::new(&[phase], 0, 1.0, (0, 1), None);
        assert_eq!((schedule.pass(SECOND / 2), schedule.due()), (5, Some(SECOND / 2)));
        assert_eq!((schedule.pass(i64::MAX), schedule.due()), (5, None));
    }
}
