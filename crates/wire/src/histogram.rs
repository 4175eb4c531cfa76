//! Times in buckets that are at most 1/64 of their value wide.

/// Buckets of each power of two, as a power of two.
const PARTS: u32 = 6;
const BUCKETS: usize = ((64 - PARTS as usize) << PARTS) + (1 << PARTS);

/// Counts of times.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, sum: 0, most: 0 }
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (64 - ns.leading_zeros()).saturating_sub(PARTS + 1);
    ((shift as usize) << PARTS) + (ns >> shift) as usize
}

/// The middle of a bucket.
fn value(bucket: usize) -> u64 {
    let shift = (bucket >> PARTS).saturating_sub(1);
    let low = ((bucket - (shift << PARTS)) as u64) << shift;
    low + ((1u64 << shift) >> 1)
}

impl Histogram {
    /// One time; a negative one counts as none at all.
    pub fn add(&mut self, ns: i64) {
        let ns = ns.max(0) as u64;
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum += u128::from(ns);
        self.most = self.most.max(ns);
    }

    /// How many.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// All of them together.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The longest.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The time that a share of them does not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return value(bucket).min(self.most);
            }
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile(0.5), 0);
        (1..=10_000).for_each(|us| times.add(us * 1000));
        for (share, exact) in [(0.5, 5_000_000.0), (0.99, 9_900_000.0), (0.001, 10_000.0)] {
            let found = times.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() < 1.0 / 64.0, "{share}: {found}");
        }
        assert_eq!((times.quantile(1.0), times.total(), times.sum()), (10_000_000, 10_000, 50_005_000_000));
    }

    #[test]
    fn every_time_has_a_bucket_near_it() {
        for ns in [0, 1, 63, 64, 65, 127, 128, 129, 1 << 40, u64::MAX] {
            let found = value(bucket(ns));
            assert!(found.abs_diff(ns) <= ns / 64, "{ns} becomes {found}");
        }
    }
}
