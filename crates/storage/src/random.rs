//! Numbers by chance that are the same for the same seed (splitmix64).

#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// `stream` makes generators of one seed that have nothing to do with each other.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.bits();
        random
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, 1.
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Less than `limit`; 0 of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// Between two events of which there are `rate` a second, in ns.
    pub fn gap_ns(&mut self, rate: f64) -> u64 {
        (-(1.0 - self.share()).ln() / rate * 1e9) as u64
    }

    /// 2.3: three in 30 % of the cases and else two.
    pub fn count(&mut self, mean: f64) -> u64 {
        let whole = mean.floor();
        whole as u64 + u64::from(self.share() < mean - whole)
    }
}
