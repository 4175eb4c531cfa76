//! How long data waited that was sent again: from its first sending to its acknowledgement.

use std::collections::VecDeque;

/// Places of a stream whose time of sending is known; of more, neighbours share the earlier time.
const MOST: usize = 32;

/// One direction.
#[derive(Debug, Default)]
struct Sending {
    /// Data that is not acknowledged: where it ends, and when it was sent first.
    unacknowledged: VecDeque<(u32, i64)>,
    /// Data that was sent again and is not acknowledged.
    again: Option<Again>,
}

#[derive(Debug, Clone, Copy)]
struct Again {
    /// When the first of it was sent first.
    since: i64,
    /// When the last of it was sent again.
    last: i64,
    /// Where it ends.
    end: u32,
}

/// Both directions. Times at which both waited count once, so that the sum is never longer than the connection.
#[derive(Debug, Default)]
pub struct Waits {
    sides: [Sending; 2],
    /// Since when one of them waits.
    since: Option<i64>,
    /// All waiting before is in the sum.
    summed_to: Option<i64>,
    /// The sum.
    pub ns: i64,
}

fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

impl Waits {
    /// Data up to `end` was sent for the first time.
    pub fn sent(&mut self, side: usize, ts: i64, end: u32) {
        let places = &mut self.sides[side].unacknowledged;
        if places.back().is_some_and(|(last, _)| !is_behind(end, *last)) {
            return;
        }
        if places.len() == MOST {
            let halves = places.iter().zip(places.iter().skip(1)).step_by(2);
            *places = halves.map(|((_, ts), (end, _))| (*end, *ts)).collect();
        }
        places.push_back((end, ts));
    }

    /// Data from `seq` to `end` was sent again. Without an answer of the other end no acknowledgement can be waited for.
    pub fn sent_again(&mut self, side: usize, ts: i64, seq: u32, end: u32, has_answers: bool) {
        let sent = self.sides[side].unacknowledged.iter().find(|(end, _)| is_behind(*end, seq));
        let Some((_, first)) = sent.copied() else { return }; // acknowledged long ago: nobody waited for it
        self.lost(side, first, ts, end);
        if !has_answers {
            self.sides[side].again = None;
            self.settle(ts);
        }
    }

    /// Data up to `end` came late: it has been missing since `first`.
    pub fn lost(&mut self, side: usize, first: i64, ts: i64, end: u32) {
        let again = self.sides[side].again.get_or_insert(Again { since: first, last: ts, end });
        again.since = again.since.min(first);
        again.last = again.last.max(ts);
        if is_behind(end, again.end) {
            again.end = end;
        }
        let since = again.since;
        self.since = Some(self.since.map_or(since, |before| before.min(since)));
    }

    /// The other end has everything before `ack`.
    pub fn acknowledged(&mut self, side: usize, ts: i64, ack: u32) {
        let Sending { unacknowledged, again } = &mut self.sides[side];
        while unacknowledged.front().is_some_and(|(end, _)| !is_behind(*end, ack)) {
            unacknowledged.pop_front();
        }
        if again.is_some_and(|again| !is_behind(again.end, ack)) {
            *again = None;
            self.settle(ts);
        }
    }

    /// The end of the connection: what is not acknowledged has waited at least until it was sent again.
    pub fn finish(&mut self) {
        let last = self.sides.iter().filter_map(|side| side.again.map(|again| again.last)).max();
        self.sides = Default::default();
        if let Some(last) = last {
            self.settle(last);
        }
    }

    /// Adds the time up to `ts` if nothing waits any more.
    fn settle(&mut self, ts: i64) {
        if self.sides.iter().any(|side| side.again.is_some()) {
            return;
        }
        if let Some(since) = self.since.take() {
            let from = self.summed_to.map_or(since, |to| to.max(since));
            self.ns = self.ns.saturating_add(ts.saturating_sub(from).max(0));
            self.summed_to = Some(self.summed_to.map_or(ts, |to| to.max(ts)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_waits_from_its_first_sending_to_its_acknowledgement() {
        let mut waits = Waits::default();
        waits.sent(0, 100, 10);
        waits.sent(0, 110, 20);
        waits.sent_again(0, 300, 0, 10, true);
        waits.sent_again(0, 310, 10, 20, true); // the same wait
        waits.acknowledged(0, 320, 10);
        assert_eq!(waits.ns, 0);
        waits.acknowledged(0, 330, 20);
        assert_eq!(waits.ns, 230);
        waits.sent_again(0, 400, 10, 20, true); // was acknowledged
        waits.finish();
        assert_eq!(waits.ns, 230);
    }

    #[test]
    fn two_directions_that_wait_at_a_time_count_once() {
        let mut waits = Waits::default();
        waits.sent(0, 100, 10);
        waits.sent(1, 150, 10);
        waits.sent_again(0, 300, 0, 10, true);
        waits.sent_again(1, 350, 0, 10, true);
        waits.acknowledged(0, 400, 10);
        waits.acknowledged(1, 450, 10);
        assert_eq!(waits.ns, 350);
    }

    #[test]
    fn without_an_acknowledgement_the_last_sending_ends_the_wait() {
        for has_answers in [true, false] {
            let mut waits = Waits::default();
            waits.sent(0, 100, 10);
            waits.sent_again(0, 300, 0, 10, has_answers);
            waits.finish();
            assert_eq!(waits.ns, 200);
        }
    }

    #[test]
    fn much_data_without_acknowledgement_takes_bounded_memory() {
        let mut waits = Waits::default();
        (1..=100_000u32).for_each(|n| waits.sent(0, i64::from(n), n));
        assert!(waits.sides[0].unacknowledged.len() <= MOST);
        waits.sent_again(0, 200_000, 99_999, 100_000, true);
        waits.acknowledged(0, 200_001, 100_000);
        assert!((100_001..=200_000).contains(&waits.ns), "{}", waits.ns);
    }
}
