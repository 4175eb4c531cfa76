//! Terminals: people who key in what they want, wait for the answer, and think. There may be many more of them than connections: the clock
//! of a request runs while it waits for one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::mix::Mix;
use crate::random::Random;
use crate::schedule::Phase;

/// A thought takes at most so many times as long as they do on the average.
const LONGEST_THOUGHT: f64 = 10.0;

/// What each of a plan's terminals does.
#[derive(Debug, Clone, Default)]
pub struct TerminalPlan {
    /// Of all threads.
    pub count: usize,
    /// By script: seconds of keying in before it, and of thinking after it on the average.
    pub seconds: Vec<(f64, f64)>,
}

/// The terminals of one thread.
#[derive(Debug)]
pub(crate) struct Terminals {
    /// When each has keyed in its request.
    keyed: BinaryHeap<Reverse<(i64, usize)>>,
    /// By terminal of this thread: what it asks for, or asked for last.
    scripts: Vec<usize>,
    seconds: Vec<(f64, f64)>,
    mix: Mix,
    random: Random,
    /// Number of the first, and the distance to the next.
    first: usize,
    step: usize,
    /// Of the phases.
    ends: Vec<i64>,
}

impl Terminals {
    /// Of the thread of this number, among so many. They begin by thinking, so that they do not all come at once.
    pub(crate) fn new(
        plan: &TerminalPlan,
        phases: &[Phase],
        begins: i64,
        (number, threads): (usize, usize),
        mix: Mix,
        random: Random,
    ) -> Terminals {
        let ends = phases.iter().scan(begins, |at, phase| {
            *at += phase.for_ns;
            Some(*at)
        });
        let count = (plan.count + threads - 1 - number) / threads;
        let mut terminals = Terminals {
            keyed: BinaryHeap::new(),
            scripts: Vec::new(),
            seconds: plan.seconds.clone(),
            mix,
            random,
            first: number,
            step: threads,
            ends: ends.collect(),
        };
        for at in 0..count {
            let script = terminals.mix.draw();
            terminals.scripts.push(script);
            terminals.answered(terminals.first + at * threads, begins);
        }
        terminals
    }

    /// The next moment at which one has keyed in its request, within the phases.
    pub(crate) fn due(&self) -> Option<i64> {
        let Reverse((due, _)) = self.keyed.peek()?;
        (due < self.ends.last()?).then_some(*due)
    }

    /// The phase of that moment.
    pub(crate) fn phase(&self) -> usize {
        let due = self.due().unwrap_or(i64::MAX);
        self.ends.iter().filter(|end| **end <= due).count()
    }

    /// See `Dues`.
    pub(crate) fn end_first_phase(&mut self, ends: i64) {
        let saved = self.ends.first().map_or(0, |end| end - ends);
        self.ends.iter_mut().for_each(|end| *end -= saved);
    }

    /// Takes the request: of which terminal, and which script.
    pub(crate) fn take(&mut self) -> Option<(usize, usize)> {
        let Reverse((_, at)) = self.keyed.pop()?;
        Some((self.first + at * self.step, self.scripts[at]))
    }

    /// A terminal has its answer, well or not: it thinks, and keys in the next request.
    pub(crate) fn answered(&mut self, terminal: usize, now: i64) {
        let at = (terminal - self.first) / self.step;
        let (_, think) = self.seconds[self.scripts[at]];
        let thought = self.random.wait(think).min(think * LONGEST_THOUGHT);
        let script = self.mix.draw();
        self.scripts[at] = script;
        let keying = self.seconds[script].0;
        self.keyed.push(Reverse((now + ((thought + keying) * 1e9) as i64, at)));
    }

    /// How many have keyed in a request before this moment that nobody took.
    pub(crate) fn waiting(&self, until: i64) -> u64 {
        self.keyed.iter().filter(|Reverse((due, _))| *due < until).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn terminals(count: usize, seconds: &[(f64, f64)], weights: &[u32], threads: (usize, usize)) -> Terminals {
        let plan = TerminalPlan { count, seconds: seconds.to_vec() };
        let phase = Phase { rate: None, for_ns: 1_000_000 * SECOND, warm_up: false };
        let mix = Mix::new(weights.to_vec(), Random::new(1));
        Terminals::new(&plan, &[phase, phase], 0, threads, mix, Random::new(2))
    }

    #[test]
    fn a_cycle_is_keying_and_thinking_and_the_answer() {
        let mut all = terminals(10, &[(18.0, 12.0), (3.0, 12.0)], &[1, 1], (0, 1));
        let (mut last, mut taken) = (0, 0);
        while let Some(due) = all.due().filter(|due| *due < 500_000 * SECOND) {
            assert!(due >= last);
            last = due;
            let (terminal, _) = all.take().unwrap();
            all.answered(terminal, due + SECOND);
            taken += 1;
        }
        // 10 terminals, each (18 + 3) / 2 + 12 s and a second for the answer.
        let expected = 10.0 * 500_000.0 / 23.5;
        assert!((f64::from(taken) / expected - 1.0).abs() < 0.01, "{taken} {expected}");
    }

    #[test]
    fn one_that_waits_for_its_answer_asks_for_nothing() {
        let mut all = terminals(3, &[(1.0, 1.0)], &[1], (1, 2));
        assert_eq!(all.take(), Some((1, 0)), "numbers of threads lie between each other");
        assert_eq!((all.take(), all.due()), (None, None));
        all.answered(1, 1_500_000 * SECOND);
        assert_eq!(all.phase(), 1);
        assert_eq!((all.waiting(1_500_000 * SECOND), all.waiting(1_600_000 * SECOND)), (0, 1));
    }
}
