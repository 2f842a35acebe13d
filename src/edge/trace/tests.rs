//! Tests of trace sampling, and of the spans created from marks.

use std::time::Duration;

use super::*;
use crate::trace::request::TraceEnd;
use axum::http::Request;
use pool::Time;
use telemetry::{Encoding, ExporterSettings, Span, Value};

fn traces(ratio: f64) -> Arc<Traces> {
    let settings = ExporterSettings {
        url: "http://127.0.0.1:1/v1/traces".parse().unwrap(),
        headers: axum::http::HeaderMap::new(),
        encoding: Encoding::Json,
        service_name: "test".to_owned(),
    };
    let (exporter, _task) = Exporter::new(settings).unwrap();
    let (loads, clock) = (LoadTimeline::default(), Clock::start());
    Arc::new(Traces::new(exporter, ratio, loads, clock, "/llm"))
}

fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Later than any mark.
const NOW: Time = Time(u64::MAX);
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn spans_are_named_after_inference_routes_only() {
    let traces = traces(1.0);
    let of = |method: &str, path: &str| {
        let parts = head(method, path, &[]);
        traces.name_of(&parts.method, parts.uri.path())
    };
    let below_base = "/llm/v1/chat/completions";
    assert_eq!(of("POST", below_base), Some("POST /v1/chat/completions"));
    assert_eq!(of("POST", "/query/any"), Some("POST /query/{model}"));
    assert_eq!(of("POST", "/v1/what-ever-a-client-sends"), Some("POST"));
    for path in ["/llm/admin/load", "/metrics", "/llm/votes", "/llm/session"] {
        assert_eq!(of("POST", path), None, "{path}");
    }
    assert_eq!(of("GET", "/v1/models"), None);
}

#[test]
fn a_clients_trace_is_continued_with_its_sampling_decision() {
    let begin = |ratio, headers: &[(&str, &str)]| {
        let parts = head("POST", "/v1/chat/completions", headers);
        let trace = traces(ratio).begin(&parts).unwrap();
        (trace.is_sampled(), trace.attempt("/v1/chat/completions", 1))
    };
    let (is_sampled, out) = begin(0.0, &[("traceparent", PARENT), ("tracestate", "a=1")]);
    assert!(is_sampled);
    let sent = out.traceparent.to_str().unwrap();
    assert!(
        sent.starts_with(&PARENT[..36]) && sent.ends_with("-01"),
        "{sent}"
    );
    assert_ne!(sent, PARENT);
    assert_eq!(out.tracestate.unwrap(), "a=1");
    let unsampled = PARENT.replace("-01", "-00");
    let (is_sampled, out) = begin(1.0, &[("traceparent", &unsampled)]);
    assert!(!is_sampled);
    // The engine must not make its own sampling decision.
    assert!(out.traceparent.to_str().unwrap().ends_with("-00"));
    assert!(!begin(0.0, &[]).0);
    assert!(begin(1.0, &[("traceparent", "nonsense")]).0);
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

#[test]
fn spans_form_a_tree_of_nested_intervals() {
    let parts = head("POST", "/v1/chat/completions", &[("traceparent", PARENT)]);
    let trace = traces(1.0).begin(&parts).unwrap();
    let pause = || std::thread::park_timeout(Duration::from_millis(2));
    trace.queued("m", NOW);
    pause();
    trace.seated(7);
    trace.attempt("/v1/chat/completions", 7);
    pause();
    trace.first_token();
    trace.first_token();
    pause();
    let spans = trace.spans(&TraceEnd {
        status: Some(200),
        path: "/v1/chat/completions".to_owned(),
        model: Some("m".to_owned()),
        completion_tokens: 3,
        is_complete: true,
        ..TraceEnd::default()
    });
    let root = named(&spans, "POST /v1/chat/completions");
    assert!(root.has_remote_parent);
    assert_eq!(root.parent.unwrap().to_string(), "00f067aa0ba902b7");
    let engine = named(&spans, "inference");
    let [queue, first, rest] = ["queue", "first_token", "answer"].map(|name| named(&spans, name));
    assert_eq!(
        [queue.parent, engine.parent, first.parent, rest.parent],
        [
            Some(root.id),
            Some(root.id),
            Some(engine.id),
            Some(engine.id)
        ]
    );
    assert!(root.start_unix_nanos <= queue.start_unix_nanos);
    assert!(queue.end_unix_nanos <= engine.start_unix_nanos);
    assert_eq!(first.end_unix_nanos, rest.start_unix_nanos);
    assert_eq!(rest.end_unix_nanos, root.end_unix_nanos);
    for span in &spans {
        assert_eq!(span.trace, root.trace);
        assert!(span.start_unix_nanos <= span.end_unix_nanos, "{span:?}");
        assert_eq!(span.error, None, "{span:?}");
    }
    let tokens = engine
        .attributes
        .iter()
        .find(|attribute| attribute.key == "gen_ai.usage.output_tokens");
    assert_eq!(tokens.unwrap().value, Value::Integer(3));
    for (span, key, expected) in [
        (root, "gen_ai.operation.name", "chat"),
        (root, "gen_ai.provider.name", "model_pool"),
        (engine, "gen_ai.response.model", "m"),
    ] {
        let found = span
            .attributes
            .iter()
            .find(|attribute| attribute.key == key);
        let expected = Value::Text(expected.to_owned());
        assert_eq!(
            found.map(|attribute| &attribute.value),
            Some(&expected),
            "{key}"
        );
    }
}

#[test]
fn operations_are_named_by_the_route_in_the_conventions_of_opentelemetry() {
    for (path, expected) in [
        ("/v1/chat/completions", Some("chat")),
        ("/v1/responses", Some("chat")),
        ("/llm/v1/messages", Some("chat")),
        ("/v1/completions", Some("text_completion")),
        ("/api/generate", Some("text_completion")),
        ("/v1/embeddings", Some("embeddings")),
        ("/v1/rerank", Some("rerank")),
        ("/query/m", None),
    ] {
        let parts = head("POST", path, &[]);
        let trace = traces(1.0).begin(&parts).expect("a trace");
        let spans = trace.spans(&TraceEnd {
            path: path.to_owned(),
            model: Some("m".to_owned()),
            ..TraceEnd::default()
        });
        let attributes = &spans[0].attributes;
        let found = attributes
            .iter()
            .find(|found| found.key == "gen_ai.operation.name");
        let expected = expected.map(|name| Value::Text(name.to_owned()));
        assert_eq!(found.map(|found| found.value.clone()), expected, "{path}");
    }
}

#[test]
fn a_refused_request_has_an_error_on_its_queue_span_and_spans_are_bounded() {
    let parts = head("POST", "/v1/completions", &[]);
    let trace = traces(1.0).begin(&parts).unwrap();
    for _ in 0..100 {
        trace.queued("m", NOW);
        trace.attempt("/v1/models", 1);
    }
    trace.refused("queue_full", "the queue of m is full");
    let spans = trace.spans(&TraceEnd {
        status: Some(429),
        is_complete: true,
        ..TraceEnd::default()
    });
    assert!(spans.len() < 20, "{}", spans.len());
    let root = named(&spans, "POST /v1/completions");
    // A client error is not an error of the server's span.
    assert_eq!(root.error, None);
    let last = spans.iter().rfind(|span| span.name == "queue").unwrap();
    let why = "queue_full: the queue of m is full";
    assert_eq!(last.error.as_deref(), Some(why));
}
