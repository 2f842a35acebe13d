//! Responses with far too much of one thing. Each costs time in proportion to its bytes in every API, and the service serves other
//! requests in this time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::cost::processor_time;
use support::service::Pool;
use support::stub;

const COUNT: usize = 2_000;
/// Four times the size takes about four times as long; quadratic cost would take sixteen times as long.
const TIMES_FOR_FOUR: u32 = 9;
/// Shorter times consist mostly of the fixed cost of a request and clock ticks.
const LEAST: Duration = Duration::from_millis(100);
/// Maximum time of a health check on a busy machine.
const WELL_WITHIN: Duration = Duration::from_secs(3);

/// An engine's stream with this many of one thing.
type Stream = fn(usize) -> String;

const STREAMS: &[(&str, Stream)] = &[
    ("answers in one event", |count| {
        event(each(count, |nth| choice(nth, json!({"content": "a"}))))
    }),
    ("an answer with each event", |count| {
        let events = each(count, |nth| {
            event(vec![choice(nth, json!({"content": "a"}))])
        });
        events.concat()
    }),
    ("calls in one event", |count| {
        event(vec![choice(0, json!({"tool_calls": each(count, call)}))])
    }),
    ("a call with each event", |count| {
        let events = each(count, |nth| {
            event(vec![choice(0, json!({"tool_calls": [call(nth)]}))])
        });
        events.concat()
    }),
    ("one call in many pieces", |count| {
        let piece = json!({"index": 0, "function": {"name": "f", "arguments": "{}"}});
        event(vec![choice(0, json!({"tool_calls": [piece]}))]).repeat(count)
    }),
    ("a text and a thought in turn", |count| {
        let [text, thought] = ["content", "reasoning_content"];
        let one = event(vec![choice(0, json!({text: "a"}))]);
        (one + &event(vec![choice(0, json!({thought: "b"}))])).repeat(count / 2)
    }),
    ("log probabilities", |count| {
        let token = json!({"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []});
        let mut choice = choice(0, json!({"content": "a"}));
        choice["logprobs"] = json!({"content": vec![token; count]});
        event(vec![choice])
    }),
    ("fields", |count| {
        let fields = each(count, |nth| (format!("f{nth}"), json!(nth))).into_iter();
        let fields: serde_json::Map<String, Value> = fields.collect();
        event(vec![choice(0, Value::Object(fields))])
    }),
    ("comments", |count| ":\n\n".repeat(count)),
    ("ends", |count| {
        let end = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
        event(vec![end; count])
    }),
];

fn each<T>(count: usize, of: impl FnMut(usize) -> T) -> Vec<T> {
    (0..count).map(of).collect()
}

fn choice(index: usize, delta: Value) -> Value {
    json!({"index": index, "delta": delta, "finish_reason": null})
}

fn call(index: usize) -> Value {
    json!({"index": index, "id": format!("c{index}"), "function": {"name": "f", "arguments": ""}})
}

fn event(choices: Vec<Value>) -> String {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bad", "choices": choices});
    format!("data: {chunk}\n\n")
}

/// Each translated API, and the chat itself.
fn requests() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let mut requests = Vec::new();
    for stream in [false, true] {
        let chat = json!({"model": "bad", "stream": stream, "messages": messages});
        let mut message = chat.clone();
        message["max_tokens"] = json!(9);
        let response = json!({"model": "bad", "stream": stream, "input": "Hi", "store": false});
        requests.extend([
            ("/v1/chat/completions", chat.clone()),
            ("/v1/messages", message),
            ("/v1/responses", response),
            ("/api/chat", chat),
        ]);
    }
    requests
}

/// Ends the watch, also when the test fails.
struct EndWatch<'a>(&'a AtomicBool);

impl Drop for EndWatch<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Repeats health checks until stopped, and returns the longest time.
fn longest_wait(pool: &Pool, enough: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !enough.load(Ordering::SeqCst) {
        let began = SystemTime::now();
        let (status, text, _) = pool.request("GET", "/llm/health", "", None);
        assert_eq!(status, 200, "{text}");
        longest = longest.max(began.elapsed().unwrap_or_default());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    longest
}

/// A model whose engine sends the bytes of this file.
fn streaming(file: &Path) -> (String, String) {
    let path = file.display().to_string();
    stub::model(
        "bad",
        &["--raw-file", &path],
        "memory_gib: 0.5, idle_probe: off",
    )
}

#[test]
fn four_times_the_input_takes_about_four_times_as_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stream");
    let bad = streaming(&file);
    let pool = Pool::with_models(&[bad], "compat: {ollama: true}\n");
    let taken = |stream: &str, path: &str, body: &Value| {
        fs::write(&file, format!("{stream}data: [DONE]\n\n")).expect("written");
        let before = processor_time(pool.pid());
        let (status, text, _) = pool.request_unchecked("POST", path, &body.to_string());
        let shown: String = text.chars().take(300).collect();
        assert!([200, 502].contains(&status), "{path}: {status} {shown}");
        processor_time(pool.pid()) - before
    };
    let requests = requests();
    taken(
        &event(vec![choice(0, json!({"content": "a"}))]),
        requests[0].0,
        &requests[0].1,
    );
    let enough = AtomicBool::new(false);
    let mut wrong = Vec::new();
    let longest = std::thread::scope(|scope| {
        let watched = EndWatch(&enough);
        let watch = scope.spawn(|| longest_wait(&pool, &enough));
        for (kind, stream) in STREAMS {
            for (path, body) in &requests {
                let one = taken(&stream(COUNT), path, body);
                let four = taken(&stream(4 * COUNT), path, body);
                if four > one.max(LEAST) * TIMES_FOR_FOUR {
                    wrong.push(format!(
                        "{path} {}: {kind}: {one:?}, {four:?}",
                        body["stream"]
                    ));
                }
            }
        }
        drop(watched);
        watch.join().expect("it is well")
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(longest < WELL_WITHIN, "not well for {longest:?}");
}

#[test]
fn an_engine_that_returns_more_choices_than_requested_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stream");
    let bad = streaming(&file);
    let pool = Pool::with_models(&[bad], "");
    let of = |count: usize| event(each(count, |nth| choice(nth, json!({"content": "a"}))));
    let chat = |responses: usize| {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        json!({"model": "bad", "n": responses, "messages": messages}).to_string()
    };
    fs::write(&file, of(3) + "data: [DONE]\n\n").expect("written");
    let (status, text) = pool.post("/v1/chat/completions", &chat(3));
    assert_eq!(status, 200, "{text}");
    assert_eq!(text.matches("\"index\"").count(), 3, "{text}");
    let (status, text) = pool.post("/v1/chat/completions", &chat(2));
    assert_eq!(status, 502, "{text}");
    assert!(
        text.contains("the engine of bad") && text.contains("more choices than the 2 requested"),
        "{text}"
    );
}
