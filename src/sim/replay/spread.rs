//! A histogram of durations with logarithmic buckets: percentiles of millions of waits in a few kilobytes, with an error below one
//! in sixty-four.

use alloc::vec::Vec;

use super::report::Waits;
use pool::Span;

/// The number of buckets for each power of two.
const FINE: u64 = 64;
const FINE_BITS: u32 = FINE.trailing_zeros();

#[derive(Clone, Debug, Default)]
pub struct Spread {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    longest: Span,
}

impl Spread {
    pub fn add(&mut self, span: Span) {
        let bucket = bucket(span.0);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.sum += u128::from(span.0);
        self.longest = self.longest.max(span);
    }

    pub fn waits(&self) -> Waits {
        Waits {
            mean: Span(u64::try_from(self.sum / u128::from(self.total.max(1))).unwrap_or(u64::MAX)),
            p50: self.percentile(50),
            p95: self.percentile(95),
            p99: self.percentile(99),
            longest: self.longest,
        }
    }

    fn percentile(&self, percent: u64) -> Span {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Span(start(bucket)).min(self.longest);
            }
        }
        Span::ZERO
    }
}

/// Exact below `FINE`, then `FINE` buckets for each power of two.
fn bucket(milliseconds: u64) -> usize {
    if milliseconds < FINE {
        return milliseconds as usize;
    }
    let power = milliseconds.ilog2() - FINE_BITS;
    let within = (milliseconds >> power) - FINE;
    ((u64::from(power) + 1) * FINE + within) as usize
}

fn start(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / FINE {
        0 => bucket,
        above => (FINE + bucket % FINE) << (above - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_falls_into_a_bucket_at_most_one_sixty_fourth_below_it() {
        for milliseconds in (0..5_000).chain([65_535, 65_536, 1 << 40, u64::MAX]) {
            let start = start(bucket(milliseconds));
            assert!(start <= milliseconds);
            assert!(milliseconds - start <= milliseconds / 64, "{milliseconds}");
        }
    }

    #[test]
    fn percentiles_match_the_sorted_list() {
        let mut spread = Spread::default();
        (1..=60).for_each(|nth| spread.add(Span(nth)));
        let waits = spread.waits();
        assert_eq!(
            (waits.p50, waits.p95, waits.longest),
            (Span(30), Span(57), Span(60))
        );
    }
}
