//! What a client of PostgreSQL asked for and the server has not answered, in the order in which the server reads it.
//!
//! The server ends each Query and each Sync with one ReadyForQuery, with one exception: in COPY FROM STDIN it ignores Sync and Flush until
//! the data ends (CopyDone, CopyFail). Drivers send that Sync together with Execute, when they cannot know that the statement is a COPY.

use std::collections::VecDeque;

use super::frame::Lost;

/// Steps that are followed; equal ones beside each other count as one.
const MOST_STEPS: usize = 1 << 16;

/// A message of the client that changes what the server does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Query or FunctionCall: run, and ended with ReadyForQuery.
    Query,
    /// A portal is run; nothing ends with it.
    Execute,
    /// Ended with ReadyForQuery.
    Sync,
    /// CopyDone or CopyFail.
    CopyEnd,
}

/// Steps that wait.
#[derive(Debug, Default)]
pub struct Asked {
    steps: VecDeque<(Step, u32)>,
    /// ReadyForQuery that the server owes.
    owed: u32,
    /// The server takes data of a COPY, and its end was not seen.
    copying: bool,
    /// Data of a COPY were sent behind the last statement, before the server said that it takes them.
    ahead: bool,
    /// A statement was answered since the last ReadyForQuery.
    worked: bool,
}

impl Asked {
    /// ReadyForQuery that the server owes.
    pub fn owed(&self) -> u32 {
        self.owed
    }

    /// The server takes data and ignores Sync and Flush.
    pub fn is_copying(&self) -> bool {
        self.copying
    }

    /// The client waits until the server takes data: it sent none before.
    pub fn is_copy_awaited(&self) -> bool {
        self.copying && !self.ahead
    }

    /// The client sends data of a COPY.
    pub fn data(&mut self) {
        self.ahead |= !self.copying;
    }

    /// Nothing waits.
    pub fn is_idle(&self) -> bool {
        self.steps.is_empty() && !self.copying
    }

    /// Nothing is known of what waits.
    pub fn forget(&mut self) {
        *self = Asked::default();
    }

    /// The client sends this.
    ///
    /// # Errors
    /// More waits than is followed.
    pub fn add(&mut self, step: Step) -> Result<(), Lost> {
        if self.copying && step == Step::CopyEnd {
            self.copying = false;
            return Ok(());
        }
        if self.copying && step == Step::Sync || self.steps.is_empty() && step == Step::CopyEnd {
            return Ok(());
        }
        self.ahead &= !matches!(step, Step::Query | Step::Execute);
        let is_full = self.steps.len() >= MOST_STEPS;
        match self.steps.back_mut() {
            Some((last, times)) if *last == step => *times = times.saturating_add(1),
            _ if is_full => return Err(Lost),
            _ => self.steps.push_back((step, 1)),
        }
        self.owed = self.owed.saturating_add(u32::from(ends_ready(step)));
        Ok(())
    }

    /// The server ended a statement, or gave the part of its rows that was asked for.
    pub fn executed(&mut self) {
        if self.steps.front().is_some_and(|(step, _)| *step == Step::Execute) {
            self.pop();
            self.worked = true;
        }
    }

    /// The server begins to take data: what was sent behind the statement, up to the end of the data, it reads as part of the COPY.
    pub fn copy_in(&mut self) {
        // The statement itself stays: it is the first that waits.
        let end = self.steps.iter().skip(1).position(|(step, _)| *step == Step::CopyEnd).map(|at| at + 1);
        self.copying = end.is_none();
        let mut place = 0;
        let mut ignored = 0;
        self.steps.retain(|(step, times)| {
            let is_ignored = place > 0 && *step == Step::Sync && end.is_none_or(|end| place < end);
            place += 1;
            ignored += if is_ignored { *times } else { 0 };
            !is_ignored
        });
        self.owed = self.owed.saturating_sub(ignored);
        if end.is_some() {
            self.drop_end();
        }
    }

    /// The end of the data belongs to the COPY that has begun.
    fn drop_end(&mut self) {
        if let Some(place) = self.steps.iter().position(|(step, _)| *step == Step::CopyEnd) {
            match &mut self.steps[place].1 {
                1 => drop(self.steps.remove(place)),
                times => *times -= 1,
            }
        }
    }

    /// The server says that something failed: a COPY ends with it.
    pub fn failed(&mut self) {
        self.copying = false;
    }

    /// The server is ready for the next query. Whether it ran a statement since it last was.
    pub fn ready(&mut self) -> bool {
        self.copying = false;
        while let Some((step, _)) = self.steps.front().copied() {
            self.pop();
            self.worked |= matches!(step, Step::Query | Step::Execute);
            if ends_ready(step) {
                self.owed = self.owed.saturating_sub(1);
                break;
            }
        }
        std::mem::take(&mut self.worked)
    }

    fn pop(&mut self) {
        match self.steps.front_mut() {
            Some((_, times)) if *times > 1 => *times -= 1,
            _ => drop(self.steps.pop_front()),
        }
    }
}

fn ends_ready(step: Step) -> bool {
    matches!(step, Step::Query | Step::Sync)
}

#[cfg(test)]
mod tests {
    use super::{Asked, Step};

    fn asked(steps: &[Step]) -> Asked {
        let mut asked = Asked::default();
        steps.iter().for_each(|step| asked.add(*step).unwrap());
        asked
    }

    #[test]
    fn a_sync_that_the_server_reads_within_a_copy_is_not_answered() {
        use Step::{CopyEnd, Execute, Sync};
        // The end of the data follows later, or was sent already.
        let mut later = asked(&[Execute, Sync]);
        later.copy_in();
        assert_eq!((later.owed(), later.is_copying()), (0, true));
        later.add(Sync).unwrap();
        later.add(CopyEnd).unwrap();
        later.add(Sync).unwrap();
        assert_eq!((later.owed(), later.is_copying()), (1, false));
        later.executed();
        assert!(later.ready());
        assert_eq!(later.owed(), 0);
        let mut sent = asked(&[Execute, Sync, Sync, CopyEnd, Sync, Execute, Sync]);
        sent.copy_in();
        assert_eq!((sent.owed(), sent.is_copying()), (2, false));
        assert!(sent.ready() && sent.ready());
        assert_eq!(sent.owed(), 0);
    }

    #[test]
    fn a_copy_that_fails_counts_the_syncs_that_follow() {
        use Step::{CopyEnd, Execute, Query, Sync};
        // Refused at once: the data that was sent all the same is dropped, and each Sync is answered.
        let mut refused = asked(&[Execute, Sync, CopyEnd, Sync]);
        refused.failed();
        assert!(refused.ready());
        assert!(!refused.ready());
        assert_eq!(refused.owed(), 0);
        let mut midway = asked(&[Query]);
        midway.copy_in();
        midway.failed();
        midway.add(CopyEnd).unwrap();
        assert_eq!(midway.owed(), 1);
        assert!(midway.ready());
    }

    #[test]
    fn only_what_was_run_counts_as_work() {
        use Step::{Execute, Query, Sync};
        let mut a = asked(&[Sync, Execute, Execute, Sync, Query, Sync]);
        assert!(!a.ready());
        a.executed();
        a.executed();
        assert!(a.ready());
        assert!(a.ready());
        assert!(!a.ready());
    }

    #[test]
    fn what_waits_takes_bounded_room() {
        let mut asked = Asked::default();
        let added = (0..1_000_000).map(|n| asked.add(if n % 2 == 0 { Step::Execute } else { Step::Sync }));
        assert!(added.filter(Result::is_err).count() > 0);
        assert!(asked.steps.len() <= super::MOST_STEPS);
    }
}
