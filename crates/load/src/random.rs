//! The random numbers of pgbench 15 and later: xoroshiro128**, and its distributions. The same seed gives the same numbers.

use std::f64::consts::PI;

/// The state of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Random([u64; 2]);

impl Random {
    /// Of a seed.
    pub fn new(mut seed: u64) -> Random {
        let state = [splitmix(&mut seed), splitmix(&mut seed)];
        match state {
            [0, 0] => Random([0x5851_F42D_4C95_7F2D, 0x1405_7B7E_F767_814F]), // it would never leave zero
            _ => Random(state),
        }
    }

    /// A sequence of its own, whose seed is the next number of this one.
    pub fn child(&mut self) -> Random {
        Random::new(self.bits())
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let Random([s0, s1]) = *self;
        let both = s1 ^ s0;
        self.0 = [s0.rotate_left(24) ^ both ^ (both << 16), both.rotate_left(37)];
        s0.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// From 0 to `most`, all alike.
    fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let shift = most.leading_zeros();
        loop {
            let value = self.bits() >> shift;
            if value <= most {
                return value;
            }
        }
    }

    /// From `least` to `most`, all alike. Their difference is less than 2^63.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least.wrapping_add(self.up_to(most.wrapping_sub(least) as u64) as i64)
    }

    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.bits() >> 12) as f64 * (0.5_f64).powi(52)
    }

    /// In (0, 1].
    fn positive(&mut self) -> f64 {
        1.0 - self.unit()
    }

    fn normal(&mut self) -> f64 {
        let (u1, u2) = (self.positive(), self.positive());
        (-2.0 * u1.ln()).sqrt() * (2.0 * PI * u2).sin()
    }

    /// Most often in the middle. parameter: at least 2.
    pub fn gaussian(&mut self, least: i64, most: i64, parameter: f64) -> i64 {
        let deviation = loop {
            let deviation = self.normal();
            if (-parameter..parameter).contains(&deviation) {
                break deviation;
            }
        };
        scaled(least, most, (deviation + parameter) / (parameter * 2.0))
    }

    /// Most often the least. parameter: more than 0.
    pub fn exponential(&mut self, least: i64, most: i64, parameter: f64) -> i64 {
        let cut = (-parameter).exp();
        let uniform = self.positive();
        scaled(least, most, -(cut + (1.0 - cut) * uniform).ln() / parameter)
    }

    /// The least most often, the next one less often, and so on. parameter: from 1.001 to 1000.
    pub fn zipfian(&mut self, least: i64, most: i64, parameter: f64) -> i64 {
        let n = most - least + 1;
        if n <= 1 {
            return least;
        }
        let b = 2.0_f64.powf(parameter - 1.0);
        loop {
            let (u, v) = (self.unit(), self.unit());
            let x = u.powf(-1.0 / (parameter - 1.0)).floor();
            let t = (1.0 + 1.0 / x).powf(parameter - 1.0);
            if v * x * (t - 1.0) / (b - 1.0) <= t / b && x <= n as f64 {
                return least - 1 + x as i64;
            }
        }
    }

    /// A wait whose mean is this, as between events that know nothing of each other.
    pub fn wait(&mut self, mean: f64) -> f64 {
        -self.positive().ln() * mean
    }
}

fn scaled(least: i64, most: i64, share: f64) -> i64 {
    least.wrapping_add(((most.wrapping_sub(least).wrapping_add(1)) as f64 * share) as i64)
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// FNV-1a of the eight bytes of a value.
pub(crate) fn hash_fnv1a(value: i64, seed: i64) -> i64 {
    let offset = 0xcbf2_9ce4_8422_2325_u64 ^ seed as u64;
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    value.to_le_bytes().iter().fold(offset, hash) as i64
}

/// MurmurHash2 of the eight bytes of a value.
pub(crate) fn hash_murmur2(value: i64, seed: i64) -> i64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mixed = |k: u64| k ^ (k >> 47);
    let k = mixed((value as u64).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    let start = seed as u64 ^ 8_u64.wrapping_mul(FACTOR);
    let hash = (start ^ k).wrapping_mul(FACTOR);
    mixed(mixed(hash).wrapping_mul(FACTOR)) as i64
}

/// Where a value goes in an order of the numbers below `size` that the seed chooses: pgbench's `permute`.
pub(crate) fn permute(value: i64, size: i64, seed: i64) -> i64 {
    if size < 2 {
        return 0;
    }
    let mut random = Random::new(seed as u64);
    let size = size as u64;
    let mut v = value as u64 % size;
    let bits = size.ilog2();
    let mask = (1_u64 << bits) - 1;
    let turned = |v: u64, by: u64, with: u64| {
        let v = (v.wrapping_mul(by) ^ with) & mask;
        ((v << 1) & mask) | (v >> (bits - 1))
    };
    for _ in 0..6 {
        // One half of the numbers and then the other, as far as a power of two goes.
        let (by, with) = ((random.bits() & mask) | 1, random.bits() & mask);
        if v <= mask {
            v = turned(v, by, with);
        }
        let (by, with) = ((random.bits() & mask) | 1, random.bits() & mask);
        let from_above = size - 1 - v;
        if from_above <= mask {
            v = size - 1 - turned(from_above, by, with);
        }
        v = ((u128::from(v) + u128::from(random.up_to(size - 1))) % u128::from(size)) as u64;
    }
    v as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_has_every_number_once() {
        for size in [1, 2, 3, 4, 7, 8, 100, 1000] {
            for seed in [0, 1, -5] {
                let mut seen: Vec<i64> = (0..size).map(|v| permute(v, size, seed)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..size).collect::<Vec<_>>(), "{size} {seed}");
            }
        }
        permute(i64::MIN, i64::MAX, 3);
    }

    #[test]
    fn every_distribution_stays_within_its_bounds() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!((-3..=5).contains(&random.between(-3, 5)));
            assert!((1..=10).contains(&random.gaussian(1, 10, 2.0)));
            assert!((1..=10).contains(&random.exponential(1, 10, 5.0)));
            assert!((1..=10).contains(&random.zipfian(1, 10, 1.01)));
        }
        assert_eq!((random.between(4, 4), random.zipfian(4, 4, 2.0)), (4, 4));
        let ends = random.between(i64::MIN, -2); // the widest range that pgbench allows
        assert!(ends <= -2);
    }

    #[test]
    fn waits_have_their_mean() {
        let mut random = Random::new(1);
        let sum: f64 = (0..100_000).map(|_| random.wait(250.0)).sum();
        assert!((sum / 100_000.0 - 250.0).abs() < 5.0, "{sum}");
    }
}
