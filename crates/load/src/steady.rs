//! When a load has warmed up: MSER-5 on how many transactions end each second.

/// With fewer means nothing is said.
const FEWEST: usize = 12;
/// The last means alone say nothing of their spread.
const LAST: usize = 3;
/// Noise alone may look steady once: it must look so with each of the last means.
const TIMES: usize = 3;

/// Where to cut the begin off (White's MSER): there the mean of the rest is known best.
fn cut(means: &[f64]) -> usize {
    let error = |from: usize| {
        let rest = &means[from..];
        let count = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / count;
        rest.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count * count)
    };
    (0..=means.len().saturating_sub(LAST)).min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(0)
}

/// Whether the rate is steady: the cut lies in the first half, as the rule asks for. batch: seconds of a mean.
pub(crate) fn is_steady(per_second: &[u64], batch: usize) -> bool {
    let mean = |values: &[u64]| values.iter().sum::<u64>() as f64 / values.len() as f64;
    let means: Vec<f64> = per_second.chunks_exact(batch.max(1)).map(mean).collect();
    means.len() + 1 >= FEWEST + TIMES
        && (0..TIMES).map(|back| means.len() - back).all(|count| cut(&means[..count]) <= count / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const BATCH: usize = 5;

    /// A rate that rises from 400 to 1,000 with this time constant, and varies by so many.
    fn first_steady(constant: f64, noise: i64, seed: u64) -> Option<usize> {
        let mut random = Random::new(seed);
        let value = |at: usize| 1000.0 * (1.0 - 0.6 * (-(at as f64) / constant).exp());
        let rates: Vec<u64> = (0..900).map(|at| (value(at) as i64 + random.between(-noise, noise)) as u64).collect();
        (BATCH..=900).step_by(BATCH).find(|count| is_steady(&rates[..*count], BATCH))
    }

    #[test]
    fn a_rate_that_rises_is_not_steady_before_it_has_risen() {
        for seed in 0..30 {
            let found = first_steady(40.0, 30, seed).unwrap();
            assert!((160..500).contains(&found), "{found}"); // 99 % of the end, or more
        }
    }

    #[test]
    fn a_rate_that_is_steady_is_seen_soon() {
        let found: Vec<usize> = (0..30).filter_map(|seed| first_steady(0.001, 100, seed)).collect();
        assert_eq!(found.len(), 30);
        assert!(found.iter().all(|found| (70..=200).contains(found)), "{found:?}");
        assert!(!is_steady(&[1000; 69], BATCH));
        assert!(is_steady(&[0; 70], BATCH), "nothing ends: that will not change");
    }
}
