//! One direction of a connection: when each part is due at the other end.

use std::collections::VecDeque;

use crate::delay::ring::Ring;
use crate::delay::Plan;

const SECOND: f64 = 1e9;

/// Bytes that arrived together.
pub(super) struct Part {
    pub(super) arrived_ns: i64,
    pub(super) due_ns: i64,
    pub(super) size: usize,
    /// Bytes of it that are still to be written.
    pub(super) left: usize,
    /// The receiver took it late: what it was delayed more is not our doing.
    pub(super) held_back: bool,
}

/// Bytes under way in one direction.
pub(super) struct Pipe {
    pub(super) ring: Ring,
    pub(super) parts: VecDeque<Part>,
    /// When the other side hears of bytes that were delivered, and how many: with a window only.
    acks: VecDeque<(i64, usize)>,
    in_flight: usize,
    /// When the way last opened after a full window: what had come before sets out then.
    opened_ns: i64,
    /// So much is the sender ahead, until it hears of the other end: its connection was there without the handshake of a long line.
    ahead_ns: i64,
    heard_ns: Option<i64>,
    /// When the link has sent all that it has.
    link_free_ns: i64,
    last_due_ns: i64,
    /// When the end of the stream is due.
    pub(super) end_due_ns: Option<i64>,
    pub(super) end_sent: bool,
    random: u64,
}

impl Pipe {
    /// ahead_ns: what the handshake would have taken.
    pub(super) fn new(plan: &Plan, seed: u64, ahead_ns: i64) -> Pipe {
        Pipe {
            ring: Ring::new(plan.buffer),
            parts: VecDeque::new(),
            acks: VecDeque::new(),
            in_flight: 0,
            opened_ns: i64::MIN,
            ahead_ns,
            heard_ns: None,
            link_free_ns: 0,
            last_due_ns: 0,
            end_due_ns: None,
            end_sent: false,
            random: seed | 1,
        }
    }

    /// How many bytes may be read now.
    pub(super) fn room(&mut self, plan: &Plan, now: i64) -> usize {
        while let Some(&(due, n)) = self.acks.front().filter(|(due, _)| *due <= now) {
            self.acks.pop_front();
            if plan.window.is_some_and(|window| self.in_flight >= window) {
                self.opened_ns = due;
            }
            self.in_flight -= n;
        }
        let window = plan.window.map_or(usize::MAX, |window| window.saturating_sub(self.in_flight));
        self.ring.room().min(window).min(plan.quantum())
    }

    /// Bytes were read into the ring: when they are due.
    pub(super) fn arrived(&mut self, n: usize, at_ns: i64, plan: &Plan) {
        self.ring.filled(n);
        let at_ns = self.set_out(at_ns);
        let mut sent = at_ns;
        if let Some(rate) = plan.rate_bit {
            sent = sent.max(self.link_free_ns) + (n as f64 * 8.0 / rate * SECOND) as i64;
            self.link_free_ns = sent;
        }
        let jitter = self.jitter(plan.jitter_ns);
        let due_ns = self.later(sent + plan.one_way_ns + jitter);
        self.parts.push_back(Part { arrived_ns: at_ns, due_ns, size: n, left: n, held_back: false });
        if plan.window.is_some() {
            self.in_flight += n;
        }
    }

    /// The sender got the first bytes of the other end: what it sends from now on, it sends when it would on a long line.
    pub(super) fn heard(&mut self, now: i64) {
        self.heard_ns.get_or_insert(now);
    }

    /// When bytes that came now would have been sent on a long line.
    fn set_out(&self, at_ns: i64) -> i64 {
        let is_ahead = self.heard_ns.is_none_or(|heard| at_ns < heard);
        (if is_ahead { at_ns + self.ahead_ns } else { at_ns }).max(self.opened_ns)
    }

    /// The stream ended.
    pub(super) fn ended(&mut self, at_ns: i64, plan: &Plan) {
        self.end_due_ns = Some(self.later(self.set_out(at_ns) + plan.one_way_ns));
    }

    /// A part was delivered whole: its bytes leave the window when the sender hears of it.
    pub(super) fn delivered(&mut self, n: usize, now: i64, plan: &Plan) {
        if plan.window.is_some() {
            self.acks.push_back((now + plan.one_way_ns, n));
        }
    }

    /// The next moment at which something is to be done. `reads`: bytes would be read if the window let them.
    pub(super) fn next_ns(&self, reads: bool) -> i64 {
        let part = self.parts.front().map_or(i64::MAX, |part| part.due_ns);
        let end = self.end_due_ns.filter(|_| !self.end_sent && self.parts.is_empty()).unwrap_or(i64::MAX);
        let ack = self.acks.front().filter(|_| reads).map_or(i64::MAX, |(due, _)| *due);
        part.min(end).min(ack)
    }

    /// Nothing overtakes in a stream.
    fn later(&mut self, due: i64) -> i64 {
        self.last_due_ns = self.last_due_ns.max(due);
        self.last_due_ns
    }

    /// Evenly distributed from -jitter to +jitter: xorshift.
    fn jitter(&mut self, jitter_ns: i64) -> i64 {
        if jitter_ns == 0 {
            return 0;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % (2 * jitter_ns as u64 + 1)) as i64 - jitter_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn plan() -> Plan {
        Plan::new(Duration::from_millis(20))
    }

    fn dues(pipe: &Pipe) -> Vec<i64> {
        pipe.parts.iter().map(|part| part.due_ns).collect()
    }

    #[test]
    fn each_part_is_due_half_a_round_trip_after_it_came() {
        let mut pipe = Pipe::new(&plan(), 1, 0);
        for at in [100, 200, 9_000_000] {
            pipe.ring.free();
            pipe.arrived(10, at, &plan());
        }
        assert_eq!(dues(&pipe), [10_000_100, 10_000_200, 19_000_000]);
        assert_eq!(pipe.next_ns(true), 10_000_100);
    }

    #[test]
    fn what_a_client_sends_before_it_hears_the_server_takes_the_handshake_too_however_late_it_comes() {
        let mut pipe = Pipe::new(&plan(), 1, 20_000_000);
        for at in [100, 25_000_000, 70_000_000] {
            pipe.ring.free();
            pipe.arrived(10, at, &plan());
        }
        assert_eq!(dues(&pipe), [30_000_100, 55_000_000, 100_000_000]);
        assert_eq!(pipe.parts[0].arrived_ns, 20_000_100, "the handshake is no delay that was added");
        pipe.heard(110_000_000);
        pipe.heard(120_000_000); // the first time counts
        pipe.arrived(10, 109_999_999, &plan()); // sent before, read after
        pipe.arrived(10, 112_000_000, &plan());
        pipe.arrived(10, 150_000_000, &plan());
        assert_eq!(dues(&pipe)[3..], [139_999_999, 139_999_999, 160_000_000], "nothing overtakes");
        let mut empty = Pipe::new(&plan(), 1, 20_000_000);
        empty.ended(100, &plan());
        assert_eq!(empty.end_due_ns, Some(30_000_100));
    }

    #[test]
    fn a_rate_spreads_what_came_at_once() {
        let plan = Plan { rate_bit: Some(8e6), ..plan() }; // 1 byte in 1 us
        let mut pipe = Pipe::new(&plan, 1, 0);
        assert_eq!(pipe.room(&plan, 0), 1500, "parts are small, so that a rate is even");
        for _ in 0..3 {
            pipe.ring.free();
            pipe.arrived(1000, 0, &plan);
        }
        assert_eq!(dues(&pipe), [11_000_000, 12_000_000, 13_000_000]);
    }

    #[test]
    fn a_window_opens_when_the_sender_hears_of_the_delivery() {
        let plan = Plan { window: Some(1000), ..plan() };
        let mut pipe = Pipe::new(&plan, 1, 0);
        pipe.ring.free();
        pipe.arrived(1000, 0, &plan);
        assert_eq!(pipe.room(&plan, 9_999_999), 0);
        pipe.parts.clear();
        pipe.delivered(1000, 10_000_000, &plan);
        assert_eq!((pipe.room(&plan, 19_999_999), pipe.next_ns(true)), (0, 20_000_000));
        assert_eq!(pipe.room(&plan, 20_000_000), 1000);
        pipe.ring.free();
        pipe.arrived(1000, 5_000_000, &plan); // it came early, and waited for the window
        assert_eq!(dues(&pipe), [30_000_000]);
    }

    #[test]
    fn jitter_stays_in_its_bounds_and_turns_no_order_round() {
        let plan = Plan { jitter_ns: 5_000_000, ..plan() };
        let mut pipe = Pipe::new(&plan, 42, 0);
        let shifts: Vec<i64> = (0..10_000).map(|_| pipe.jitter(plan.jitter_ns)).collect();
        assert!(shifts.iter().all(|shift| shift.abs() <= 5_000_000));
        assert!(shifts.iter().min() < Some(&-4_900_000) && shifts.iter().max() > Some(&4_900_000));
        for at in 0..1000 {
            pipe.ring.free();
            pipe.arrived(1, at * 1000, &plan);
        }
        assert!(dues(&pipe).is_sorted());
    }
}
