//! Compares the forecasts of waits with the waits. A forecast is made when its request begins to wait.

use alloc::vec::Vec;

use super::report::ForecastReport;
use pool::{Forecast, ForecastErrors, Span, Time, WaitRange, is_precise};

/// Shorter waits do not count: clients and administrators read seconds without a fraction.
const SHORTEST: Span = Span::from_secs(1);
/// Ratios of forecasts and waits are kept in thousandths, up to this one.
const RATIO_MAX: u64 = 1_000_000;

/// The forecast of a waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    expected: Span,
    loads: u32,
    range: Option<WaitRange>,
}

#[derive(Debug, Default)]
pub(super) struct Forecasts {
    errors: ForecastErrors,
    report: ForecastReport,
    /// Forecasts by their waits, in thousandths.
    ratios: Vec<u32>,
}

impl Forecasts {
    /// Keeps the forecast of a request that begins to wait now.
    pub fn first(&self, forecast: Forecast, now: Time) -> First {
        let expected = forecast.at.since(now);
        let loads = forecast.loads;
        let range = self.errors.range(loads, expected);
        First {
            expected,
            loads,
            range,
        }
    }

    pub fn seated(&mut self, first: First, wait: Span) {
        let First {
            expected,
            loads,
            range,
        } = first;
        self.errors.add(loads, expected, wait);
        if wait < SHORTEST {
            return;
        }
        self.report.waits += 1;
        self.report.precise += u64::from(is_precise(expected, wait));
        let is_right = match range {
            Some(range) => {
                self.report.ranges += 1;
                range.contains(wait)
            }
            None => is_precise(expected, wait),
        };
        self.report.right += u64::from(is_right);
        let ratio = expected.0.saturating_mul(1_000) / wait.0;
        let ratio = ratio.min(RATIO_MAX);
        self.ratios.push(u32::try_from(ratio).unwrap_or(u32::MAX));
    }

    pub fn report(mut self) -> ForecastReport {
        self.ratios.sort_unstable();
        let at = |percent: usize| {
            let nth = self.ratios.len() * percent / 100;
            self.ratios.get(nth).copied().unwrap_or(0)
        };
        ForecastReport {
            ratio_p10: at(10),
            ratio_p50: at(50),
            ratio_p90: at(90),
            ..self.report
        }
    }
}
