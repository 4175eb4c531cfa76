//! When the segments of a capture are finished.

use crate::SECOND;

/// Segments of a long recording get longer, up to a thirtieth of it,
const GROWTH: i64 = 30;
/// ... and never longer than this: what a killed recorder may lose.
const LONGEST_NS: i64 = 30 * SECOND;

/// How long the present segment may get: short at the start, so that a killed recorder leaves something, and longer later,
/// because each segment of each table costs some CPU to write and some to read.
#[derive(Debug, Clone, Copy)]
pub struct SegmentPolicy {
    start: i64,
    rolled: i64,
    interval_ns: i64,
    growing: bool,
}

impl SegmentPolicy {
    /// `interval_ns`: how long rows may wait in memory; `growing`: longer as the recording gets longer.
    pub fn new(start: i64, interval_ns: i64, growing: bool) -> Self {
        SegmentPolicy { start, rolled: start, interval_ns, growing }
    }

    /// Whether the segments are to be finished now; then the next one begins. A little before the time counts: who asks once a second is
    /// not equally late each time, and would else come just too early for every other segment.
    pub fn is_due(&mut self, now: i64) -> bool {
        let length = self.length_ns(now - self.start);
        let due = now - self.rolled >= length - length / 20;
        if due {
            self.rolled = now;
        }
        due
    }

    fn length_ns(&self, elapsed_ns: i64) -> i64 {
        let steady = (elapsed_ns / 2).clamp(SECOND.min(self.interval_ns), self.interval_ns);
        if self.growing {
            steady.max((elapsed_ns / GROWTH).min(LONGEST_NS))
        } else {
            steady
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_start_short_and_grow_with_the_recording() {
        let of =
            |elapsed_s: i64, growing| SegmentPolicy::new(0, 5 * SECOND, growing).length_ns(elapsed_s * SECOND) / SECOND;
        assert_eq!([0, 3, 6, 10, 100].map(|s| of(s, true)), [1, 1, 3, 5, 5]);
        assert_eq!([300, 3600].map(|s| of(s, true)), [10, 30]);
        assert_eq!([300, 3600].map(|s| of(s, false)), [5, 5]);
        assert_eq!(SegmentPolicy::new(0, SECOND / 5, false).length_ns(0), SECOND / 5);
    }

    #[test]
    fn a_segment_is_due_once() {
        let mut policy = SegmentPolicy::new(7, 5 * SECOND, false);
        assert!(!policy.is_due(8));
        assert!(policy.is_due(7 + SECOND));
        assert!(!policy.is_due(8 + SECOND));
        assert!(policy.is_due(7 + 2 * SECOND - SECOND / 100), "this time it was asked a little earlier");
    }
}
