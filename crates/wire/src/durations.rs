//! Times between packets: their distribution, their sum and the longest of them.

use leadline_histogram::Times;

/// Counts of times.
#[derive(Clone)]
pub struct Durations {
    times: Times,
    sum: u128,
    most: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Durations { times: Times::of_any_length(), sum: 0, most: 0 }
    }
}

impl Durations {
    /// One time; a negative one counts as none at all.
    pub fn add(&mut self, ns: i64) {
        let ns = ns.max(0);
        self.times.record(ns);
        self.sum += u128::from(ns as u64);
        self.most = self.most.max(ns as u64);
    }

    /// How many.
    pub fn total(&self) -> u64 {
        self.times.count()
    }

    /// All of them together, exactly.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The longest, exactly.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The time that a share of them does not exceed; 0 of none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.times.quantile(share).unwrap_or(0).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_and_longest_are_exact_and_quantiles_to_three_digits() {
        let mut times = Durations::default();
        assert_eq!((times.quantile(0.5), times.total()), (0, 0));
        times.add(-5);
        (1..10_000).for_each(|us| times.add(us * 1000 + 1));
        for (share, exact) in [(0.5, 4_999_001.0), (0.99, 9_899_001.0), (0.0005, 4_001.0)] {
            let found = times.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() <= 0.001, "{share}: {found}");
        }
        assert_eq!((times.quantile(0.0), times.quantile(1.0)), (0, 9_999_001));
        assert_eq!((times.total(), times.sum(), times.most()), (10_000, 49_995_009_999, 9_999_001));
    }
}
