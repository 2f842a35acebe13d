//! An engine's own load figures: how many requests it runs, how many wait inside it, how full its cache is.
//! Reads them from the Prometheus text format by the names in the engine's table row.

use std::time::Duration;

use super::health::get_long;
use super::{Endpoint, Report};
use catalog::Metrics;

const EVERY: Duration = Duration::from_secs(5);
/// vLLM's histograms alone are tens of KiB.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// An engine's own load figures; `None` where it does not report one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineLoad {
    pub running: Option<u32>,
    pub waiting: Option<u32>,
    /// The part of its cache that is in use, in thousandths.
    pub cache_per_mille: Option<u32>,
}

/// Reports the figures when they change, for as long as it is polled. A missing answer is not reported: the
/// liveness watch judges whether the engine is alive.
pub(super) async fn follow(
    endpoint: &Endpoint,
    metrics: Option<&Metrics>,
    report: impl Fn(Report),
) -> std::convert::Infallible {
    let Some(metrics) = metrics else {
        return std::future::pending().await;
    };
    let mut last = EngineLoad::default();
    loop {
        if let Ok(answer) = get_long(endpoint, metrics.path, TEXT_BYTES_MAX).await
            && answer.status == 200
        {
            let load = read(&String::from_utf8_lossy(&answer.body), metrics);
            if load != last {
                last = load;
                report(Report::Load(load));
            }
        }
        tokio::time::sleep(EVERY).await;
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

/// The sum of all samples of a family: an engine with several internal engines has one for each.
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
    text.lines().filter_map(sample).reduce(|sum, it| sum + it)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Metrics = Metrics {
        path: "/metrics",
        running: "x:running",
        waiting: "x:waiting",
        cache_used: &["x:new_name", "x:cache"],
    };

    #[test]
    fn numbers_are_found_by_their_whole_names_with_or_without_labels() {
        let text = "# TYPE x:running gauge\nx:running{a=\"} 9\",engine=\"0\"} 2.0 1700000000\nx:running{engine=\"1\"} 1\nx:running_total 99\nx:waiting 4\nx:cache{} 0.25\n";
        let load = EngineLoad {
            running: Some(3),
            waiting: Some(4),
            cache_per_mille: Some(250),
        };
        assert_eq!(read(text, &NAMES), load);
    }

    #[test]
    fn what_is_no_number_is_unknown_and_not_nothing() {
        let text = "x:running NaN\nx:waiting\nx:cache +Inf\n";
        assert_eq!(read(text, &NAMES), EngineLoad::default());
    }
}
