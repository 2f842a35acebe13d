//! The export of metrics with programs that know OpenTelemetry's protocol: its published messages for Python, which decode the bodies
//! strictly (`tests/clients/otel_metrics.py`), and a collector (Rotel), which prints what it receives. `.ci/otel` installs both, and
//! without them these tests report that they were skipped.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::json;
use support::child::ChildGuard;
use support::external_programs::skipped;
use support::servers::request_of;
use support::service::{Pool, wait_for};

use crate::clients::{root, run};

const CHAT: &str = "/v1/chat/completions";

/// A program that `.ci/otel` installs.
fn installed(path: &str) -> Option<PathBuf> {
    let program = root().join("target/otel").join(path);
    if program.exists() {
        return Some(program);
    }
    let why = format!(
        "there is no {}. Install it with `bash .ci/otel`, and run `cargo test --test outside otel::`",
        program.display()
    );
    skipped("otel", &why);
    None
}

/// A pool with a virtual model, which sends its metrics to this address every second.
fn pool(address: &str, protocol: &str) -> Pool {
    let models = [support::stub::model(
        "writer",
        &["--tokens", "4", "--token-ms", "5"],
        "memory_gib: 0.5",
    )];
    let config = format!(
        "telemetry: {{metrics_endpoint: \"http://{address}/v1/metrics\", protocol: {protocol}, metrics_interval: 1s}}\nvirtual_models: {{coder: {{any_of: [writer]}}}}\n"
    );
    Pool::with_models(&models, &config)
}

/// Sends a request, and returns when its stream has ended.
fn ask(pool: &Pool, model: &str) {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": model, "stream": true, "messages": messages});
    let text = pool.stream(CHAT, &body.to_string()).whole();
    assert!(text.contains("[DONE]"), "{text}");
}

#[test]
fn the_published_messages_decode_both_encodings_strictly() {
    let Some(python) = installed("venv/bin/python") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("tests/clients/otel_metrics.py");
    for (protocol, name) in [("http/protobuf", "export.pb"), ("http/json", "export.json")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (bodies, received) = mpsc::channel();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if let Some((_, body)) = request_of(&socket) {
                    let _ = bodies.send(body);
                    let response =
                        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = (&socket).write_all(response.as_bytes());
                }
            }
        });
        let mut pool = pool(&address, protocol);
        for model in ["coder", "writer"] {
            ask(&pool, model);
        }
        // The last export, at the end, has the tokens of all requests.
        pool.terminate();
        assert!(pool.wait(Duration::from_secs(30)), "{}", pool.log());
        let last = received.try_iter().last().expect("an export");
        let file = folder.path().join(name);
        fs::write(&file, last).unwrap();
        let text = run(
            &python,
            &[script.to_str().unwrap(), file.to_str().unwrap()],
            &[],
        );
        // Two label sets with a duration, a first token, a time per token, and two kinds of tokens.
        assert_eq!(text.trim(), "10 points", "{protocol}");
    }
}

#[test]
fn a_collector_receives_the_metrics() {
    let Some(program) = installed("rotel") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let ports = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [http, grpc] = ports
        .each_ref()
        .map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    let log = folder.path().join("collector.log");
    let file = File::create(&log).unwrap();
    let mut command = Command::new(program);
    command
        .arg("start")
        .args(["--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc])
        .args(["--exporter", "blackhole", "--debug-log", "metrics"])
        .args(["--debug-log-verbosity", "detailed"])
        .current_dir(folder.path())
        .stdout(file.try_clone().unwrap())
        .stderr(file);
    let _collector = ChildGuard(command.spawn().unwrap());
    let said = || fs::read_to_string(&log).unwrap_or_default();
    wait_for("the collector", || said().contains("Starting Rotel"));
    let pool = pool(&http, "http/protobuf");
    ask(&pool, "coder");
    wait_for("the metrics in the collector's log", || {
        said().contains("-> gen_ai.token.type: Str(output)")
    });
    let said = said();
    for line in [
        "-> Name: gen_ai.server.request.duration",
        "-> Name: gen_ai.server.time_to_first_token",
        "-> Name: gen_ai.server.time_per_output_token",
        "-> Unit: {token}",
        "-> AggregationTemporality: AGGREGATION_TEMPORALITY_CUMULATIVE",
        "-> gen_ai.request.model: Str(coder)",
        "-> gen_ai.response.model: Str(writer)",
        "-> gen_ai.operation.name: Str(chat)",
        "-> gen_ai.token.type: Str(input)",
        "-> Name: gen_ai.client.token.usage",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert!(!said.contains("ERROR"), "{said}");
    assert!(!pool.log().contains("do not reach"), "{}", pool.log());
}
