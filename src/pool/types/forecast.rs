//! A forecast of a wait, and how far forecasts have been off. A forecast that depends on loads that have not begun may be passed by
//! later requests, so the range of a forecast follows from the measured errors of forecasts with as many loads before the seat.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::types::ids::{Span, Time};

/// Errors kept for each number of loads.
const KEPT: usize = 96;
/// The fewest errors from which a range follows.
const LEAST: usize = 12;
/// The numbers of loads that are distinguished: 0, 1, 2, 3 to 4, 5 to 8, 9 to 16, more.
const KINDS: usize = 7;
/// A range leaves out this part of the errors on each side, in percent.
const LEFT_OUT: usize = 4;
/// The precision of a forecast without a range: the wait is within a fifth of it.
const PRECISION_PERCENT: u64 = 20;
/// An error counts as at most this factor, in both directions.
const FACTOR_MAX: u64 = 1_000;
const PERMILLE: u64 = 1_000;

/// The expected time of a request's seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pub at: Time,
    /// The number of loads that begin before it.
    pub loads: u32,
}

/// A range of waits, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRange {
    pub least: Span,
    pub most: Span,
}

impl WaitRange {
    pub fn contains(&self, wait: Span) -> bool {
        (self.least..=self.most).contains(&wait)
    }
}

/// Returns true if the forecast is within a fifth of the wait.
pub fn is_precise(forecast: Span, wait: Span) -> bool {
    let off = u128::from(forecast.0.abs_diff(wait.0));
    off * 100 <= u128::from(wait.0) * u128::from(PRECISION_PERCENT)
}

/// Waits by their forecast, in thousandths of it: the latest for each number of loads.
#[derive(Clone, Debug, Default)]
pub struct ForecastErrors {
    by_loads: [VecDeque<u32>; KINDS],
    /// The ends of the ranges in thousandths of the forecast, once enough errors are known. `None` if the waits are within a fifth
    /// of it.
    bounds: [Option<(u64, u64)>; KINDS],
}

impl ForecastErrors {
    /// Records the wait of a request for which `forecast` was expected at first.
    pub fn add(&mut self, loads: u32, forecast: Span, wait: Span) {
        let ratio = wait.0.saturating_mul(PERMILLE) / forecast.0.max(1);
        let ratio = ratio.clamp(PERMILLE / FACTOR_MAX, PERMILLE * FACTOR_MAX);
        let errors = &mut self.by_loads[kind(loads)];
        if errors.len() == KEPT {
            errors.pop_front();
        }
        errors.push_back(u32::try_from(ratio).unwrap_or(u32::MAX));
        self.bounds[kind(loads)] = bounds(errors);
    }

    /// The range of nine in ten waits with this forecast. `None` if they are within a fifth of it.
    pub fn range(&self, loads: u32, forecast: Span) -> Option<WaitRange> {
        let known = self.by_loads[kind(loads)].len() >= LEAST;
        // Loads in progress take their measured time. Others may be passed by later requests.
        let at_first = (loads > 1).then_some((PERMILLE / 2, PERMILLE * 2));
        let bounds = self.bounds[kind(loads)];
        let (least, most) = if known { bounds } else { at_first }?;
        let part = |permille: u64| {
            let part = u128::from(forecast.0) * u128::from(permille) / u128::from(PERMILLE);
            Span(u64::try_from(part).unwrap_or(u64::MAX))
        };
        Some(WaitRange {
            least: part(least),
            most: part(most),
        })
    }
}

/// The ends of the range that follow from these errors.
fn bounds(errors: &VecDeque<u32>) -> Option<(u64, u64)> {
    let mut sorted: Vec<u32> = errors.iter().copied().collect();
    sorted.sort_unstable();
    let left_out = sorted.len() * LEFT_OUT / 100;
    let least = u64::from(*sorted.get(left_out)?);
    let most = u64::from(*sorted.get(sorted.len() - 1 - left_out)?);
    let precise =
        PERMILLE * 100 / (100 + PRECISION_PERCENT)..=PERMILLE * 100 / (100 - PRECISION_PERCENT);
    let is_known = precise.contains(&least) && precise.contains(&most);
    // A range is never narrower than the precision of a forecast without one.
    (!is_known).then_some((least.min(*precise.start()), most.max(*precise.end())))
}

fn kind(loads: u32) -> usize {
    let kind = match loads {
        0..=2 => loads as usize,
        more => (more - 1).ilog2() as usize + 2,
    };
    kind.min(KINDS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Span = Span::from_secs(10);

    #[test]
    fn forecasts_that_were_right_have_no_range() {
        let mut errors = ForecastErrors::default();
        for nth in 0..100 {
            errors.add(3, TEN, Span(9_000 + nth * 20));
        }
        assert_eq!(errors.range(3, TEN), None);
        assert_eq!(errors.range(4, TEN), None, "of the same kind");
    }

    #[test]
    fn the_range_holds_nine_in_ten_of_the_measured_waits() {
        let mut errors = ForecastErrors::default();
        let waits: Vec<Span> = (1..=96).map(|nth| Span(nth * 200)).collect();
        for wait in &waits {
            errors.add(1, TEN, *wait);
        }
        let range = errors.range(1, TEN).expect("they differ");
        let inside = waits.iter().filter(|wait| range.contains(**wait)).count();
        assert_eq!(inside, 90);
        // A forecast twice as long has a range twice as long.
        let twice = errors
            .range(1, Span::from_secs(20))
            .expect("the same errors");
        assert_eq!(twice.most, Span(range.most.0 * 2));
    }

    #[test]
    fn a_range_contains_all_precise_waits() {
        let mut errors = ForecastErrors::default();
        for nth in 0..96 {
            let wait = if nth < 80 { 10_000 } else { 40_000 };
            errors.add(1, TEN, Span(wait));
        }
        let range = errors.range(1, TEN).expect("some waits are longer");
        assert!(
            range.least <= Span(8_334) && range.most == Span(40_000),
            "{range:?}"
        );
    }

    #[test]
    fn unmeasured_loads_have_a_wide_range_and_one_in_progress_has_none() {
        let errors = ForecastErrors::default();
        assert_eq!(errors.range(0, TEN), None);
        let range = errors.range(5, TEN).expect("nothing is known");
        assert_eq!((range.least, range.most), (Span(5_000), Span(20_000)));
    }

    #[test]
    fn errors_are_bounded_in_number_and_size() {
        let mut errors = ForecastErrors::default();
        for nth in 0..10_000 {
            errors.add(nth % 40, Span(0), Span(u64::MAX));
            errors.add(nth % 40, Span(u64::MAX), Span(0));
        }
        assert!(errors.by_loads.iter().all(|kind| kind.len() <= KEPT));
        let range = errors.range(20, Span(u64::MAX)).expect("they differ");
        assert!(range.least < range.most);
    }

    #[test]
    fn a_forecast_is_precise_within_a_fifth_of_the_wait() {
        assert!(is_precise(Span(800), Span(1_000)) && is_precise(Span(1_200), Span(1_000)));
        assert!(!is_precise(Span(799), Span(1_000)) && !is_precise(Span(1_201), Span(1_000)));
        assert!(is_precise(Span(0), Span(0)) && !is_precise(Span(u64::MAX), Span(1)));
    }
}
