//! Durations in an HDR histogram: three significant digits, so that any percentile is right within 0.1 %, and histograms of many threads,
//! seconds and runs can be added. While there are few values, percentiles are exact: 0.1 % of a long delay is more than what a proxy adds
//! to it by itself.

#![forbid(unsafe_code)]

use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;
use serde_json::{json, Value};

const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;
const FEW: usize = 1024;

/// Durations in nanoseconds.
#[derive(Clone)]
pub struct Times {
    histogram: Histogram<u64>,
    /// Every value, or, when it holds fewer than the histogram counts, nothing of use.
    few: Vec<u64>,
    shortest: u64,
    longest: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times::new()
    }
}

impl Times {
    /// From 1 ns to an hour: what is shorter or longer counts as that.
    pub fn new() -> Times {
        Times::within(1, LONGEST_NS)
    }

    /// Also of no time at all, and of any length: clocks of packets may not tell two moments apart, and connections idle for days.
    pub fn of_any_length() -> Times {
        Times::within(0, i64::MAX as u64)
    }

    fn within(shortest: u64, longest: u64) -> Times {
        let histogram = Histogram::new_with_bounds(1, longest, DIGITS);
        let histogram = histogram.expect("the bounds are constants that it takes");
        Times { histogram, few: Vec::new(), shortest, longest }
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, ns: i64) {
        let ns = (ns.max(0) as u64).clamp(self.shortest, self.longest);
        self.histogram.saturating_record(ns);
        if self.few.len() < FEW {
            self.few.push(ns);
        }
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Times) {
        let whole = self.is_exact() && other.is_exact() && self.few.len() + other.few.len() <= FEW;
        self.histogram.add(&other.histogram).expect("those that are added have the same bounds");
        if whole {
            self.few.extend_from_slice(&other.few);
        } else {
            self.few.truncate(0);
            self.few.shrink_to_fit();
        }
    }

    fn is_exact(&self) -> bool {
        self.few.len() as u64 == self.count()
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value below or at which this share lies; None without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        if self.count() == 0 {
            return None;
        }
        if !self.is_exact() {
            return Some(self.histogram.value_at_quantile(share));
        }
        let rank = (share * self.few.len() as f64).ceil() as usize;
        let mut values = self.few.clone();
        Some(*values.select_nth_unstable(rank.clamp(1, self.few.len()) - 1).1)
    }

    /// The largest; None without values.
    pub fn max(&self) -> Option<u64> {
        self.quantile(1.0)
    }

    /// Count, mean, least, percentiles and largest; null where there are no values.
    pub fn summary(&self) -> Value {
        let some = self.count() > 0;
        json!({
            "count": self.count(),
            "min_ns": some.then(|| self.histogram.min()),
            "mean_ns": some.then(|| self.histogram.mean()),
            "p50_ns": self.quantile(0.5),
            "p90_ns": self.quantile(0.9),
            "p99_ns": self.quantile(0.99),
            "p99_9_ns": self.quantile(0.999),
            "p99_99_ns": self.quantile(0.9999),
            "max_ns": self.max(),
        })
    }

    /// In the form `V2 compressed`, which the libraries of HdrHistogram in every language read.
    pub fn v2_compressed(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes).expect("a Vec takes all bytes");
        bytes
    }

    /// Buckets that hold values: least and largest value of each, and the count.
    pub fn buckets(&self) -> Vec<(u64, u64, u64)> {
        let of = |value: u64| (self.histogram.lowest_equivalent(value), self.histogram.highest_equivalent(value));
        self.histogram
            .iter_recorded()
            .map(|step| {
                let (low, high) = of(step.value_iterated_to());
                (low, high, step.count_at_value())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_values_are_right_to_three_digits() {
        let mut times = Times::new();
        (1..=10_000).for_each(|us| times.record(us * 1000));
        for (share, us) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.9999, 9_999.0)] {
            let found = times.quantile(share).unwrap() as f64 / 1000.0;
            assert!((found / us - 1.0).abs() < 0.001, "{share}: {found}");
        }
    }

    #[test]
    fn percentiles_of_few_values_are_exact_also_of_sums() {
        let (mut a, mut b) = (Times::new(), Times::new());
        [100_007_001, 100_000_003, 100_000_002].into_iter().for_each(|ns| a.record(ns));
        [100_000_001, 100_000_000].into_iter().for_each(|ns| b.record(ns));
        assert_eq!(
            (a.quantile(0.5), a.quantile(0.0), a.max()),
            (Some(100_000_003), Some(100_000_002), Some(100_007_001))
        );
        a.add(&b);
        assert_eq!((a.count(), a.quantile(0.5), a.quantile(0.2)), (5, Some(100_000_002), Some(100_000_000)));
    }

    #[test]
    fn times_of_any_length_keep_nothing_and_days() {
        let day = 86_400_000_000_000;
        let mut times = Times::of_any_length();
        for ns in [0, -1, day, i64::MAX] {
            times.record(ns);
        }
        assert_eq!(
            [0.5, 0.75, 1.0].map(|share| times.quantile(share)),
            [Some(0), Some(day as u64), Some(i64::MAX as u64)]
        );
        (0..FEW as i64).for_each(|_| times.record(day));
        assert!(times.quantile(0.5).unwrap().abs_diff(day as u64) <= day as u64 / 1000);
        assert_eq!(times.quantile(0.001), Some(0));
    }

    #[test]
    fn values_beyond_the_few_leave_it_to_the_histogram() {
        let within = |times: &Times, ns: u64| times.quantile(0.5).unwrap().abs_diff(ns) <= ns / 1000;
        let (mut a, mut b) = (Times::new(), Times::new());
        (0..FEW as i64 - 1).for_each(|n| a.record(5_000_000 + n));
        b.add(&a);
        assert_eq!(b.quantile(0.5), Some(5_000_000 + FEW as u64 / 2 - 1));
        b.add(&a); // too many together
        assert!(within(&b, 5_000_500) && b.count() == 2 * (FEW as u64 - 1));
        b.add(&a); // and it stays so
        b.record(9_000_000);
        assert!(within(&b, 5_000_500) && b.max() >= Some(9_000_000));
        (0..2 * FEW as i64).for_each(|_| a.record(9_000_000));
        assert!(within(&a, 9_000_000));
    }

    #[test]
    fn buckets_and_sums_keep_the_count() {
        let (mut a, mut b) = (Times::new(), Times::new());
        (0..100).for_each(|_| a.record(7));
        (0..11).for_each(|_| b.record(i64::MAX));
        a.add(&b);
        let buckets = a.buckets();
        assert_eq!(buckets.iter().map(|b| b.2).sum::<u64>(), 111);
        assert_eq!((buckets[0], buckets.len()), ((7, 7, 100), 2));
        assert_eq!(Times::new().summary()["p50_ns"], Value::Null);
    }

    #[test]
    fn the_stored_form_comes_back() {
        let mut times = Times::new();
        (1..1000).for_each(|n| times.record(n * n));
        let bytes = times.v2_compressed();
        let back: Histogram<u64> =
            hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(back, times.histogram);
    }
}
