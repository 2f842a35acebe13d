//! Traces and metrics over OTLP: the spans and histograms that a collector receives, the trace context from the client to the engine,
//! and collectors that are down or silent.

mod collector;
mod metrics;
mod mistakes;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::servers::{KEY, dead_url};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

use collector::{Collector, Spans, attribute, field, milliseconds, times};

const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

/// A model with the stub engine, which prints the trace context it receives.
fn model(name: &str, memory_gib: u32, flags: &str) -> (String, String) {
    let program = stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --print-header, traceparent, --print-header, tracestate, --print-header, host{flags}]\npool_config: {{memory_gib: {memory_gib}}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn ask(model: &str, stream: bool) -> String {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
        .to_string()
}

/// Output of the model's engine.
fn printed(pool: &Pool) -> String {
    let files = fs::read_dir(pool.data().join("logs")).into_iter().flatten();
    let texts = files.flatten().map(|file| fs::read_to_string(file.path()));
    texts.flatten().collect()
}

#[test]
fn a_cold_request_is_a_single_trace_from_the_client_to_the_engine() {
    let collector = Collector::start();
    let flags = ", --ready-after-ms, \"300\", --tokens, \"4\", --token-ms, \"25\"";
    let config = collector.section("protocol: http/json, service_name: lab");
    let pool = Pool::with_models(&[model("m", 1, flags)], &config);
    let began = SystemTime::now();
    let traceparent = traceparent();
    let lines = [
        ("traceparent", traceparent.as_str()),
        ("tracestate", "lab=7"),
        ("x-request-id", "mine-1"),
    ];
    let response = pool.stream_with(CHAT, &ask("m", true), &lines);
    assert!(response.whole().contains("[DONE]"));
    let most = u64::try_from(began.elapsed().unwrap().as_millis()).unwrap();
    let root_name = "POST /v1/chat/completions";
    let spans = collector.trace_with(root_name);
    let root = spans.get(root_name);
    assert_eq!(root["traceId"], TRACE);
    assert_eq!(root["parentSpanId"], PARENT);
    assert_eq!(root["kind"], 2);
    assert_eq!(root["traceState"], "lab=7");
    assert_eq!(attribute(root, "http.response.status_code"), "200");
    assert_eq!(attribute(root, "gen_ai.request.model"), "m");
    assert_eq!(attribute(root, "gen_ai.operation.name"), "chat");
    assert_eq!(attribute(root, "gen_ai.provider.name"), "model_pool");
    assert_eq!(attribute(root, "model_pool.request.id"), "mine-1");
    assert_eq!(root["status"], json!({}));
    for (name, parent) in [
        ("queue", root_name),
        ("load", "queue"),
        ("start", "load"),
        ("inference", root_name),
        ("first_token", "inference"),
        ("answer", "inference"),
    ] {
        spans.is_child(name, parent);
    }
    // The engine takes 300 ms until it is ready.
    let of = |name: &str| milliseconds(spans.get(name));
    assert!(of(root_name) <= most, "{} and {most}", of(root_name));
    assert!(
        of("start") >= 250 && of("queue") >= of("start"),
        "{spans:#?}"
    );
    // Before each of its four tokens the engine pauses for 25 ms.
    assert!(of("first_token") + of("answer") >= 75, "{spans:#?}");
    assert!(times(spans.get("queue"))[1] <= times(spans.get("inference"))[0]);
    let events = spans.get("start")["events"].as_array().unwrap();
    assert_eq!(events.last().unwrap()["name"], "ready", "{events:?}");
    let devices = &attribute(spans.get("start"), "model_pool.devices")["values"];
    assert_eq!(devices, &json!([{"stringValue": "gpu0"}]));
    let replica = attribute(spans.get("queue"), "model_pool.replica.id");
    let inference = spans.get("inference");
    assert_eq!(attribute(inference, "model_pool.replica.id"), replica);
    assert_eq!(attribute(inference, "gen_ai.usage.output_tokens"), "4");
    assert_eq!(attribute(inference, "gen_ai.response.model"), "m");
    // The engine's own spans belong to the request to it.
    let span = inference["spanId"].as_str().unwrap();
    let sent = format!("traceparent: 00-{TRACE}-{span}-01\n");
    wait_for("the engine's output", || printed(&pool).contains(&sent));
    assert!(printed(&pool).contains("tracestate: lab=7\n"));
    let resource = collector.received.lock().unwrap()[0].1.clone();
    let resource: Value = serde_json::from_slice(&resource).unwrap();
    let resource = &resource["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), "lab");

    // The model is ready for the second request, which does not wait. It brings no trace and starts a new one.
    let (status, text) = pool.post(CHAT, &ask("m", false));
    assert_eq!(status, 200, "{text}");
    wait_for("the second trace", || {
        let spans = collector.spans();
        let mut second = spans.iter().filter(|span| span["traceId"] != TRACE);
        second.any(|span| span["name"] == root_name && span.get("parentSpanId").is_none())
    });
    let spans = collector.spans();
    let second = spans.iter().filter(|span| span["traceId"] != TRACE);
    let names: Vec<&str> = second.map(|span| span["name"].as_str().unwrap()).collect();
    assert!(
        !names.contains(&"queue") && names.contains(&"inference"),
        "{names:?}"
    );
    assert!(collector.heads()[0].starts_with("POST /v1/traces HTTP/1.1\r\n"));
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    assert!(metrics.contains("model_pool_trace_spans_total{result=\"dropped\"} 0\n"));
}

#[test]
fn a_load_span_shows_the_time_to_make_room_and_the_requests_that_joined() {
    let collector = Collector::start();
    let config = collector.section("protocol: http/json");
    let low = model("low", 10, ", --tokens, \"20\", --token-ms, \"40\"");
    let (name, text) = model("high", 10, ", --ready-after-ms, \"200\"");
    let high = (
        name,
        text.replace("{memory_gib: 10}", "{memory_gib: 10, priority: 1}"),
    );
    let pool = Pool::with_models(&[low, high], &config);
    let busy = pool.stream(CHAT, &ask("low", true));
    wait_for("the first token", || busy.text().contains("data: "));
    let traces = [TRACE.to_owned(), TRACE.replace("4bf9", "0bf9")];
    let send = |trace: &str| {
        let context = format!("00-{trace}-{PARENT}-01");
        pool.stream_with(CHAT, &ask("high", true), &[("traceparent", &context)])
    };
    let first = send(&traces[0]);
    wait_for("a comment about the wait", || {
        first.text().starts_with(": ")
    });
    let second = send(&traces[1]);
    for response in [&busy, &first, &second] {
        assert!(response.whole().contains("[DONE]"), "{}", response.text());
    }
    let [first, second] =
        traces.map(|trace| collector.trace_of(&trace, "POST /v1/chat/completions"));
    for (name, parent) in [("make_room", "load"), ("start", "load"), ("load", "queue")] {
        first.is_child(name, parent);
        second.is_child(name, parent);
    }
    // The victim has 20 tokens of 40 ms to finish.
    let of = |spans: &Spans, name: &str| milliseconds(spans.get(name));
    assert!(of(&first, "make_room") >= 300, "{first:#?}");
    assert!(of(&first, "start") >= 150, "{first:#?}");
    let began_before = |spans: &Spans| {
        let key = "model_pool.load.began_before";
        attribute(spans.get("load"), key).clone()
    };
    assert_eq!(
        [&first, &second].map(began_before),
        [json!(false), json!(true)]
    );
    // It contains the part of the load for which it waited.
    assert_eq!(times(second.get("load"))[0], times(second.get("queue"))[0]);
    assert!(of(&second, "make_room") < of(&first, "make_room"));
}

#[test]
fn a_refused_request_and_a_failed_load_say_why_in_their_traces() {
    let collector = Collector::start();
    let config = collector.section("protocol: http/json");
    let files = [
        model("broken", 1, ", --fail-load, \"out of luck\""),
        model("large", 40, ""),
    ];
    let pool = Pool::with_models(&files, &config);
    let (status, text) = pool.post(CHAT, &ask("large", false));
    assert!(status >= 400, "{text}");
    let spans = collector.trace_with("POST /v1/chat/completions");
    let queue = spans.get("queue");
    assert_eq!(queue["status"]["code"], 2);
    let why = queue["status"]["message"].as_str().unwrap();
    assert!(why.contains("GiB"), "{why}");
    let root = spans.get("POST /v1/chat/completions");
    assert_eq!(attribute(root, "gen_ai.request.model"), "large");
    let code: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(attribute(root, "error.type"), &code["error"]["code"]);
    assert_eq!(
        attribute(root, "http.response.status_code"),
        &json!(status.to_string())
    );
    assert!(spans.0.iter().all(|span| span["name"] != "inference"));

    let lines = [("traceparent", traceparent())];
    let lines = lines
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let (status, text, _) = pool.request_with("POST", CHAT, &ask("broken", false), &lines);
    assert_eq!(status, 503, "{text}");
    let spans = collector.trace_of(TRACE, "POST /v1/chat/completions");
    spans.is_child("start", "load");
    let why = spans.get("start")["status"]["message"].as_str().unwrap();
    assert!(why.contains("out of luck"), "{why}");
    assert_eq!(spans.get("queue")["status"]["code"], 2);
    // An error of the server.
    assert_eq!(spans.get("POST /v1/chat/completions")["status"]["code"], 2);
}

#[test]
fn the_standard_otel_variables_suffice_and_protocol_buffers_are_the_default() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let headers = format!("authorization=Bearer%20{KEY},x-team=lab");
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()),
        ("OTEL_SERVICE_NAME", "from-the-variable"),
        ("OTEL_TRACES_SAMPLER_ARG", "0"),
    ];
    let pool = Pool::with_env(&[model("m", 1, "")], "", &env);
    // Only requests that the client samples are sampled.
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    let traceparent = traceparent();
    let lines = [("traceparent", traceparent.as_str())];
    let (status, text, _) = pool.request_with("POST", CHAT, &ask("m", false), &lines);
    assert_eq!(status, 200, "{text}");
    wait_for("the export", || !collector.heads().is_empty());
    let (head, body) = collector.received.lock().unwrap()[0].clone();
    let head = head.to_lowercase();
    for line in [
        "post /v1/traces http/1.1",
        "content-type: application/x-protobuf",
        "x-team: lab",
        &format!("authorization: bearer {KEY}"),
    ] {
        assert!(head.contains(&format!("{line}\r\n")), "{line} in {head}");
    }
    let resource_spans = field(&body, 1).remove(0);
    let resource = field(&resource_spans, 1).remove(0);
    let service = field(&field(&resource, 1)[0], 2).remove(0);
    assert_eq!(field(&service, 1)[0], b"from-the-variable");
    let scope_spans = field(&resource_spans, 2).remove(0);
    let spans = field(&scope_spans, 2);
    let names: BTreeMap<String, &Vec<u8>> = spans
        .iter()
        .map(|span| (String::from_utf8(field(span, 5).remove(0)).unwrap(), span))
        .collect();
    let root = names["POST /v1/chat/completions"];
    let hexadecimal =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    assert_eq!(hexadecimal(&field(root, 1)[0]), TRACE);
    assert_eq!(hexadecimal(&field(root, 4)[0]), PARENT);
    assert_eq!(field(names["inference"], 4), field(root, 2));
    // The secret appears nowhere, and the configuration names the variables.
    let get = |path: &str| pool.request("GET", path, "", Some(&pool.admin_key())).1;
    let origins = get("/llm/admin/config/origins");
    assert!(origins.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{origins}");
    let config = get("/llm/admin/config");
    assert!(config.contains("from-the-variable"), "{config}");
    assert!(!config.contains(KEY) && !origins.contains(KEY) && !pool.log().contains(KEY));
}

#[test]
fn without_an_endpoint_no_traces_are_produced() {
    let pool = Pool::with_models(&[model("m", 1, "")], "");
    let traceparent = traceparent();
    let lines = [("traceparent", traceparent.as_str())];
    let (status, text, _) = pool.request_with("POST", CHAT, &ask("m", false), &lines);
    assert_eq!(status, 200, "{text}");
    wait_for("the engine's output", || printed(&pool).contains("host: "));
    assert!(
        !printed(&pool).contains("traceparent"),
        "{}",
        printed(&pool)
    );
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    assert!(!metrics.contains("trace_spans"));
}

fn count(pool: &Pool, result: &str) -> u64 {
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    let name = format!("model_pool_trace_spans_total{{result=\"{result}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("the metric").parse().unwrap()
}

const NOT_REACHED: &str = "traces do not reach the collector";

#[test]
fn an_unreachable_collector_causes_one_log_line_and_fails_no_request() {
    let endpoint = dead_url().replace("/v1", "");
    let config = format!("telemetry: {{endpoint: \"{endpoint}\"}}\n");
    let mut pool = Pool::with_models(&[model("m", 1, "")], &config);
    for _ in 0..20 {
        assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    }
    wait_for("the line of the log", || pool.log().contains(NOT_REACHED));
    // After five attempts the spans are dropped.
    wait_for("the dropped spans", || count(&pool, "dropped") > 0);
    assert_eq!(count(&pool, "exported"), 0);
    assert_eq!(pool.log().matches(NOT_REACHED).count(), 1, "{}", pool.log());
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(15)), "{}", pool.log());
}

#[test]
fn a_collector_that_never_responds_delays_neither_requests_nor_shutdown() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let config = format!("telemetry: {{endpoint: \"{endpoint}\"}}\n");
    let mut pool = Pool::with_models(&[model("m", 1, "")], &config);
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    let (mut held, _) = silent.accept().unwrap();
    let began = SystemTime::now();
    for _ in 0..20 {
        assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    }
    let took = began.elapsed().unwrap();
    assert!(took < Duration::from_secs(5), "{took:?}");
    let mut head = [0; 16];
    held.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"POST /v1/traces ");
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(15)), "{}", pool.log());
}

#[test]
fn spans_refused_by_a_collector_are_counted_and_pending_ones_are_sent_at_shutdown() {
    let refusing = Collector::that_answers(
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\nconnection: close\r\n\r\nno thanks",
    );
    let config = refusing.section("protocol: http/json");
    let pool = Pool::with_models(&[model("m", 1, "")], &config);
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    wait_for("the refusal", || count(&pool, "rejected") > 0);
    pool.wait_for_log("400 Bad Request: no thanks");
    // It is not sent again.
    assert_eq!(refusing.heads().len(), 1);

    let collector = Collector::start();
    let config = collector.section("protocol: http/json");
    let mut pool = Pool::with_models(&[model("m", 1, "")], &config);
    assert_eq!(pool.post(CHAT, &ask("m", false)).0, 200);
    // Immediately, before a batch is due.
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(15)), "{}", pool.log());
    collector.trace_with("POST /v1/chat/completions");
}
