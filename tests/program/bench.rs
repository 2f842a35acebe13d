//! `model-pool bench` with the stub engine, directly and through a pool. Its counts must equal the engine's.

mod unknown_model;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::servers::Stub;
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

fn stats(address: &str) -> Value {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /stats HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    let body = response.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap()
}

fn command(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-pool"));
    command.env_remove("MODEL_POOL_KEY");
    command.args(["bench", "--url", url]).args(words);
    command
}

fn bench(url: &str, words: &[&str]) -> Output {
    command(url, words).output().unwrap()
}

/// The result of a successful bench.
fn result(url: &str, words: &[&str]) -> Value {
    let output = bench(url, &[words, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args(["-INT", &pid]).status();
    assert!(status.unwrap().success());
}

#[test]
fn bench_counts_match_those_of_the_engine_and_the_pool() {
    let engine = stub_engine().display().to_string();
    let file = format!(
        "engine_config:\n  model_id: m\n  type: CommandEngine\n  listen: port\n  command: [{engine:?}, \"--port\", \"{{{{ port }}}}\"]\npool_config: {{priority: 0, memory_gib: 10}}\n"
    );
    let pool = Pool::with_models(&[("m.yaml".to_owned(), file)], "");
    let url = format!("http://{}/v1", pool.address());
    let plain = result(&url, &["--requests", "200", "--connections", "8"]);
    let streams = ["--requests", "100", "--connections", "4", "--stream"];
    let streams = result(&url, &streams);
    assert_eq!(
        (&plain["succeeded"], &plain["failed"]),
        (&200.into(), &0.into())
    );
    assert_eq!(plain["connections_opened"], 8, "they are kept alive");
    assert_eq!(plain["tokens"], 1000, "five an answer");
    assert_eq!(
        (&streams["succeeded"], &streams["tokens"]),
        (&100.into(), &500.into())
    );
    assert_eq!(streams["first_token_us"]["count"], 100);
    assert_eq!(streams["between_tokens_us"]["count"], 400);
    let record = pool.journal().remove(0)["endpoint"].to_string();
    let port = record
        .split_once("127.0.0.1:")
        .expect("a port of this machine")
        .1;
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("127.0.0.1:{port}");
    wait_for("the engine to have counted the same", || {
        let stats = stats(&address);
        (&stats["completed"], &stats["running"]) == (&300.into(), &0.into())
    });
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    let line = "model_pool_requests_total{model=\"m\",code=\"200\"} 300";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn failures_are_counted_by_status_and_code_and_fail_the_program_unless_allowed() {
    let engine = Stub::plain(&["--status", "503"]);
    let words = ["--model", "m", "--requests", "20"];
    let output = bench(&engine.url(), &words);
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        table.contains("failed 20 times: 503 invalid_request_error: it is always so"),
        "{table}"
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("20 of 20 requests failed; --allow-errors"),
        "{said}"
    );
    let allowed = bench(&engine.url(), &[&words[..], &["--allow-errors"]].concat());
    assert!(allowed.status.success());
    let nobody = bench(
        "http://127.0.0.1:9/v1",
        &words[..3].iter().copied().chain(["1"]).collect::<Vec<_>>(),
    );
    let table = String::from_utf8_lossy(&nobody.stdout);
    assert!(
        table.contains("failed 1 times: connection refused"),
        "{table}"
    );
}

#[test]
fn a_request_over_its_timeout_fails_and_the_engine_sees_the_disconnect() {
    let engine = Stub::plain(&["--never-answer"]);
    let words = [
        "--model",
        "m",
        "--requests",
        "2",
        "--timeout",
        "200ms",
        "--json",
        "--allow-errors",
    ];
    let output = bench(&engine.url(), &words);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["errors"]["timeout"]["count"], 2, "{told}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_measures_from_the_scheduled_time() {
    let engine = Stub::plain(&["--tokens", "4", "--token-ms", "50"]);
    let rate = [
        "--model",
        "m",
        "--rate",
        "40",
        "--arrivals",
        "constant",
        "--requests",
        "40",
    ];
    let free = result(&engine.url(), &rate);
    let seconds = free["seconds"].as_f64().unwrap();
    assert!(
        (1.1..4.0).contains(&seconds),
        "one after the other would be 8 s: {seconds}"
    );
    assert_eq!(stats(&engine.address)["completed"], 40);
    let words = [
        "--model",
        "m",
        "--rate",
        "100",
        "--arrivals",
        "constant",
        "--requests",
        "10",
        "--connections",
        "1",
    ];
    let jammed = result(&engine.url(), &words);
    let longest = jammed["latency_us"]["max"].as_f64().unwrap() / 1e6;
    assert!(
        longest > 1.8,
        "the last one was due after 0.09 s: {longest}"
    );
    let late = jammed["late_us"]["max"].as_f64().unwrap() / 1e6;
    assert!(late > 1.6 && late < longest, "{late}");
}

#[test]
fn warm_up_requests_are_sent_and_not_counted() {
    let engine = Stub::plain(&[]);
    let words = ["--model", "m", "--requests", "10", "--warm-up", "200ms"];
    let told = result(&engine.url(), &words);
    assert_eq!(
        (&told["requests"], &told["connections_opened"]),
        (&10.into(), &1.into())
    );
    assert!(stats(&engine.address)["completed"].as_u64().unwrap() > 10);
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    let engine = Stub::plain(&["--tokens", "2", "--token-ms", "5"]);
    let words = ["--model", "m", "--duration", "1h", "--connections", "3"];
    let mut command = command(&engine.url(), &words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("some answers", || {
        stats(&engine.address)["completed"].as_u64() > Some(20)
    });
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}");
    let line = table
        .lines()
        .find(|line| line.starts_with("requests"))
        .unwrap();
    let count: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    wait_for("the engine to be left alone", || {
        stats(&engine.address)["running"] == 0
    });
    let completed = stats(&engine.address)["completed"].as_u64().unwrap();
    assert!(
        count >= 20 && completed.abs_diff(count) <= 3,
        "{count} of {completed}"
    );
}

#[test]
fn idle_streams_stay_open_until_the_bench_is_interrupted() {
    let engine = Stub::plain(&["--stuck-after", "1"]);
    let words = ["--model", "m", "--idle-streams", "20"];
    let mut command = command(&engine.url(), &words);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("20 of 20 streams are open"), "{line}");
    assert_eq!(stats(&engine.address)["running"], 20);
    interrupt(&child);
    assert!(child.wait().unwrap().success());
    wait_for("the streams to be closed", || {
        stats(&engine.address)["abandoned"] == 20
    });
}

#[test]
fn bench_uses_the_only_model_by_default_and_requires_a_name_if_there_are_several() {
    let engine = Stub::plain(&["--model", "lonely"]);
    let told = result(&engine.url(), &["--requests", "1"]);
    assert_eq!(told["model"], "lonely");
    let pool = Pool::demo();
    let url = format!("http://{}/v1", pool.address());
    let output = bench(&url, &["--requests", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("lists 3 models") && said.contains("--model"),
        "{said}"
    );
}

#[test]
fn bench_supports_http_2_with_prior_knowledge() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    let accepting = async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let response = hyper::service::service_fn(|request: hyper::Request<_>| async move {
                let _: hyper::body::Incoming = request.into_body();
                let body = http_body_util::Full::new(bytes::Bytes::from_static(
                    br#"{"choices":[],"usage":{"completion_tokens":7}}"#,
                ));
                Ok::<_, std::convert::Infallible>(hyper::Response::new(body))
            });
            let executor = hyper_util::rt::TokioExecutor::new();
            let server = hyper::server::conn::http2::Builder::new(executor);
            connections
                .spawn(server.serve_connection(hyper_util::rt::TokioIo::new(socket), response));
        }
    };
    tasks.spawn_on(accepting, runtime.handle());
    let told = result(
        &url,
        &[
            "--http2",
            "--model",
            "m",
            "--requests",
            "50",
            "--connections",
            "2",
        ],
    );
    assert_eq!(
        (&told["tokens"], &told["connections_opened"]),
        (&350.into(), &2.into())
    );
    runtime.shutdown_timeout(Duration::from_secs(1));
}
