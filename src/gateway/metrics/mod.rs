//! Prometheus metrics. The hot path counts in memory, per model; everything else is read at the scrape, from the snapshot and from
//! new history records. Counts of a request are also noted for the access log. Scraping changes nothing, and loads or keeps no
//! model (L2).

mod batches;
mod device_time;
mod gauges;
mod gen_ai;
mod groups;
mod history;
mod text;
mod totals;
mod vllm;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use self::gen_ai::GenAi;
pub(crate) use self::gen_ai::MeasuredRequest;
use self::history::Counted;
use self::text::{Kind, Text};
pub(crate) use self::totals::Totals;
use crate::open_batches::BatchFigures;
use crate::reading::{Reading, Workers};
use api_types::dto::GroupList;
use controller::{ComparedWaits, Handle, RATIO_BOUNDS};
use edge::record;
use edge::trace::Traces;
use pool::Time;
use telemetry::GenAiMetrics;
pub(crate) use telemetry::Histogram;

/// Buckets for waits and responses: from a millisecond to the longest load.
pub(crate) const WAITS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 900.0,
];

/// Cheap to clone; all clones share their counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    models: RwLock<BTreeMap<String, Arc<Mutex<Counts>>>>,
    history: tokio::sync::Mutex<Counted>,
    /// The same requests for OpenTelemetry, if they are exported.
    gen_ai: Option<GenAi>,
}

/// Request counts of one model.
#[derive(Clone, Debug)]
struct Counts {
    by_code: BTreeMap<u16, u64>,
    waited: Histogram,
    first_token: Histogram,
    lasted: Histogram,
    prompt: u64,
    completion: u64,
    adapter_loads: u64,
}

impl Metrics {
    /// Counters that begin at 0 and only count new history records. Requests count in `gen_ai`, too.
    pub fn new(handle: &Handle, gen_ai: Option<Arc<GenAiMetrics>>) -> Metrics {
        let clock = handle.clock();
        let gen_ai = gen_ai.map(|metrics| GenAi::new(metrics, clock));
        Metrics::with(clock.now(), gen_ai)
    }

    #[cfg(test)]
    pub(crate) fn since(now: Time) -> Metrics {
        Metrics::with(now, None)
    }

    fn with(now: Time, gen_ai: Option<GenAi>) -> Metrics {
        let history = tokio::sync::Mutex::new(Counted::since(now));
        Metrics {
            inner: Arc::new(Inner {
                models: RwLock::default(),
                history,
                gen_ai,
            }),
        }
    }

    /// Counts a request that has ended. `model` must be a name of the catalogue, never client text.
    pub fn request(&self, model: &str, code: u16) {
        record::note(|facts| {
            facts.is_for(model);
            facts.result_status = Some(code);
        });
        let code = known(code);
        if let Some(gen_ai) = &self.inner.gen_ai {
            gen_ai.ended(model, code);
        }
        self.count(model, |counts| {
            *counts.by_code.entry(code).or_default() += 1
        });
    }

    /// The measurement of a request that has a seat, if requests are exported. Boxed because it is part of the request's future.
    pub(crate) fn measure(&self, model: &Arc<str>) -> Option<Box<MeasuredRequest>> {
        let gen_ai = self.inner.gen_ai.as_ref()?;
        Some(Box::new(gen_ai.measure(model)))
    }

    /// Records that a request got its seat after `time` in the queue.
    pub fn waited(&self, model: &Arc<str>, time: Duration) {
        record::note(|facts| {
            facts.model = Some(Arc::clone(model));
            facts.waited_ms = u64::try_from(time.as_millis()).ok();
        });
        self.count(model, |counts| counts.waited.observe(time.as_secs_f64()));
    }

    /// Records the time to the first token, from the seat or from the caller's own starting point.
    pub fn first_token(&self, model: &str, time: Duration) {
        record::trace(|trace| trace.first_token());
        self.count(model, |counts| {
            counts.first_token.observe(time.as_secs_f64())
        });
    }

    /// Records the time from the arrival of a request to the end of its response.
    pub(crate) fn lasted(&self, model: &str, time: Duration) {
        self.count(model, |counts| counts.lasted.observe(time.as_secs_f64()));
    }

    pub fn tokens(&self, model: &str, prompt: u64, completion: u64) {
        record::note(|facts| {
            facts.prompt_tokens = facts.prompt_tokens.saturating_add(prompt);
            facts.completion_tokens = facts.completion_tokens.saturating_add(completion);
        });
        self.count(model, |counts| {
            counts.prompt = counts.prompt.saturating_add(prompt);
            counts.completion = counts.completion.saturating_add(completion);
        });
    }

    /// Counts an adapter that a replica loaded because a request named it.
    pub(crate) fn adapter_loaded(&self, model: &str) {
        self.count(model, |counts| counts.adapter_loads += 1);
    }

    fn count(&self, model: &str, change: impl FnOnce(&mut Counts)) {
        let known = self
            .inner
            .models
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(model)
            .cloned();
        let counts = known.unwrap_or_else(|| {
            let mut models = self
                .inner
                .models
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(models.entry(model.to_owned()).or_default())
        });
        change(&mut counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The sums over all models.
    pub(crate) fn totals(&self) -> Totals {
        let models = self.inner.models.read();
        let models = models.unwrap_or_else(PoisonError::into_inner);
        let mut totals = Totals {
            first_tokens: vec![0; WAITS.len() + 1],
            ..Totals::default()
        };
        for counts in models.values() {
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            totals.prompt = totals.prompt.saturating_add(counts.prompt);
            totals.completion = totals.completion.saturating_add(counts.completion);
            let buckets = counts.first_token.counts().iter();
            for (sum, count) in totals.first_tokens.iter_mut().zip(buckets) {
                *sum += count;
            }
        }
        totals
    }

    /// A copy of the counts of all models.
    fn all(&self) -> Vec<(String, Counts)> {
        let models = self.inner.models.read();
        let models = models.unwrap_or_else(PoisonError::into_inner);
        let copy = |(name, counts): (&String, &Arc<Mutex<Counts>>)| {
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            (name.clone(), counts.clone())
        };
        models.iter().map(copy).collect()
    }

    fn write_requests(&self, text: &mut Text) {
        let all = self.all();
        text.family(
            "requests_total",
            Kind::Counter,
            "Requests that have ended, by status code.",
        );
        for (model, counts) in &all {
            for (code, count) in &counts.by_code {
                text.sample(
                    &[("model", model), ("code", &code.to_string())],
                    *count as f64,
                );
            }
        }
        text.family(
            "queue_wait_seconds",
            Kind::Histogram,
            "Time that requests waited for a seat.",
        );
        for (model, counts) in &all {
            text.histogram(&[("model", model)], &counts.waited);
        }
        text.family(
            "time_to_first_token_seconds",
            Kind::Histogram,
            "Time to the first token of a response that its engine streams.",
        );
        for (model, counts) in &all {
            text.histogram(&[("model", model)], &counts.first_token);
        }
        text.family(
            "tokens_total",
            Kind::Counter,
            "Tokens, by kind: prompt or completion.",
        );
        for (model, counts) in &all {
            text.sample(
                &[("model", model), ("kind", "prompt")],
                counts.prompt as f64,
            );
            text.sample(
                &[("model", model), ("kind", "completion")],
                counts.completion as f64,
            );
        }
        text.family(
            "adapter_loads_total",
            Kind::Counter,
            "Adapters that replicas loaded because a request named them.",
        );
        for (model, counts) in all.iter().filter(|(_, counts)| counts.adapter_loads > 0) {
            text.sample(&[("model", model)], counts.adapter_loads as f64);
        }
    }
}

/// Writes the requests with a target. A model whose priority has none is left out until one of its requests has counted.
fn write_targets(counts: &[(Arc<str>, (u64, u64))], text: &mut Text) {
    let help = "Requests for models of a priority with a target (pool.targets), by result: met if the first token came in time, missed if it came later or the request was refused after it had waited.";
    text.family("target_requests_total", Kind::Counter, help);
    for (model, (in_time, late)) in counts.iter().filter(|(_, counts)| *counts != (0, 0)) {
        text.sample(&[("model", model), ("result", "met")], *in_time as f64);
        text.sample(&[("model", model), ("result", "missed")], *late as f64);
    }
}

fn write_forecasts(compared: &ComparedWaits, text: &mut Text) {
    let help = "The first forecast of a wait divided by the wait, for waits of a second or longer that no order has altered.";
    text.family("wait_forecast_ratio", Kind::Histogram, help);
    let ratios = Histogram::counted(RATIO_BOUNDS, &compared.by_ratio, compared.ratio_sum);
    text.histogram(&[], &ratios);
    let help = "The same waits, by result: right if the forecast was within a fifth of the wait, or the wait within the range of the forecast.";
    text.family("wait_forecasts_total", Kind::Counter, help);
    let wrong = compared.waits() - compared.right;
    text.sample(&[("result", "right")], compared.right as f64);
    text.sample(&[("result", "wrong")], wrong as f64);
}

/// Returns a well-known status code, or else its class. Engines and remote services may return any number, and each would become a
/// time series.
fn known(code: u16) -> u16 {
    /// The client disconnected before the response.
    const CLIENT_LEFT: u16 = 499;
    let status = StatusCode::from_u16(code).ok();
    match status.and_then(|status| status.canonical_reason()) {
        Some(_) => code,
        None if code == CLIENT_LEFT => code,
        None => (code / 100).clamp(1, 5) * 100,
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            by_code: BTreeMap::new(),
            waited: Histogram::new(WAITS),
            first_token: Histogram::new(WAITS),
            lasted: Histogram::new(WAITS),
            prompt: 0,
            completion: 0,
            adapter_loads: 0,
        }
    }
}

impl Metrics {
    /// Renders the metrics in Prometheus's text format.
    pub(crate) async fn render(
        &self,
        handle: &Handle,
        reading: &Reading,
        traces: Option<&Traces>,
        (list, batches): (&GroupList, &BatchFigures),
        has_vllm_names: bool,
    ) -> Response {
        let mut text = Text::default();
        self.write_requests(&mut text);
        gauges::write_workers(&reading.workers().map(Workers::snapshot), &mut text);
        gauges::write(&handle.snapshot(), &mut text);
        if has_vllm_names {
            vllm::write(&handle.snapshot(), &self.all(), &mut text);
        }
        write_targets(&handle.first_tokens(), &mut text);
        write_forecasts(&handle.compared_waits(), &mut text);
        groups::write(list, &mut text);
        batches::write(batches, &mut text);
        gauges::write_load_path(&handle.load_path(), &mut text);
        gauges::write_store(handle.store(), &mut text);
        if let Some(traces) = traces {
            gauges::write_traces(traces.counts(), &mut text);
        }
        let mut counted = self.inner.history.lock().await;
        if let Err(fault) = counted.read(handle.store()).await {
            tracing::warn!(%fault, "could not read the history for the metrics; its counters are not updated");
        }
        counted.write(&mut text);
        drop(counted);
        (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            text.finish(),
        )
            .into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_status_codes_are_counted_by_class() {
        let metrics = Metrics::since(Time(0));
        (0..u16::MAX).for_each(|code| metrics.request("a", code));
        let models = metrics.inner.models.read().unwrap();
        let counts = models["a"].lock().unwrap();
        assert!(counts.by_code.len() < 80, "{:?}", counts.by_code.keys());
        for code in [429, 499, 503] {
            assert_eq!(counts.by_code[&code], 1, "{code}");
        }
    }

    #[test]
    fn requests_waits_and_tokens_are_counted_by_model() {
        let metrics = Metrics::since(Time(0));
        metrics.request("a", 200);
        metrics.clone().request("a", 200);
        metrics.request("a", 503);
        metrics.waited(&"a".into(), Duration::from_millis(200));
        metrics.tokens("b\"x\\\n", 10, 20);
        let mut text = Text::default();
        metrics.write_requests(&mut text);
        let text = text.finish();
        for line in [
            "# TYPE model_pool_requests_total counter",
            "model_pool_requests_total{model=\"a\",code=\"200\"} 2",
            "model_pool_requests_total{model=\"a\",code=\"503\"} 1",
            "model_pool_queue_wait_seconds_bucket{model=\"a\",le=\"0.1\"} 0",
            "model_pool_queue_wait_seconds_bucket{model=\"a\",le=\"0.25\"} 1",
            "model_pool_queue_wait_seconds_bucket{model=\"a\",le=\"+Inf\"} 1",
            "model_pool_queue_wait_seconds_sum{model=\"a\"} 0.2",
            "model_pool_queue_wait_seconds_count{model=\"a\"} 1",
            "model_pool_tokens_total{model=\"b\\\"x\\\\\\n\",kind=\"completion\"} 20",
        ] {
            assert!(
                text.lines().any(|known| known == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
