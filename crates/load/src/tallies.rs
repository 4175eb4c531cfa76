//! What a thread counts, kept apart by phase: a transaction counts in the phase in which it was due, also if it ends after it.

use crate::tally::{Part, Second, AFTER};

/// What is counted for transactions of one phase.
pub(crate) struct Tally {
    pub(crate) second: Second,
    pub(crate) part: Part,
}

/// The phase that runs, and those before it that have transactions left.
pub(crate) struct Tallies {
    pub(crate) phase: usize,
    pub(crate) now: Tally,
    late: Vec<Tally>,
    /// By phase: transactions under way.
    under_way: Vec<usize>,
    lengths: Vec<usize>,
}

impl Tallies {
    /// lengths: commands of each script.
    pub(crate) fn new(phases: usize, lengths: Vec<usize>, begins_ns: i64) -> Tallies {
        let now = Tally { second: Second::new(0, 0, begins_ns), part: Part::new(0, &lengths) };
        Tallies { phase: 0, now, late: Vec::new(), under_way: vec![0; phases + 1], lengths }
    }

    /// Of a phase. Once nothing of it is left, what comes counts in the phase that runs.
    pub(crate) fn of(&mut self, phase: usize) -> &mut Tally {
        if phase == self.phase {
            return &mut self.now;
        }
        self.late.iter_mut().find(|tally| tally.second.phase == phase).unwrap_or(&mut self.now)
    }

    pub(crate) fn begun(&mut self, phase: usize) {
        self.under_way[phase] += 1;
    }

    pub(crate) fn ended(&mut self, phase: usize) {
        self.under_way[phase] -= 1;
    }

    /// The second that has passed; the next one of this phase begins.
    pub(crate) fn next_second(&mut self, at: i64) -> Second {
        let next = Second::new(self.phase, self.now.second.number + 1, at);
        std::mem::replace(&mut self.now.second, next)
    }

    /// The last second of the phase; the next phase begins.
    pub(crate) fn next_phase(&mut self, at: i64) -> Second {
        let next = Tally { second: Second::new(self.phase + 1, 0, at), part: Part::new(self.phase + 1, &self.lengths) };
        let Tally { second, part } = std::mem::replace(&mut self.now, next);
        self.late.push(Tally { second: Second::new(self.phase, AFTER, at), part });
        self.phase += 1;
        second
    }

    /// Phases that have passed and of which no transaction is left. due: the phase of the next one that is to begin.
    pub(crate) fn settled(&mut self, due: usize) -> Vec<Tally> {
        if self.late.is_empty() {
            return Vec::new();
        }
        let under_way = &self.under_way;
        self.late.extract_if(.., |tally| tally.second.phase < due && under_way[tally.second.phase] == 0).collect()
    }

    /// At the end of the run: all that is left. What came after the last phase belongs to it.
    pub(crate) fn rest(self) -> Vec<Tally> {
        let mut all = self.late;
        match all.iter_mut().find(|tally| tally.second.phase + 1 == self.under_way.len() - 1) {
            Some(last) if self.phase + 1 == self.under_way.len() => {
                last.second.add(&self.now.second);
                last.part.add(&self.now.part);
            }
            _ => all.push(self.now),
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_when_a_phase_ends_counts_in_it() {
        let mut tallies = Tallies::new(2, vec![1], 0);
        tallies.begun(0);
        assert_eq!(tallies.next_second(10).number, 0);
        assert_eq!(tallies.next_phase(20).number, 1);
        tallies.begun(1);
        tallies.of(0).second.done += 1;
        tallies.of(1).second.done += 5;
        assert!(tallies.settled(1).is_empty(), "one is under way");
        tallies.ended(0);
        assert!(tallies.settled(0).is_empty(), "one that was due in it waits for a client");
        let settled = tallies.settled(1);
        assert_eq!(settled.len(), 1);
        assert_eq!((settled[0].second.phase, settled[0].second.number, settled[0].second.done), (0, AFTER, 1));
        assert!(tallies.settled(1).is_empty());
    }

    #[test]
    fn what_comes_after_the_last_phase_belongs_to_it() {
        let mut tallies = Tallies::new(1, vec![1], 0);
        tallies.begun(0);
        tallies.next_phase(10);
        tallies.of(0).second.done += 1;
        tallies.now.part.error("57P01", "an idle client lost its connection", false);
        let rest = tallies.rest();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].second.phase, rest[0].second.done, rest[0].part.errors.len()), (0, 1, 1));
        // A run that is interrupted before has only the phase that runs.
        assert_eq!(Tallies::new(2, vec![1], 0).rest()[0].second.phase, 0);
    }
}
