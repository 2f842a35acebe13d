//! Metrics of requests under OpenTelemetry's conventions for generative AI. Requests are counted in memory, by operation and model;
//! the exporter reads the counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::histogram::Histogram;
use crate::metric::{HistogramPoint, Metric};
use crate::span::{Attribute, attribute};

/// The value of `gen_ai.provider.name`: the pool serves models of many makers.
pub const PROVIDER: &str = "model_pool";
/// The operation of requests that have no name.
pub const OTHER_OPERATION: &str = "_OTHER";

/// The bounds that the conventions give, in seconds.
const DURATION: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
];
/// In tokens.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Limit of label sets, as in OpenTelemetry's SDKs. Requests with further ones count together.
const LABEL_SETS_MAX: usize = 2_000;
/// Marks the point of the requests beyond the limit.
const OVERFLOW: &str = "otel.metric.overflow";

/// The labels of a request. Each must come from a limited set, never from a client's text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GenAiLabels {
    pub operation: &'static str,
    /// The name that the request called the model by.
    pub request_model: Arc<str>,
    /// The model that serves the request.
    pub response_model: Arc<str>,
}

/// The value of `error.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorType {
    /// The code of an error object.
    Code(&'static str),
    /// An HTTP status.
    Status(u16),
}

#[derive(Debug)]
struct Series {
    durations: BTreeMap<Option<ErrorType>, Histogram>,
    first_token: Histogram,
    per_token: Histogram,
    input: Histogram,
    output: Histogram,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            durations: BTreeMap::new(),
            first_token: Histogram::new(FIRST_TOKEN),
            per_token: Histogram::new(PER_TOKEN),
            input: Histogram::new(TOKENS),
            output: Histogram::new(TOKENS),
        }
    }
}

/// The counts of all requests since the start.
#[derive(Debug)]
pub struct GenAiMetrics {
    start_unix_nanos: u64,
    series: RwLock<BTreeMap<GenAiLabels, Arc<Mutex<Series>>>>,
    overflow: Arc<Mutex<Series>>,
}

impl GenAiMetrics {
    pub fn new(start_unix_nanos: u64) -> GenAiMetrics {
        GenAiMetrics {
            start_unix_nanos,
            series: RwLock::default(),
            overflow: Arc::default(),
        }
    }

    pub(crate) fn start_unix_nanos(&self) -> u64 {
        self.start_unix_nanos
    }

    /// Counts a request that has ended.
    pub fn ended(&self, labels: &GenAiLabels, seconds: f64, error: Option<ErrorType>) {
        let series = self.series_of(labels);
        let mut series = locked(&series);
        let durations = series.durations.entry(error);
        let histogram = durations.or_insert_with(|| Histogram::new(DURATION));
        histogram.observe(seconds);
    }

    /// Counts the times of a successful response. `per_token` is the mean time per token after the first.
    pub fn generated(&self, labels: &GenAiLabels, first_token: f64, per_token: Option<f64>) {
        let series = self.series_of(labels);
        let mut series = locked(&series);
        series.first_token.observe(first_token);
        if let Some(seconds) = per_token {
            series.per_token.observe(seconds);
        }
    }

    /// Counts the tokens of a request. A kind without tokens has no observation.
    pub fn used(&self, labels: &GenAiLabels, input: u64, output: u64) {
        let series = self.series_of(labels);
        let mut series = locked(&series);
        if input > 0 {
            series.input.observe(input as f64);
        }
        if output > 0 {
            series.output.observe(output as f64);
        }
    }

    fn series_of(&self, labels: &GenAiLabels) -> Arc<Mutex<Series>> {
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(labels) {
            return Arc::clone(series);
        }
        drop(known);
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if series.len() >= LABEL_SETS_MAX && !series.contains_key(labels) {
            return Arc::clone(&self.overflow);
        }
        Arc::clone(series.entry(labels.clone()).or_default())
    }

    /// The metrics that have observations.
    pub fn collect(&self) -> Vec<Metric> {
        let mut metrics = [
            (
                "gen_ai.server.request.duration",
                "Time from the arrival of a request to the end of its response.",
                "s",
            ),
            (
                "gen_ai.server.time_to_first_token",
                "Time from the arrival of a request to the first token of its response.",
                "s",
            ),
            (
                "gen_ai.server.time_per_output_token",
                "Mean time per token after the first token of a response.",
                "s",
            ),
            (
                "gen_ai.client.token.usage",
                "Tokens of prompts and responses.",
                "{token}",
            ),
        ]
        .map(|(name, description, unit)| Metric {
            name,
            description,
            unit,
            points: Vec::new(),
        });
        let all = self.series.read().unwrap_or_else(PoisonError::into_inner);
        for (labels, series) in &*all {
            add(&mut metrics, &attributes_of(labels), &locked(series));
        }
        let beyond = [attribute(OVERFLOW, true)];
        add(&mut metrics, &beyond, &locked(&self.overflow));
        metrics
            .into_iter()
            .filter(|metric| !metric.points.is_empty())
            .collect()
    }
}

fn attributes_of(labels: &GenAiLabels) -> Vec<Attribute> {
    vec![
        attribute("gen_ai.operation.name", labels.operation),
        attribute("gen_ai.provider.name", PROVIDER),
        attribute("gen_ai.request.model", &*labels.request_model),
        attribute("gen_ai.response.model", &*labels.response_model),
    ]
}

/// Adds the points of a label set to the metrics, in their order.
fn add(metrics: &mut [Metric; 4], labels: &[Attribute], series: &Series) {
    let mut point = |nth: usize, histogram: &Histogram, own: Option<Attribute>| {
        if histogram.count() > 0 {
            let attributes = labels.iter().cloned().chain(own).collect();
            metrics[nth].points.push(HistogramPoint {
                attributes,
                histogram: histogram.clone(),
            });
        }
    };
    for (error, histogram) in &series.durations {
        let error = error.map(|error| match error {
            ErrorType::Code(code) => attribute("error.type", code),
            ErrorType::Status(status) => attribute("error.type", status.to_string()),
        });
        point(0, histogram, error);
    }
    point(1, &series.first_token, None);
    point(2, &series.per_token, None);
    for (kind, histogram) in [("input", &series.input), ("output", &series.output)] {
        point(3, histogram, Some(attribute("gen_ai.token.type", kind)));
    }
}

fn locked(series: &Mutex<Series>) -> MutexGuard<'_, Series> {
    series.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Value;

    fn labels(model: &str) -> GenAiLabels {
        GenAiLabels {
            operation: "chat",
            request_model: "coder".into(),
            response_model: model.into(),
        }
    }

    fn value<'a>(point: &'a HistogramPoint, key: &str) -> Option<&'a Value> {
        let found = point.attributes.iter().find(|found| found.key == key);
        found.map(|attribute| &attribute.value)
    }

    #[test]
    fn the_metrics_have_the_names_units_and_buckets_of_the_conventions() {
        let metrics = GenAiMetrics::new(1);
        assert_eq!(metrics.collect(), []);
        let labels = labels("org/a");
        metrics.ended(&labels, 0.64, None);
        metrics.ended(&labels, 90.0, Some(ErrorType::Status(503)));
        metrics.generated(&labels, 0.02, Some(0.005));
        metrics.used(&labels, 17, 4);
        let collected = metrics.collect();
        let shape: Vec<(&str, &str, usize)> = collected
            .iter()
            .map(|metric| {
                let bounds = metric.points[0].histogram.bounds();
                (metric.name, metric.unit, bounds.len())
            })
            .collect();
        assert_eq!(
            shape,
            [
                ("gen_ai.server.request.duration", "s", 14),
                ("gen_ai.server.time_to_first_token", "s", 16),
                ("gen_ai.server.time_per_output_token", "s", 13),
                ("gen_ai.client.token.usage", "{token}", 14),
            ]
        );
        let [duration, first, per_token, usage] = &collected[..] else {
            panic!("{collected:?}")
        };
        let nth = |point: &HistogramPoint| {
            let mut counts = point.histogram.counts().iter();
            counts.position(|count| *count == 1).expect("a count")
        };
        // A value on a bound counts in the bucket that ends there.
        assert_eq!(duration.points.iter().map(nth).collect::<Vec<_>>(), [6, 14]);
        assert_eq!((nth(&first.points[0]), nth(&per_token.points[0])), (3, 0));
        assert_eq!(usage.points.iter().map(nth).collect::<Vec<_>>(), [3, 1]);
        for metric in &collected {
            for point in &metric.points {
                let bounds = point.histogram.bounds();
                assert!(bounds.is_sorted_by(|low, high| low < high), "{bounds:?}");
                for (key, expected) in [
                    ("gen_ai.operation.name", "chat"),
                    ("gen_ai.provider.name", "model_pool"),
                    ("gen_ai.request.model", "coder"),
                    ("gen_ai.response.model", "org/a"),
                ] {
                    assert_eq!(value(point, key), Some(&Value::from(expected)), "{key}");
                }
            }
        }
        let errors = duration.points.iter();
        let errors: Vec<_> = errors.map(|point| value(point, "error.type")).collect();
        assert_eq!(errors, [None, Some(&Value::from("503"))]);
        let kinds = usage.points.iter();
        let kinds: Vec<_> = kinds.map(|kind| value(kind, "gen_ai.token.type")).collect();
        let expected = ["input", "output"].map(Value::from);
        assert_eq!(kinds, [Some(&expected[0]), Some(&expected[1])]);
    }

    #[test]
    fn embeddings_have_no_point_for_output_tokens() {
        let metrics = GenAiMetrics::new(1);
        metrics.used(&labels("org/a"), 17, 0);
        let collected = metrics.collect();
        assert_eq!(collected.len(), 1);
        assert_eq!(collected[0].points.len(), 1);
    }

    #[test]
    fn label_sets_beyond_the_limit_count_together() {
        let metrics = GenAiMetrics::new(1);
        for nth in 0..LABEL_SETS_MAX + 50 {
            metrics.ended(&labels(&format!("org/{nth}")), 1.0, None);
        }
        // A known label set still counts as itself.
        metrics.ended(&labels("org/0"), 1.0, None);
        let collected = metrics.collect();
        let points = &collected[0].points;
        assert_eq!(points.len(), LABEL_SETS_MAX + 1);
        let last = points.last().expect("the overflow");
        assert_eq!(last.attributes, [attribute(OVERFLOW, true)]);
        assert_eq!(last.histogram.count(), 50);
        let all: u64 = points.iter().map(|point| point.histogram.count()).sum();
        assert_eq!(all, LABEL_SETS_MAX as u64 + 51);
    }
}
