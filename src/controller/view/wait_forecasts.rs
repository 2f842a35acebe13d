//! Forecasts of waits compared with the waits, since the start of the service. The loop counts, and readers take a copy.

use std::sync::{Mutex, PoisonError};

use pool::{Span, WaitRange, is_precise};

/// Upper bounds of the ratios of forecasts and waits. Ratios above 0.8 and up to 1.2 are within a fifth.
pub const RATIO_BOUNDS: &[f64] = &[0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 4.0];
/// Shorter waits are not compared: forecasts are shown in seconds.
const SHORTEST: Span = Span::from_secs(1);

/// Counts of waits of a second or longer that had a forecast and that no order has altered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparedWaits {
    /// Waits for each bound, and those above all bounds.
    pub by_ratio: Vec<u64>,
    pub ratio_sum: f64,
    /// Forecasts within a fifth of the wait.
    pub precise: u64,
    /// Forecasts with a range.
    pub ranges: u64,
    /// Waits within the range of their forecast, and precise forecasts without a range.
    pub right: u64,
}

#[derive(Debug, Default)]
pub struct WaitForecasts {
    counts: Mutex<ComparedWaits>,
}

impl WaitForecasts {
    pub(crate) fn add(&self, forecast: Span, range: Option<WaitRange>, wait: Span) {
        if wait < SHORTEST {
            return;
        }
        let ratio = forecast.0 as f64 / wait.0 as f64;
        let is_near = is_precise(forecast, wait);
        let is_right = range.map_or(is_near, |range| range.contains(wait));
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.by_ratio.resize(RATIO_BOUNDS.len() + 1, 0);
        let nth = RATIO_BOUNDS.partition_point(|bound| *bound < ratio);
        counts.by_ratio[nth] += 1;
        counts.ratio_sum += ratio;
        counts.precise += u64::from(is_near);
        counts.ranges += u64::from(range.is_some());
        counts.right += u64::from(is_right);
    }

    pub fn read(&self) -> ComparedWaits {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }
}

impl ComparedWaits {
    /// The number of compared waits.
    pub fn waits(&self) -> u64 {
        self.by_ratio.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_outside_of_its_range_and_a_precise_forecast_are_told_apart() {
        let forecasts = WaitForecasts::default();
        let seconds = Span::from_secs;
        forecasts.add(seconds(10), None, seconds(11));
        forecasts.add(seconds(10), None, seconds(30));
        let range = Some(WaitRange {
            least: seconds(5),
            most: seconds(20),
        });
        forecasts.add(seconds(10), range, seconds(20));
        forecasts.add(seconds(10), range, seconds(21));
        // Below a second.
        forecasts.add(seconds(10), None, Span(999));
        let counts = forecasts.read();
        assert_eq!(counts.waits(), 4);
        assert_eq!((counts.precise, counts.ranges, counts.right), (1, 2, 2));
        let mean = counts.ratio_sum / 4.0;
        assert!((0.5..0.6).contains(&mean), "{mean}");
    }
}
