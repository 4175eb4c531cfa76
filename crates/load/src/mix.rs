//! Which script comes next.

use crate::random::Random;

/// Scripts by weight.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    weights: Vec<u32>,
    random: Random,
}

impl Mix {
    pub(crate) fn new(weights: Vec<u32>, random: Random) -> Mix {
        Mix { weights, random }
    }

    pub(crate) fn draw(&mut self) -> usize {
        if self.weights.len() == 1 {
            return 0;
        }
        let total: i64 = self.weights.iter().map(|weight| i64::from(*weight)).sum();
        let mut drawn = self.random.between(0, total - 1);
        for (number, weight) in self.weights.iter().enumerate() {
            drawn -= i64::from(*weight);
            if drawn < 0 {
                return number;
            }
        }
        0
    }
}
