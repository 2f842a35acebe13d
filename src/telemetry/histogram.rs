//! A histogram with fixed bounds, for every export of the same numbers.

/// Counts of observations by bucket. A bucket includes its upper bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One count per bound, and a last one for observations above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// `bounds` must be ascending.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// A histogram that was counted by someone else: one count for each bound, and a last one above all bounds.
    pub fn counted(bounds: &'static [f64], counts: &[u64], sum: f64) -> Histogram {
        let mut counts = counts.to_vec();
        counts.resize(bounds.len() + 1, 0);
        Histogram {
            bounds,
            counts,
            sum,
        }
    }

    pub fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// One count per bound, and a last one above all bounds.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn observe(&mut self, value: f64) {
        let nth = self.bounds.partition_point(|bound| *bound < value);
        self.counts[nth] += 1;
        self.sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_counts_below_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 2.5] {
            histogram.observe(value);
        }
        assert_eq!(histogram.counts(), [2, 2, 1]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 7.0));
        let same = Histogram::counted(&[1.0, 2.0], &[2, 2, 1], 7.0);
        assert_eq!(histogram, same);
        assert_eq!(Histogram::counted(&[1.0], &[3], 0.5).counts(), [3, 0]);
    }
}
