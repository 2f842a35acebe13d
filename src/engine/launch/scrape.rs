//! An engine's own load figures: running and waiting requests, cache use, and the number of generated tokens, which shows the
//! liveness watch that non-streaming requests make progress. Reads them from the Prometheus text format by the names in the
//! engine's table row.

use std::time::Duration;

use super::report::Report;
use crate::connection::Endpoint;
use crate::health::probe::get_long;
use crate::health::{LivenessLimits, Watch};
use catalog::Metrics;

const EVERY: Duration = Duration::from_secs(5);
/// Minimum number of readings within the shortest allowed silence: one response may be late.
const PER_SILENCE: u32 = 5;
const EVERY_MIN: Duration = Duration::from_millis(10);
/// Generous: vLLM's histograms alone take tens of KiB.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// An engine's own load figures; `None` where it does not report one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EngineLoad {
    pub running: Option<u32>,
    pub waiting: Option<u32>,
    /// The used part of its cache, in thousandths.
    pub cache_per_mille: Option<u32>,
}

/// Reports the figures when they change, for as long as it is polled. A missing response is not reported: the liveness watch judges
/// whether the engine is alive.
pub(crate) async fn follow(
    endpoint: &Endpoint,
    watch: &Watch,
    report: impl Fn(Report),
) -> std::convert::Infallible {
    let Some(metrics) = &watch.metrics else {
        return std::future::pending().await;
    };
    let every = every(metrics, &watch.limits);
    let mut last = EngineLoad::default();
    loop {
        let ended = watch.activity.ended();
        if let Ok(response) = get_long(endpoint, metrics.path, TEXT_BYTES_MAX).await
            && response.status == 200
        {
            let text = String::from_utf8_lossy(&response.body);
            if let Some(name) = metrics.generated {
                let tokens = sum(&text, name).map(|tokens| tokens as u64);
                watch.activity.counted(tokens, ended);
            }
            let load = read(&text, metrics);
            if load != last {
                last = load;
                report(Report::Load(load));
            }
        }
        ticks::pause(every).await;
    }
}

/// The interval between readings.
fn every(metrics: &Metrics, limits: &LivenessLimits) -> Duration {
    let shortest = limits.stall_after.min(limits.first_token_after);
    match metrics.generated {
        None => EVERY,
        Some(_) => (shortest / PER_SILENCE).clamp(EVERY_MIN, EVERY),
    }
}

fn read(text: &str, metrics: &Metrics) -> EngineLoad {
    let count = |name| sum(text, name).map(|value| value as u32);
    EngineLoad {
        running: count(metrics.running),
        waiting: count(metrics.waiting),
        cache_per_mille: metrics
            .cache_used
            .iter()
            .find_map(|name| sum(text, name))
            .map(|part| (part.clamp(0.0, 1.0) * 1000.0).round() as u32),
    }
}

/// The sum of all samples of a family: an engine with several internal engines has one sample for each.
/// <https://prometheus.io/docs/instrumenting/exposition_formats/>
fn sum(text: &str, name: &str) -> Option<f64> {
    let sample = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        let value: f64 = value.split_whitespace().next()?.parse().ok()?;
        value.is_finite().then_some(value)
    };
    text.lines()
        .filter_map(sample)
        .reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Metrics = Metrics {
        path: "/metrics",
        running: "x:running",
        waiting: "x:waiting",
        cache_used: &["x:new_name", "x:cache"],
        generated: Some("x:tokens_total"),
    };

    #[test]
    fn an_engine_with_a_short_stall_limit_is_scraped_often() {
        let limits = |seconds| LivenessLimits {
            stall_after: Duration::from_secs(seconds),
            ..LivenessLimits::default()
        };
        assert_eq!(every(&NAMES, &limits(60)), EVERY);
        assert_eq!(every(&NAMES, &limits(1)), Duration::from_millis(200));
        assert_eq!(every(&NAMES, &limits(0)), EVERY_MIN);
        let without = Metrics {
            generated: None,
            ..NAMES
        };
        assert_eq!(every(&without, &limits(1)), EVERY);
    }

    #[test]
    fn metrics_match_by_full_name_with_or_without_labels() {
        let text = "# TYPE x:running gauge\nx:running{a=\"} 9\",engine=\"0\"} 2.0 1700000000\nx:running{engine=\"1\"} 1\nx:running_total 99\nx:waiting 4\nx:cache{} 0.25\n";
        let load = EngineLoad {
            running: Some(3),
            waiting: Some(4),
            cache_per_mille: Some(250),
        };
        assert_eq!(read(text, &NAMES), load);
    }

    #[test]
    fn a_metric_that_is_not_a_finite_number_is_unknown() {
        let text = "x:running NaN\nx:waiting\nx:cache +Inf\n";
        assert_eq!(read(text, &NAMES), EngineLoad::default());
    }
}
