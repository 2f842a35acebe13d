//! Metrics over OTLP under the conventions for generative AI: names, labels and buckets, the same counts as Prometheus, and collectors
//! that refuse or delay them.

use std::time::Duration;

use serde_json::{Value, json};
use support::servers::KEY;
use support::service::{Pool, wait_for};

use super::collector::{Collector, attribute, field};
use super::{CHAT, ask, model};

const DURATION: &str = "gen_ai.server.request.duration";
const FIRST_TOKEN: &str = "gen_ai.server.time_to_first_token";
const PER_TOKEN: &str = "gen_ai.server.time_per_output_token";
const USAGE: &str = "gen_ai.client.token.usage";
const NOT_REACHED: &str = "metrics do not reach the collector";

/// The points of a metric in the newest export.
fn points(collector: &Collector, name: &str) -> Vec<Value> {
    let Some(newest) = collector.metrics().pop() else {
        return Vec::new();
    };
    let metrics = &newest["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let metrics = metrics.as_array().expect("metrics");
    let metric = metrics.iter().find(|metric| metric["name"] == name);
    metric.map_or(Vec::new(), |metric| {
        assert_eq!(metric["histogram"]["aggregationTemporality"], 2);
        let points = metric["histogram"]["dataPoints"].as_array();
        points.expect("points").clone()
    })
}

/// The point whose attributes have these values, and no others with these keys.
fn point(collector: &Collector, name: &str, labels: &[(&str, &str)]) -> Value {
    let points = points(collector, name);
    let has = |point: &&Value| {
        labels.iter().all(|(key, value)| {
            let attributes = point["attributes"].as_array().unwrap();
            let found = attributes.iter().find(|found| found["key"] == *key);
            found.is_some_and(|found| found["value"]["stringValue"] == *value)
        })
    };
    let mut found = points.iter().filter(has);
    let point = found.next();
    let point = point.unwrap_or_else(|| panic!("no {labels:?} in {points:#?}"));
    assert!(found.next().is_none(), "{labels:?} twice in {points:#?}");
    point.clone()
}

fn number(point: &Value, field: &str) -> u64 {
    point[field].as_str().unwrap().parse().unwrap()
}

fn prometheus(pool: &Pool, line: &str) -> u64 {
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    let found = metrics.lines().find_map(|found| found.strip_prefix(line));
    let found = found.unwrap_or_else(|| panic!("no {line} in\n{metrics}"));
    found.trim().parse().unwrap()
}

#[test]
fn requests_are_exported_as_the_metrics_of_the_conventions_for_generative_ai() {
    let collector = Collector::start();
    let section = "protocol: http/json, service_name: lab, metrics_interval: 1s";
    let config = format!(
        "{}virtual_models: {{coder: {{any_of: [m]}}}}\n",
        collector.section(section)
    );
    let files = [
        model("m", 1, ", --tokens, \"5\", --token-ms, \"25\""),
        model("large", 40, ""),
    ];
    let pool = Pool::with_models(&files, &config);
    let response = pool.stream(CHAT, &ask("coder", true));
    assert!(response.whole().contains("[DONE]"), "{}", response.text());
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    let (status, text) = pool.post(CHAT, &ask("large", false));
    assert!(status >= 400, "{text}");
    let refused: Value = serde_json::from_str(&text).unwrap();
    // An unknown name does not become a label.
    assert_eq!(pool.post(CHAT, &ask("made-up-by-a-client", false)).0, 404);
    wait_for("all requests at the collector", || {
        let points = points(&collector, DURATION);
        let counted: u64 = points.iter().map(|point| number(point, "count")).sum();
        counted == 3 && points_have_usage(&collector)
    });

    let virtual_one = [
        ("gen_ai.request.model", "coder"),
        ("gen_ai.response.model", "m"),
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "model_pool"),
    ];
    let duration = point(&collector, DURATION, &virtual_one);
    assert_eq!(number(&duration, "count"), 1);
    assert!(duration["sum"].as_f64().unwrap() >= 0.1, "{duration:#}");
    let bounds = json!([
        0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92
    ]);
    assert_eq!(duration["explicitBounds"], bounds);
    assert_eq!(duration["bucketCounts"].as_array().unwrap().len(), 15);
    let keys: Vec<&Value> = duration["attributes"].as_array().unwrap().iter().collect();
    assert!(keys.iter().all(|found| found["key"] != "error.type"));
    let first = point(&collector, FIRST_TOKEN, &virtual_one);
    assert_eq!(number(&first, "count"), 1);
    // Four tokens follow the first, at 25 ms each.
    let per_token = point(&collector, PER_TOKEN, &virtual_one);
    assert_eq!(number(&per_token, "count"), 1);
    let seconds = per_token["sum"].as_f64().unwrap();
    assert!(seconds >= 0.015, "{per_token:#}");

    let large = [("gen_ai.request.model", "large")];
    let error = point(&collector, DURATION, &large);
    assert_eq!(attribute(&error, "error.type"), &refused["error"]["code"]);

    // One measurement, two exports.
    let usage = points(&collector, USAGE);
    for (kind, own) in [("prompt", "input"), ("completion", "output")] {
        let of_kind = usage
            .iter()
            .filter(|point| attribute(point, "gen_ai.token.type") == own);
        let tokens: f64 = of_kind.map(|point| point["sum"].as_f64().unwrap()).sum();
        let line = format!("model_pool_tokens_total{{model=\"m\",kind=\"{kind}\"}}");
        assert_eq!(tokens as u64, prometheus(&pool, &line), "{kind}");
    }
    let line = "model_pool_requests_total{model=\"m\",code=\"200\"}";
    assert_eq!(prometheus(&pool, line), 2);

    let all = collector.metrics();
    let newest = all.last().unwrap();
    let resource = &newest["resourceMetrics"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), "lab");
    let instance = attribute(resource, "service.instance.id");
    assert_eq!(instance.as_str().unwrap().len(), 36);
    let text = newest.to_string();
    for secret in ["Hello", "made-up-by-a-client"] {
        assert!(!text.contains(secret), "{text}");
    }
    // Later exports continue the same counts.
    let times = |export: &Value| {
        let metrics = &export["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        let point = &metrics["histogram"]["dataPoints"][0];
        let start = number(point, "startTimeUnixNano");
        (start, number(point, "timeUnixNano"), number(point, "count"))
    };
    let before = times(newest);
    assert!(before.0 < before.1);
    wait_for("another export", || collector.metrics().len() > all.len());
    let after = times(collector.metrics().last().unwrap());
    assert_eq!((after.0, after.2), (before.0, before.2));
    assert!(after.1 > before.1);
}

/// Returns true if both successful requests have their tokens, which are counted when their seats are free.
fn points_have_usage(collector: &Collector) -> bool {
    let points = points(collector, USAGE);
    let outputs = points
        .iter()
        .filter(|point| attribute(point, "gen_ai.token.type") == "output");
    outputs.map(|point| number(point, "count")).sum::<u64>() == 2
}

#[test]
fn the_standard_variables_suffice_for_metrics_alone() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let headers = format!("authorization=Bearer%20{KEY}");
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
    ];
    let pool = Pool::with_env(&[model("m", 1, "")], "", &env);
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    wait_for("the export", || !collector.heads().is_empty());
    let received = collector.received.lock().unwrap().clone();
    for (head, _) in &received {
        let head = head.to_lowercase();
        for line in [
            "post /v1/metrics http/1.1",
            "content-type: application/x-protobuf",
            &format!("authorization: bearer {KEY}"),
        ] {
            assert!(head.contains(&format!("{line}\r\n")), "{line} in {head}");
        }
    }
    let resource_metrics = field(&received[0].1, 1).remove(0);
    let scope_metrics = field(&resource_metrics, 2).remove(0);
    let metric = field(&scope_metrics, 2).remove(0);
    assert_eq!(field(&metric, 1)[0], DURATION.as_bytes());
    assert_eq!(field(&metric, 3)[0], b"s");
    let histogram = field(&metric, 9).remove(0);
    let point = field(&histogram, 1).remove(0);
    assert_eq!(field(&point, 4)[0], 1_u64.to_le_bytes());
    assert_eq!(field(&point, 6)[0].len(), 15 * 8);
    assert_eq!(field(&point, 7)[0].len(), 14 * 8);
    assert_eq!(field(&point, 7)[0][..8], 0.01_f64.to_le_bytes());
    assert!(!pool.log().contains(KEY));
}

#[test]
fn metrics_stay_off_if_the_standard_variable_names_no_exporter() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    let mut pool = Pool::with_env(&[model("m", 1, "")], "", &env);
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(15)), "{}", pool.log());
    // The last exports are over, and the spans arrived.
    collector.trace_with("POST /v1/chat/completions");
    assert_eq!(collector.metrics(), Vec::<Value>::new());
}

#[test]
fn the_last_counts_are_sent_at_the_end() {
    let collector = Collector::start();
    let config = collector.section("protocol: http/json, metrics_interval: 1h");
    let mut pool = Pool::with_models(&[model("m", 1, "")], &config);
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(15)), "{}", pool.log());
    let label = [("gen_ai.request.model", "m")];
    assert_eq!(number(&point(&collector, DURATION, &label), "count"), 1);
}

#[test]
fn a_collector_that_refuses_metrics_causes_one_line_and_gets_all_counts_later() {
    for (response, said) in [
        (
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "429 Too Many Requests",
        ),
        (
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy",
            "503 Service Unavailable: busy",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 72\r\nconnection: close\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"2\",\"errorMessage\":\"too many\"}}\n",
            "it refused 2 points: too many",
        ),
    ] {
        let collector = Collector::that_answers(response);
        let endpoint = format!("http://{}/v1/metrics", collector.address);
        let config = format!(
            "telemetry: {{metrics_endpoint: \"{endpoint}\", protocol: http/json, metrics_interval: 1s}}\n"
        );
        let mut pool = Pool::with_models(&[model("m", 1, "")], &config);
        for _ in 0..20 {
            assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
        }
        pool.wait_for_log(said);
        let label = [("gen_ai.request.model", "m")];
        wait_for("an export after the failure", || {
            let exports = collector.metrics().len();
            exports >= 3 && number(&point(&collector, DURATION, &label), "count") == 20
        });
        assert_eq!(pool.log().matches(NOT_REACHED).count(), 1, "{}", pool.log());
        pool.terminate();
        assert!(pool.wait(Duration::from_secs(15)), "{}", pool.log());
    }
}
