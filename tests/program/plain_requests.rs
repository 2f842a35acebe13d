//! Requests without `stream` that are forwarded as such: the response's bytes, a client that disconnects, a frozen engine, a long
//! response, and requests that remain streams.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::double::vllm_double;
use support::machine::{GIB, Machine};
use support::net::{connect, engine, head, rest};
use support::service::{Pool, split, wait_for};

/// vLLM's double on a fake GPU: keys of its `pool_config`, its variables as YAML, and additional configuration.
struct Double {
    pool: Pool,
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for Double {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

fn double(keys: &str, env: &str, config: &str) -> Double {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", 80 * GIB);
    let state = machine.state_file().display().to_string();
    let program = vllm_double().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: told\n  type: VLLMEngine\n  hf_model_id: org/told\n  fetch: engine\n  program: {program:?}\n  max_total_tokens: 4096\n  env: {{MODEL_POOL_FAKE_NVML: {state:?}, VLLM_DOUBLE_LOAD_MS: '20', {env}}}\npool_config: {{memory_gib: 40, {keys}}}\n"
    );
    let files = [("told.yaml".to_owned(), text)];
    let pool = Pool::on_gpus(&files, &machine.library(), config);
    load(&pool, "told");
    Double {
        pool,
        _folder: folder,
    }
}

fn chat(more: &Value) -> String {
    let mut body = json!({"model": "told", "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body.to_string()
}

/// Loads the model and waits until the engine's numbers have been read.
fn load(pool: &Pool, model: &str) {
    let body =
        json!({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    wait_for("the engine's numbers", || {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        text.contains(&format!("model_pool_engine_requests{{model=\"{model}\""))
    });
}

fn post(body: &str) -> String {
    let length = format!("Content-Length: {}\r\nConnection: close\r\n", body.len());
    head("POST", "/v1/chat/completions", &length) + body
}

/// The double's own response.
fn direct(pool: &Pool, body: &str) -> String {
    let mut socket = TcpStream::connect(engine(pool, "told")).expect("the engine");
    socket.write_all(post(body).as_bytes()).expect("sent");
    split(rest(&mut socket).as_bytes()).1
}

/// A value of the engine's own metrics.
fn number(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.rsplit(' ').next());
    let value = value.and_then(|value| value.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no {name} in {metrics}")) as u64
}

fn of_double(pool: &Pool, name: &str) -> u64 {
    let mut socket = TcpStream::connect(engine(pool, "told")).expect("the engine");
    let ask = head("GET", "/metrics", "Connection: close\r\n");
    socket.write_all(ask.as_bytes()).expect("sent");
    number(&rest(&mut socket), &format!("vllm:{name}{{"))
}

fn plain_requests(pool: &Pool) -> u64 {
    of_double(pool, "double_plain_requests_total")
}

#[test]
fn a_non_streaming_response_passes_byte_for_byte_and_its_tokens_are_counted() {
    let pool = double("", "VLLM_DOUBLE_TOKENS: '7'", "");
    let before = plain_requests(&pool);
    let counted = |kind: &str| {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        let name = format!("model_pool_tokens_total{{model=\"told\",kind=\"{kind}\"}}");
        number(&text, &name)
    };
    let tokens = (counted("prompt"), counted("completion"));
    let body = chat(&json!({"stream": false}));
    let (status, text, head) = pool.request("POST", "/v1/chat/completions", &body, None);
    assert_eq!(status, 200, "{text}");
    assert_eq!(
        plain_requests(&pool),
        before + 1,
        "it received a plain request"
    );
    assert_eq!(text, direct(&pool, &body));
    assert!(
        head.contains("content-type: application/json\r\n"),
        "{head}"
    );
    assert!(head.contains("x-model-pool-replica: r1\r\n"), "{head}");
    let length = format!("content-length: {}\r\n", text.len());
    assert!(head.contains(&length), "{head}");
    assert_eq!(
        (counted("prompt"), counted("completion")),
        (tokens.0 + 3, tokens.1 + 7)
    );
    // An error keeps its status and its words.
    let wrong = chat(&json!({"top_logprobs": 99, "logprobs": true}));
    let (status, text) = pool.post("/v1/chat/completions", &wrong);
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("Requested sample logprobs of 99"), "{text}");
}

#[test]
fn a_non_streaming_request_is_sent_as_a_stream_if_tokens_are_limited() {
    let limits = "limits: {anonymous: {tokens_per_minute: 100000}}\n";
    let pool = double("", "VLLM_DOUBLE_TOKENS: '7'", limits);
    let (status, text) = pool.post("/v1/chat/completions", &chat(&json!({})));
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(response["object"], "chat.completion");
    assert_eq!(response["usage"]["completion_tokens"], 7);
    assert_eq!(plain_requests(&pool), 0);
}

#[test]
fn a_client_that_disconnects_from_a_non_streaming_request_stops_the_work() {
    let env = "VLLM_DOUBLE_TOKENS: '100000', VLLM_DOUBLE_TOKEN_MS: '5'";
    let pool = double("", env, "");
    let before = plain_requests(&pool);
    let mut socket = connect(&pool);
    socket
        .write_all(post(&chat(&json!({}))).as_bytes())
        .expect("sent");
    wait_for("the request to run", || {
        plain_requests(&pool) == before + 1 && of_double(&pool, "num_requests_running") == 1
    });
    drop(socket);
    wait_for("the work to end", || {
        of_double(&pool, "num_requests_running") == 0
    });
    assert!(of_double(&pool, "generation_tokens_total") < 100_000);
}

#[test]
fn a_client_that_disconnects_from_a_non_streaming_request_stops_the_embedded_engine() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-guide");
    let text = format!(
        "engine_config: {{model_id: tiny, type: CandleEngine, model_path: {folder:?}, engine_kwargs: {{threads: 1, concurrency: 8}}}}\n"
    );
    let pool = Pool::with_models(&[("tiny.yaml".to_owned(), text)], "");
    load(&pool, "tiny");
    let endpoint = pool.journal()[0]["endpoint"]["unix"].clone();
    let path = endpoint.as_str().expect("a socket").to_owned();
    let own = |name: &str| {
        let mut socket = UnixStream::connect(&path).expect("the engine");
        let ask = head("GET", "/metrics", "Connection: close\r\n");
        socket.write_all(ask.as_bytes()).expect("sent");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("a response");
        number(&text, &format!("candle_engine_{name} "))
    };
    // Each choice is as long as the context allows: 500 tokens.
    let body = json!({"model": "tiny", "n": 8, "ignore_eos": true, "messages": [{"role": "user", "content": "Hi"}]});
    // On a busy machine the request may end before its client has left.
    let stops_early = || {
        let before = own("sampled_tokens_total");
        let mut socket = connect(&pool);
        socket
            .write_all(post(&body.to_string()).as_bytes())
            .expect("sent");
        wait_for("tokens", || own("sampled_tokens_total") > before);
        drop(socket);
        wait_for("the work to end", || own("requests_running") == 0);
        own("sampled_tokens_total") - before < 8 * 400
    };
    assert!(
        (0..5).any(|_| stops_early()),
        "every request ran to its end"
    );
}

#[test]
fn an_engine_stuck_in_a_non_streaming_request_is_found_by_its_token_counter() {
    let env =
        "VLLM_DOUBLE_TOKENS: '100', VLLM_DOUBLE_TOKEN_MS: '100', VLLM_DOUBLE_FREEZES_AFTER: '20'";
    let limits = "stall_after: 1s, first_token_after: 10m, idle_probe: off";
    let pool = double(limits, env, "");
    let began = SystemTime::now();
    let (status, text) = pool.post("/v1/chat/completions", &chat(&json!({})));
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("engine_crashed"), "{text}");
    let took = began.elapsed().expect("the clock advances");
    assert!(
        took > Duration::from_secs(2),
        "it computed for a while: {took:?}"
    );
    pool.wait_for_log("while 1 request waits");
}

#[test]
fn an_engine_with_an_advancing_token_counter_is_alive_during_a_long_response() {
    let env = "VLLM_DOUBLE_TOKENS: '20', VLLM_DOUBLE_TOKEN_MS: '200'";
    let limits = "stall_after: 1s, first_token_after: 1s, idle_probe: off";
    let pool = double(limits, env, "");
    let before = plain_requests(&pool);
    let (status, text) = pool.post("/v1/chat/completions", &chat(&json!({})));
    assert_eq!(status, 200, "{text}");
    assert_eq!(plain_requests(&pool), before + 1);
}

/// Peak memory of a process.
fn peak_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn a_long_non_streaming_response_is_passed_through_without_buffering() {
    let tokens = "VLLM_DOUBLE_TOKENS: '2000000'";
    let pool = double("", tokens, "");
    let expected = direct(&pool, &chat(&json!({})));
    assert!(expected.len() > 10 << 20, "{}", expected.len());
    let before = peak_kib(pool.pid());
    let mut socket = connect(&pool);
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    socket
        .write_all(post(&chat(&json!({}))).as_bytes())
        .expect("sent");
    let text = rest(&mut socket);
    let (status, body, head) = split(text.as_bytes());
    assert_eq!(status, 200);
    let length = format!("content-length: {}", expected.len());
    assert!(head.contains(&length), "{head}");
    assert!(
        body == expected,
        "{} bytes of {}",
        body.len(),
        expected.len()
    );
    // The system counts pages in batches, and a later figure can be lower.
    let grown = peak_kib(pool.pid()).saturating_sub(before);
    assert!(grown < 6 << 10, "{grown} KiB for {} bytes", expected.len());
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    let name = "model_pool_tokens_total{model=\"told\",kind=\"completion\"}";
    assert!(number(&metrics, name) > 2_000_000, "{metrics}");
}
