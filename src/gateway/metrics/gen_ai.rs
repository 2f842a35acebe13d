//! The measurements of requests for OpenTelemetry: the same times and tokens that Prometheus gets, with labels from the record of the
//! request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use controller::Clock;
use edge::record::{self, Facts};
use telemetry::{ErrorType, GenAiLabels, GenAiMetrics, OTHER_OPERATION};

#[derive(Debug)]
pub(super) struct GenAi {
    metrics: Arc<GenAiMetrics>,
    clock: Clock,
}

impl GenAi {
    pub fn new(metrics: Arc<GenAiMetrics>, clock: Clock) -> GenAi {
        GenAi { metrics, clock }
    }

    /// Counts the current task's request, which has ended. `code` must be from a limited set.
    pub fn ended(&self, model: &str, code: u16) {
        let Some(record) = record::current() else {
            return;
        };
        let (labels, error) = record.with(|facts| (labels(facts, model), facts.error.take()));
        let error = (code >= 400).then(|| error.map_or(ErrorType::Status(code), ErrorType::Code));
        let took = Duration::from_millis(self.clock.now().since(record.begun).0);
        self.metrics.ended(&labels, took.as_secs_f64(), error);
    }

    /// Begins the measurement of the current task's request.
    pub fn measure(&self, model: &Arc<str>) -> MeasuredRequest {
        let mut found = None;
        record::note(|facts| found = Some(labels(facts, model)));
        MeasuredRequest {
            metrics: Arc::clone(&self.metrics),
            labels: found.unwrap_or_else(|| labels(&Facts::default(), model)),
            first_token_ms: AtomicU64::new(NOT_YET),
            ended_ms: AtomicU64::new(NOT_YET),
        }
    }
}

/// All labels come from the catalogue, from the virtual models and from the routes, never from a client.
fn labels(facts: &Facts, model: &str) -> GenAiLabels {
    let known = facts.model.as_ref().filter(|known| ***known == *model);
    let response_model = known.cloned().unwrap_or_else(|| model.into());
    let named = facts.virtual_model.as_ref().unwrap_or(&response_model);
    GenAiLabels {
        operation: facts.operation.unwrap_or(OTHER_OPERATION),
        request_model: Arc::clone(named),
        response_model,
    }
}

const NOT_YET: u64 = u64::MAX;

/// A request that has a seat. Its times and tokens count when it is over.
#[derive(Debug)]
pub(crate) struct MeasuredRequest {
    metrics: Arc<GenAiMetrics>,
    labels: GenAiLabels,
    /// Milliseconds from the arrival to the first token, and to the end of a successful response.
    first_token_ms: AtomicU64,
    ended_ms: AtomicU64,
}

impl MeasuredRequest {
    /// Records the first token, `after` the arrival. Later calls have no effect.
    pub fn first_token(&self, after: Duration) {
        set(&self.first_token_ms, after);
    }

    /// Records the end of a successful response, `after` the arrival. Later calls have no effect.
    pub fn responded(&self, after: Duration) {
        set(&self.ended_ms, after);
    }

    /// Counts the request with the tokens that its engine has reported.
    pub fn finish(self, input: u64, output: u64) {
        let (first, ended) = (self.first_token_ms.into_inner(), self.ended_ms.into_inner());
        if first != NOT_YET && ended != NOT_YET {
            let per_token = per_token_seconds(first, ended, output);
            let first = first as f64 / 1e3;
            self.metrics.generated(&self.labels, first, per_token);
        }
        self.metrics.used(&self.labels, input, output);
    }
}

/// The mean time per token after the first; `None` without such tokens.
fn per_token_seconds(first_ms: u64, ended_ms: u64, output: u64) -> Option<f64> {
    let later = output.checked_sub(1).filter(|later| *later > 0)?;
    Some(ended_ms.saturating_sub(first_ms) as f64 / 1e3 / later as f64)
}

fn set(milliseconds: &AtomicU64, after: Duration) {
    let after = u64::try_from(after.as_millis()).unwrap_or(NOT_YET - 1);
    let _ = milliseconds.compare_exchange(NOT_YET, after, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use edge::record::Record;
    use telemetry::attribute;

    use super::*;
    use crate::metrics::Metrics;

    fn exporting() -> (Metrics, Arc<GenAiMetrics>) {
        let counted = Arc::new(GenAiMetrics::new(1));
        let clock = Clock::start();
        let gen_ai = GenAi::new(Arc::clone(&counted), clock);
        (Metrics::with(clock.now(), Some(gen_ai)), counted)
    }

    #[tokio::test]
    async fn one_measurement_counts_for_both_exports_under_the_names_of_request_and_member() {
        let (metrics, counted) = exporting();
        let id = HeaderValue::from_static("a");
        let record = Arc::new(Record::new(id, None, pool::Time(0), None));
        record.with(|facts| {
            facts.operation = Some("chat");
            facts.virtual_model = Some("coder".into());
        });
        record::within(record, async {
            let measured = metrics.measure(&"org/a".into()).expect("an export");
            measured.first_token(Duration::from_millis(500));
            measured.first_token(Duration::from_millis(900));
            metrics.request("org/a", 200);
            measured.responded(Duration::from_millis(1_500));
            measured.finish(7, 11);
            record::note(|facts| facts.error = Some("queue_full"));
            metrics.request("org/a", 429);
            metrics.request("org/a", 599);
        })
        .await;
        let metric = |name: &str| {
            let mut collected = counted.collect().into_iter();
            collected.find(|metric| metric.name == name)
        };
        let durations = metric("gen_ai.server.request.duration").expect("durations");
        let errors: Vec<_> = durations
            .points
            .iter()
            .map(|point| point.attributes.get(4).cloned())
            .collect();
        let expected = ["queue_full", "500"].map(|kind| Some(attribute("error.type", kind)));
        assert_eq!(errors, [None, expected[0].clone(), expected[1].clone()]);
        let point = &durations.points[0];
        assert_eq!(
            point.attributes[0],
            attribute("gen_ai.operation.name", "chat")
        );
        assert_eq!(
            point.attributes[2],
            attribute("gen_ai.request.model", "coder")
        );
        assert_eq!(
            point.attributes[3],
            attribute("gen_ai.response.model", "org/a")
        );
        let sum = |name: &str| {
            let metric = metric(name).expect("the metric");
            metric.points[0].histogram.sum()
        };
        assert_eq!(sum("gen_ai.server.time_to_first_token"), 0.5);
        // Ten tokens within a second.
        assert_eq!(sum("gen_ai.server.time_per_output_token"), 0.1);
        assert_eq!(sum("gen_ai.client.token.usage"), 7.0);
    }

    #[tokio::test]
    async fn a_failed_response_has_tokens_and_no_times_of_generation() {
        let (metrics, counted) = exporting();
        let measured = metrics.measure(&"org/a".into()).expect("an export");
        measured.first_token(Duration::from_millis(5));
        measured.finish(7, 3);
        let names: Vec<_> = counted.collect().iter().map(|found| found.name).collect();
        assert_eq!(names, ["gen_ai.client.token.usage"]);
        assert_eq!(per_token_seconds(5, 9, 1), None);
        assert_eq!(per_token_seconds(5, 9, 0), None);
    }

    #[test]
    fn without_an_export_nothing_is_measured() {
        assert!(Metrics::since(pool::Time(0)).measure(&"m".into()).is_none());
    }
}
