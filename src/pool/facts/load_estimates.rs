//! Expected times of loads that were never measured, learned from the loads of other models: a line over the bytes for each engine
//! and disk, or for the engine alone. Derived from the measured times of all models, so a restart loses nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::facts::models::Model;
use crate::types::ids::{Bytes, LoaderId, Span};

/// The engine and the disk or link that it reads from.
pub(crate) type Source = (&'static str, Option<LoaderId>);

#[derive(Clone, Debug, Default)]
pub(crate) struct LoadEstimates {
    by_source: BTreeMap<Source, Line>,
    by_engine: BTreeMap<&'static str, Line>,
    /// The median over all measured models of stopping one and loading it.
    pub median_swap: Option<Span>,
    /// Load times of earlier runs have come since.
    pub is_stale: bool,
}

/// Longer loads count as this long, 24 days.
const MILLISECONDS_MAX: u64 = 1 << 31;

/// Sums over measured loads, for the line of least squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    loads: i128,
    mebibytes: i128,
    milliseconds: i128,
    squares: i128,
    products: i128,
}

impl Line {
    fn add(&mut self, bytes: Bytes, took: Span) {
        let (x, y) = (mebibytes(bytes), i128::from(took.0.min(MILLISECONDS_MAX)));
        self.loads += 1;
        self.mebibytes += x;
        self.milliseconds += y;
        self.squares += x * x;
        self.products += x * y;
    }

    /// A larger model never takes less time, and no model takes less than none. Loads of one size say nothing of the slope: a smaller
    /// model is expected to take as long, and a larger one longer in proportion.
    fn at(&self, bytes: Bytes) -> Option<Span> {
        if self.loads == 0 {
            return None;
        }
        let x = mebibytes(bytes);
        let spread = self.loads * self.squares - self.mebibytes * self.mebibytes;
        let took = if spread > 0 {
            let slope = self.loads * self.products - self.mebibytes * self.milliseconds;
            let slope = slope.max(0);
            let base = (self.milliseconds - slope * self.mebibytes / spread) / self.loads;
            if base >= 0 {
                base + slope * x / spread
            } else {
                self.products * x / self.squares.max(1)
            }
        } else {
            let mean = self.milliseconds / self.loads;
            mean.max(self.milliseconds * x / self.mebibytes.max(1))
        };
        Some(Span(u64::try_from(took.max(0)).unwrap_or(u64::MAX)))
    }
}

impl LoadEstimates {
    /// One model's measured load.
    pub(crate) fn add(&mut self, (engine, loader): Source, bytes: Bytes, took: Span) {
        let of_source = self.by_source.entry((engine, loader)).or_default();
        of_source.add(bytes, took);
        self.by_engine.entry(engine).or_default().add(bytes, took);
    }

    /// Returns `None` if no load with this engine was measured.
    pub(crate) fn expected(&self, (engine, loader): Source, bytes: Bytes) -> Option<Span> {
        let line = self.by_source.get(&(engine, loader));
        line.or_else(|| self.by_engine.get(engine))?.at(bytes)
    }
}

/// With 2³¹ ms, and 2¹⁴ models, no product of the sums overflows.
fn mebibytes(bytes: Bytes) -> i128 {
    i128::from((bytes.0 >> 20).min(1 << 24))
}

impl LoadEstimates {
    pub(crate) fn new<'a>(models: impl Iterator<Item = &'a Model>) -> LoadEstimates {
        let mut estimates = LoadEstimates::default();
        let mut swaps = Vec::new();
        for model in models {
            if let Some(took) = model.load_times.expected() {
                estimates.add(model.source(), model.total_bytes(), took);
                swaps.push(took + model.stop_takes);
            }
        }
        swaps.sort_unstable();
        estimates.median_swap = swaps.get(swaps.len() / 2).copied();
        estimates
    }

    /// Returns `None` if the model's load is not a guess, or no load with its engine was measured.
    pub(crate) fn guess(&self, model: &Model) -> Option<Span> {
        let guess = self.expected(model.source(), model.total_bytes());
        guess.filter(|_| model.load_is_guessed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(loads: &[(u64, u64)]) -> Line {
        let mut line = Line::default();
        for (gib, seconds) in loads {
            line.add(Bytes(gib * Bytes::GIB), Span::from_secs(*seconds));
        }
        line
    }

    fn seconds(line: Line, gib: u64) -> Option<u64> {
        line.at(Bytes(gib * Bytes::GIB)).map(|took| took.0 / 1000)
    }

    #[test]
    fn a_line_reflects_the_start_time_and_the_disk_speed() {
        let line = line(&[(4, 7), (8, 9), (20, 15)]);
        assert_eq!(seconds(line, 40), Some(25));
        assert_eq!(seconds(line, 0), Some(5));
    }

    #[test]
    fn a_single_size_does_not_determine_the_slope() {
        let line = line(&[(10, 20), (10, 22)]);
        assert_eq!(seconds(line, 2), Some(21));
        assert_eq!(seconds(line, 20), Some(42));
        assert_eq!(seconds(Line::default(), 20), None);
    }

    #[test]
    fn no_estimate_is_negative_or_decreases_with_the_size() {
        let falling = line(&[(1, 100), (40, 1)]);
        assert!(seconds(falling, 80) >= seconds(falling, 1));
        let steep = line(&[(10, 1), (20, 30)]);
        assert!(seconds(steep, 0) == Some(0) && seconds(steep, 40) > Some(30));
        let huge = line(&[(1 << 32, u64::MAX / 1000), (1 << 33, 1), (1, 1)]);
        assert!(seconds(huge, 1 << 33).is_some());
    }
}
