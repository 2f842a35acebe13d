//! Figures of the pool for charts: the last hour, day or week, in equal steps.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::values::at;
use pool::Time;
use store::{PoolMinute, UseCount};

const MINUTE_MS: u64 = 60_000;

/// The period of charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartPeriod {
    Hour,
    Day,
    Week,
}

impl ChartPeriod {
    pub const ALL: [ChartPeriod; 3] = [ChartPeriod::Hour, ChartPeriod::Day, ChartPeriod::Week];

    pub fn name(self) -> &'static str {
        match self {
            ChartPeriod::Hour => "hour",
            ChartPeriod::Day => "day",
            ChartPeriod::Week => "week",
        }
    }

    pub fn step_minutes(self) -> u32 {
        match self {
            ChartPeriod::Hour => 1,
            ChartPeriod::Day => 15,
            ChartPeriod::Week => 60,
        }
    }

    fn steps(self) -> u64 {
        match self {
            ChartPeriod::Hour => 60,
            ChartPeriod::Day => 96,
            ChartPeriod::Week => 168,
        }
    }

    fn step_ms(self) -> u64 {
        u64::from(self.step_minutes()) * MINUTE_MS
    }

    /// The complete steps before this time.
    fn step_numbers(self, now: Time) -> std::ops::Range<u64> {
        let end = now.0 / self.step_ms();
        end.saturating_sub(self.steps())..end
    }

    /// The beginning of the first step and the end of the last one.
    pub fn range(self, now: Time) -> (Time, Time) {
        let steps = self.step_numbers(now);
        (
            Time(steps.start * self.step_ms()),
            Time(steps.end * self.step_ms()),
        )
    }
}

/// A step of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ChartPoint {
    /// The beginning of the step.
    #[schema(example = "2026-01-31T20:15:00.000Z")]
    pub at: String,
    /// The length of the step.
    pub seconds: u64,
    /// Requests that got a seat.
    pub requests: u64,
    /// Requests that waited first, and the sum of their waiting times.
    pub waited: u64,
    pub waited_seconds: f64,
    /// Tokens as engines counted them, or as estimated.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The time to the first token that half of the requests, and 95 of 100, did not exceed, estimated from buckets. Null without
    /// streamed responses.
    pub first_token_p50_seconds: Option<f64>,
    pub first_token_p95_seconds: Option<f64>,
    /// The part of the device time that requests used, from 0 to 1. Null if no device was counted.
    pub used_ratio: Option<f64>,
}

/// Sums of the minutes of a step.
#[derive(Debug, Default)]
struct Sums {
    prompt_tokens: u64,
    completion_tokens: u64,
    used_ms: u64,
    device_ms: u64,
    first_tokens: BTreeMap<usize, u64>,
}

impl ChartPoint {
    /// All complete steps of a period. `uses` has steps since 1970. `quantile` gives a quantile of the time to the first token.
    pub fn all(
        period: ChartPeriod,
        now: Time,
        uses: &[(i64, UseCount)],
        minutes: &[PoolMinute],
        quantile: impl Fn(&BTreeMap<usize, u64>, f64) -> Option<f64>,
    ) -> Vec<ChartPoint> {
        let mut sums: BTreeMap<u64, Sums> = BTreeMap::new();
        for minute in minutes {
            let step = minute.minute / u64::from(period.step_minutes());
            sums.entry(step).or_default().add(minute);
        }
        let uses: BTreeMap<u64, &UseCount> = uses
            .iter()
            .filter_map(|(step, count)| Some((u64::try_from(*step).ok()?, count)))
            .collect();
        let none = Sums::default();
        let point = |step: u64| {
            let sum = sums.get(&step).unwrap_or(&none);
            let used = uses.get(&step);
            let of = |figure: fn(&UseCount) -> u64| used.map_or(0, |used| figure(used));
            ChartPoint {
                at: at(Time(step * period.step_ms())),
                seconds: period.step_ms() / 1_000,
                requests: of(|used| used.requests),
                waited: of(|used| used.waited),
                waited_seconds: of(|used| used.waited_ms) as f64 / 1_000.0,
                prompt_tokens: sum.prompt_tokens,
                completion_tokens: sum.completion_tokens,
                first_token_p50_seconds: quantile(&sum.first_tokens, 0.5),
                first_token_p95_seconds: quantile(&sum.first_tokens, 0.95),
                used_ratio: (sum.device_ms > 0).then(|| sum.used_ms as f64 / sum.device_ms as f64),
            }
        };
        period.step_numbers(now).map(point).collect()
    }
}

impl Sums {
    fn add(&mut self, minute: &PoolMinute) {
        for (own, more) in [
            (&mut self.prompt_tokens, minute.prompt_tokens),
            (&mut self.completion_tokens, minute.completion_tokens),
            (&mut self.used_ms, minute.used_ms),
            (&mut self.device_ms, minute.device_ms),
        ] {
            *own = own.saturating_add(more);
        }
        for (&bucket, &count) in &minute.first_tokens {
            let sum = self.first_tokens.entry(bucket).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_its_complete_steps_without_gaps() {
        for period in ChartPeriod::ALL {
            let now = Time(1_769_890_533_123);
            let (from, to) = period.range(now);
            assert!(to <= now && now.0 - to.0 < period.step_ms());
            let points = ChartPoint::all(period, now, &[], &[], |_, _| None);
            assert_eq!(points.len() as u64, period.steps());
            assert_eq!(points[0].at, at(from));
            assert_eq!(points[0].used_ratio, None, "unknown is not zero");
            let length: u64 = points.iter().map(|point| point.seconds * 1_000).sum();
            assert_eq!(length, to.0 - from.0);
        }
    }

    #[test]
    fn the_minutes_of_a_step_are_summed() {
        let now = Time(1_000 * 15 * MINUTE_MS);
        let minute = |minute, tokens, used_ms| PoolMinute {
            minute,
            prompt_tokens: tokens,
            completion_tokens: 10 * tokens,
            used_ms,
            device_ms: 60_000,
            first_tokens: BTreeMap::from([(3, 1)]),
        };
        let last = 999 * 15;
        let minutes = [
            minute(last - 1, 7, 60_000),
            minute(last, 1, 60_000),
            minute(last + 14, 2, 0),
        ];
        let used = UseCount {
            model: String::new(),
            requests: 30,
            waited: 2,
            waited_ms: 1_500,
            in_time: 0,
            late: 0,
        };
        let quantile = |buckets: &BTreeMap<usize, u64>, part: f64| {
            let all: u64 = buckets.values().sum();
            (all > 0).then_some(all as f64 * part)
        };
        let points = ChartPoint::all(ChartPeriod::Day, now, &[(999, used)], &minutes, quantile);
        let [.., before, point] = points.as_slice() else {
            panic!("{points:?}")
        };
        assert_eq!((before.prompt_tokens, before.requests), (7, 0));
        assert_eq!((point.prompt_tokens, point.completion_tokens), (3, 30));
        assert_eq!((point.requests, point.waited_seconds), (30, 1.5));
        assert_eq!(point.used_ratio, Some(0.5));
        assert_eq!(point.first_token_p50_seconds, Some(1.0));
    }
}
