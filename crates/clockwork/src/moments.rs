//! When passes are due that look at something at a steady rate.

/// One pass in each period, at a moment of it that is drawn anew each time. Equal distances would always meet a server in the same phase
/// of whatever else goes by the clock: its own timers, other samplers, and the scheduler, whose tick (4 ms on many hosts) divides round
/// periods. Then what is sampled is not what there is: 18 % more active time were seen so at 100 Hz than there was.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    start: i64,
    period_ns: i64,
}

impl Moments {
    /// From `start` (ns on CLOCK_MONOTONIC) on.
    pub fn new(start: i64, period_ns: i64) -> Moments {
        Moments { start, period_ns: period_ns.max(1) }
    }

    /// When the pass of period `number` is due, ns on CLOCK_MONOTONIC.
    pub fn due(&self, number: i64) -> i64 {
        self.start + number * self.period_ns + (mixed(self.start as u64 ^ number as u64) % self.period_ns as u64) as i64
    }

    /// The period of the last pass that is due by now; -1 before the first.
    pub fn due_by(&self, now: i64) -> i64 {
        let number = (now - self.start).div_euclid(self.period_ns);
        if self.due(number) > now {
            number - 1
        } else {
            number
        }
    }
}

/// One step of the generator splitmix64: neighbouring numbers give values that have nothing to do with each other.
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_one_moment_and_all_phases_are_met_alike() {
        let moments = Moments::new(1_000_000_007, 10_000_000);
        let mut phases = [0u32; 8];
        for number in 0..80_000 {
            let due = moments.due(number);
            assert_eq!((due - 1_000_000_007) / 10_000_000, number);
            phases[(due % 4_000_000 / 500_000) as usize] += 1;
        }
        // 10,000 each; five standard deviations are 470
        assert!(phases.iter().all(|&n| n.abs_diff(10_000) < 470), "{phases:?}");
    }

    #[test]
    fn the_last_moment_due_is_found() {
        let moments = Moments::new(500, 1000);
        assert_eq!(moments.due_by(499), -1);
        for number in 0..100 {
            let due = moments.due(number);
            assert_eq!((moments.due_by(due - 1), moments.due_by(due)), (number - 1, number));
        }
    }
}
