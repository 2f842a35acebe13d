//! The report on forecasts of waits since the start of the service.

use serde::Serialize;
use utoipa::ToSchema;

use controller::ComparedWaits;

/// The first forecasts of waits of a second or longer that no order has altered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ForecastsReport {
    pub waits: u64,
    /// Forecasts within a fifth of the wait.
    pub precise: u64,
    /// Forecasts with a range.
    pub ranges: u64,
    /// Waits within the range of their forecast, and precise forecasts without a range.
    pub right: u64,
    /// Mean of the forecasts divided by the waits. Null without waits.
    #[schema(example = 1.02)]
    pub mean_ratio: Option<f64>,
}

impl ForecastsReport {
    pub fn new(compared: &ComparedWaits) -> ForecastsReport {
        let waits = compared.waits();
        ForecastsReport {
            waits,
            precise: compared.precise,
            ranges: compared.ranges,
            right: compared.right,
            mean_ratio: (waits > 0).then(|| compared.ratio_sum / waits as f64),
        }
    }
}
