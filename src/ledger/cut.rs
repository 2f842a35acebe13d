//! Division of an integer in proportion to weights, without remainder.

/// Gives out an integer in pieces. The pieces sum to it once all weights have been passed.
#[derive(Debug)]
pub(crate) struct Cut {
    whole: u128,
    weights: u128,
    passed: u128,
    given: u128,
}

impl Cut {
    pub fn new(whole: u128, weights: u128) -> Cut {
        Cut {
            whole,
            weights,
            passed: 0,
            given: 0,
        }
    }

    /// The piece of the next weight. Zero if all weights are.
    pub fn piece(&mut self, weight: u128) -> u128 {
        self.passed = self.passed.saturating_add(weight);
        let upto = match self.whole.checked_mul(self.passed) {
            Some(product) => product.checked_div(self.weights).unwrap_or(0),
            // A node may report figures beyond any device.
            None if self.passed >= self.weights => self.whole,
            None => (self.whole / self.weights).saturating_mul(self.passed),
        };
        let upto = upto.clamp(self.given, self.whole);
        let piece = upto - self.given;
        self.given = upto;
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_sum_to_the_whole() {
        for whole in [0, 1, 7, 1_000_003, u128::from(u64::MAX)] {
            let weights = [3, 0, 5, 1, 1, 80_000_000_000];
            let mut cut = Cut::new(whole, weights.iter().sum());
            let sum: u128 = weights.iter().map(|weight| cut.piece(*weight)).sum();
            assert_eq!(sum, whole);
        }
        assert_eq!(Cut::new(5, 0).piece(0), 0);
    }

    #[test]
    fn figures_beyond_any_device_are_cut_without_overflow() {
        let weights = [1, u128::from(u64::MAX), 7, u128::from(u64::MAX)];
        let whole = u128::from(u64::MAX) * 60_000;
        let mut cut = Cut::new(whole, weights.iter().sum());
        let sum: u128 = weights.iter().map(|weight| cut.piece(*weight)).sum();
        assert_eq!(sum, whole);
    }
}
