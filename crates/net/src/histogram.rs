//! Times in an HDR histogram: three significant digits from 1 ns to an hour, so that any percentile is right within 0.1 %, and histograms
//! of many threads, seconds and runs can be added.

use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;
use serde_json::{json, Value};

const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Durations in nanoseconds.
#[derive(Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times::new()
    }
}

impl Times {
    /// None yet.
    pub fn new() -> Times {
        Times(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are constants that it takes"))
    }

    /// Counts one; what is longer than an hour counts as an hour, what is shorter than 1 ns as 1 ns.
    pub fn record(&mut self, ns: i64) {
        self.0.saturating_record(ns.max(1) as u64);
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Times) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value below or at which this share lies; None without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share))
    }

    /// The largest; None without values.
    pub fn max(&self) -> Option<u64> {
        self.quantile(1.0)
    }

    /// Count, mean, least, percentiles and largest; null where there are no values.
    pub fn summary(&self) -> Value {
        let some = !self.0.is_empty();
        json!({
            "count": self.count(),
            "min_ns": some.then(|| self.0.min()),
            "mean_ns": some.then(|| self.0.mean()),
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
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).expect("a Vec takes all bytes");
        bytes
    }

    /// Buckets that hold values: least and largest value of each, and the count.
    pub fn buckets(&self) -> Vec<(u64, u64, u64)> {
        let of = |value: u64| (self.0.lowest_equivalent(value), self.0.highest_equivalent(value));
        self.0
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
        assert_eq!(back, times.0);
    }
}
