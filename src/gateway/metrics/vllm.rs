//! Metrics under the names of vLLM, for dashboards, routers and autoscalers that know them (`server.vllm_metrics`). The label is the
//! model's name in the catalogue; a model counts with all its replicas, whatever engine they have.

use super::text::{Kind, Text};
use super::{Counts, Histogram};
use controller::Snapshot;

/// Writes the state of the models and the counts of their requests.
pub(super) fn write(snapshot: &Snapshot, counts: &[(String, Counts)], text: &mut Text) {
    let models = &snapshot.pool.models;
    let help = "Requests that have a seat at a replica of the model.";
    text.foreign_family("vllm:num_requests_running", Kind::Gauge, help);
    for model in models {
        let running: u32 = model.replicas.iter().map(|replica| replica.in_flight).sum();
        text.sample(&[("model_name", &model.name)], f64::from(running));
    }
    let help = "Requests that wait for a seat, also while the model is not loaded.";
    text.foreign_family("vllm:num_requests_waiting", Kind::Gauge, help);
    for model in models {
        text.sample(&[("model_name", &model.name)], f64::from(model.waiting));
    }
    write_counts(counts, text);
}

type HistogramOf = fn(&Counts) -> &Histogram;
type TotalOf = fn(&Counts) -> u64;

/// A family of vLLM's: its name, its help and its value for a model.
type Family<T> = (&'static str, &'static str, T);

fn write_counts(counts: &[(String, Counts)], text: &mut Text) {
    let histograms: [Family<HistogramOf>; 3] = [
        (
            "vllm:time_to_first_token_seconds",
            "Time from the arrival of a request to the first token of its response, for responses that the engine streams.",
            |counts| &counts.first_token,
        ),
        (
            "vllm:e2e_request_latency_seconds",
            "Time from the arrival of a request to the end of its response, without refused and failed ones.",
            |counts| &counts.lasted,
        ),
        (
            "vllm:request_queue_time_seconds",
            "Time that requests waited for a seat.",
            |counts| &counts.waited,
        ),
    ];
    for (name, help, histogram) in histograms {
        text.foreign_family(name, Kind::Histogram, help);
        for (model, counts) in counts {
            text.histogram(&[("model_name", model)], histogram(counts));
        }
    }
    let totals: [Family<TotalOf>; 2] = [
        ("vllm:prompt_tokens_total", "Tokens of prompts.", |counts| {
            counts.prompt
        }),
        (
            "vllm:generation_tokens_total",
            "Tokens of responses.",
            |counts| counts.completion,
        ),
    ];
    for (name, help, total) in totals {
        text.foreign_family(name, Kind::Counter, help);
        for (model, counts) in counts {
            text.sample(&[("model_name", model)], total(counts) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::Metrics;
    use pool::Time;

    #[test]
    fn counts_appear_under_the_names_of_vllm_with_the_name_of_the_model() {
        let metrics = Metrics::since(Time(0));
        metrics.lasted("org/m", Duration::from_secs(2));
        metrics.first_token("org/m", Duration::from_millis(30));
        metrics.tokens("org/m", 7, 5);
        let mut text = Text::default();
        write_counts(&metrics.all(), &mut text);
        let text = text.finish();
        for line in [
            "# TYPE vllm:e2e_request_latency_seconds histogram",
            "vllm:e2e_request_latency_seconds_bucket{model_name=\"org/m\",le=\"1\"} 0",
            "vllm:e2e_request_latency_seconds_bucket{model_name=\"org/m\",le=\"2.5\"} 1",
            "vllm:e2e_request_latency_seconds_sum{model_name=\"org/m\"} 2",
            "vllm:time_to_first_token_seconds_count{model_name=\"org/m\"} 1",
            "vllm:prompt_tokens_total{model_name=\"org/m\"} 7",
            "vllm:generation_tokens_total{model_name=\"org/m\"} 5",
        ] {
            let has_line = text.lines().any(|known| known == line);
            assert!(has_line, "{line} is not in\n{text}");
        }
    }
}
