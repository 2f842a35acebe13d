//! A ratio of two sums over paired samples, with its confidence interval: how much of the difference between two rules is noise of
//! the seeds.

/// The normal quantile of a one-sided 90 %.
const NORMAL: f64 = 1.281_551_565_5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// The true ratio is above `low` with 90 % confidence, and below `high` with 90 % confidence.
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// The ratio of the first sum to the second. The pairs are independent, but their two halves are not, so the error is that of
    /// the differences from the ratio (Cochran, Sampling Techniques, 6.4), with Student's quantile.
    pub fn of_ratio(pairs: &[(f64, f64)]) -> Estimate {
        let count = pairs.len() as f64;
        let (ours, theirs) = pairs.iter().fold((0.0, 0.0), |(ours, theirs), pair| {
            (ours + pair.0, theirs + pair.1)
        });
        let value = ours / theirs;
        if pairs.len() < 2 {
            let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
            return Estimate { value, low, high };
        }
        let squares: f64 = pairs
            .iter()
            .map(|(ours, theirs)| (ours - value * theirs).powi(2))
            .sum();
        let error = (squares / (count - 1.0) / count).sqrt() / (theirs / count);
        let reach = student(count - 1.0) * error;
        Estimate {
            value,
            low: value - reach,
            high: value + reach,
        }
    }

    pub fn is_above(&self, bound: f64) -> bool {
        self.low > bound
    }
}

/// Student's quantile of 90 % by its expansion around the normal one (Abramowitz and Stegun 26.7.5): 0.1 % too small for
/// four degrees of freedom, 1 % for three.
fn student(freedom: f64) -> f64 {
    let quantile = NORMAL;
    let first = (quantile.powi(3) + quantile) / 4.0;
    let second = (5.0 * quantile.powi(5) + 16.0 * quantile.powi(3) + 3.0 * quantile) / 96.0;
    let third = (3.0 * quantile.powi(7) + 19.0 * quantile.powi(5) + 17.0 * quantile.powi(3)
        - 15.0 * quantile)
        / 384.0;
    quantile + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantile_matches_published_tables() {
        for (freedom, known) in [(4.0, 1.533), (7.0, 1.415), (15.0, 1.341), (1e9, 1.2816)] {
            let found = student(freedom);
            assert!((found - known).abs() < 0.005, "{freedom}: {found}");
        }
    }

    #[test]
    fn a_ratio_equal_for_all_seeds_has_a_zero_width_interval() {
        let same = Estimate::of_ratio(&[(1.0, 2.0), (3.0, 6.0), (2.0, 4.0)]);
        assert_eq!((same.low, same.value, same.high), (0.5, 0.5, 0.5));
    }

    #[test]
    fn the_lower_end_of_nine_in_ten_intervals_is_below_the_true_value() {
        // A pair of uniform numbers with equal means, from a small local generator.
        let mut state = 1_u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let trials = 4_000;
        let above = (0..trials)
            .filter(|_| {
                let pairs: Vec<_> = (0..8).map(|_| (1.0 + uniform(), 1.0 + uniform())).collect();
                Estimate::of_ratio(&pairs).is_above(1.0)
            })
            .count();
        let share = above as f64 / f64::from(trials);
        assert!((0.07..0.13).contains(&share), "{share}");
    }
}
