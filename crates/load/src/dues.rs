//! What makes the transactions of a thread due: a rate, or terminals.

use crate::schedule::Schedule;
use crate::terminals::Terminals;

/// What makes the transactions of one thread due.
#[derive(Debug)]
pub(crate) enum Dues {
    Rate(Schedule),
    Terminals(Terminals),
}

impl Dues {
    /// The next moment; None when there is none any more, or none that is known yet.
    pub(crate) fn due(&mut self) -> Option<i64> {
        match self {
            Dues::Rate(schedule) => schedule.due(),
            Dues::Terminals(terminals) => terminals.due(),
        }
    }

    /// The phase of that moment; after the last one, their number.
    pub(crate) fn phase(&self) -> usize {
        match self {
            Dues::Rate(schedule) => schedule.phase(),
            Dues::Terminals(terminals) => terminals.phase(),
        }
    }

    /// Takes it: of which terminal, and which script, where that is decided.
    pub(crate) fn take(&mut self) -> Option<(usize, usize)> {
        match self {
            Dues::Rate(schedule) => {
                schedule.take();
                None
            }
            Dues::Terminals(terminals) => terminals.take(),
        }
    }

    /// The first phase ends at this moment, before its time, and the others are so much earlier.
    pub(crate) fn end_first_phase(&mut self, ends: i64) {
        match self {
            Dues::Rate(schedule) => schedule.end_first_phase(ends),
            Dues::Terminals(terminals) => terminals.end_first_phase(ends),
        }
    }

    /// A terminal has its answer.
    pub(crate) fn answered(&mut self, terminal: usize, now: i64) {
        if let Dues::Terminals(terminals) = self {
            terminals.answered(terminal, now);
        }
    }

    /// How many were due before this moment and are not taken.
    pub(crate) fn left(&mut self, until: i64) -> u64 {
        match self {
            Dues::Rate(schedule) => schedule.pass(until),
            Dues::Terminals(terminals) => terminals.waiting(until),
        }
    }
}
