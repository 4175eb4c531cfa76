//! How many passes saw a session wait for a lock since locks were last looked at: the time that a row of `lock_wait` stands for.

use std::collections::HashMap;

/// A wait that no look saw within this time is given to no lock. Looks are at most a second apart.
const KEPT_NS: i64 = 2_000_000_000;

/// Passes by waiter (address of its PGPROC) and kind of lock (wait event). What no look saw goes to the next look at the same waiter: one
/// that waits again and again for moments is then counted in full.
#[derive(Debug, Default)]
pub struct LockPasses {
    counted: HashMap<(u64, u32), (i64, i64)>,
}

impl LockPasses {
    /// A pass at `ts` saw this wait.
    pub fn count(&mut self, ts: i64, proc: u64, code: u32) {
        let (passes, last) = self.counted.entry((proc, code)).or_insert((0, ts));
        if ts - *last > KEPT_NS {
            *passes = 0;
        }
        (*passes, *last) = (*passes + 1, ts);
    }

    /// A look saw whom this waiter waits for: how many passes that stands for. They are not counted again.
    pub fn take(&mut self, proc: u64, code: u32) -> i64 {
        self.counted.remove(&(proc, code)).map_or(0, |(passes, _)| passes)
    }

    /// Forgets waits that ended long ago.
    pub fn forget(&mut self, ts: i64) {
        self.counted.retain(|_, (_, last)| ts - *last <= KEPT_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_is_given_to_one_look() {
        let mut passes = LockPasses::default();
        for ts in 0..7 {
            passes.count(ts, 1, 5);
        }
        passes.count(6, 1, 6);
        passes.count(6, 2, 5);
        assert_eq!((passes.take(1, 5), passes.take(1, 5)), (7, 0));
        assert_eq!((passes.take(1, 6), passes.take(2, 5)), (1, 1));
    }

    #[test]
    fn a_wait_that_no_look_saw_counts_only_for_a_look_soon_after() {
        let mut passes = LockPasses::default();
        passes.count(0, 1, 5);
        passes.count(KEPT_NS, 1, 5);
        passes.count(3 * KEPT_NS, 1, 5);
        passes.count(0, 2, 5);
        passes.forget(3 * KEPT_NS);
        assert_eq!((passes.take(1, 5), passes.take(2, 5)), (1, 0));
    }
}
