//! The program from a user's perspective: the real binary with the demo models over HTTP.
//! One file because every test uses one program as a user does.

use std::time::Duration;

use support::service::{Pool, wait_for};
use support::table;

mod encoders;
mod speech;
mod vision;

fn chat(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","stream":{stream},"temperature":0,"messages":[{{"role":"user","content":"What is a priority?"}}]}}"#
    )
}

/// A model with the stub as engine. The device of 16 GiB holds only a single one.
fn stub(name: &str, priority: u32, flags: &[&str]) -> (String, String) {
    let config = format!("priority: {priority}, memory_gib: 10");
    support::stub::model(name, flags, &config)
}

#[test]
fn each_demo_model_responds_and_its_stream_has_the_same_text() {
    let pool = Pool::demo();
    for model in ["tiny-guide", "tiny-chat", "tiny-helper"] {
        let (status, plain) = pool.post("/v1/chat/completions", &chat(model, false));
        assert_eq!(status, 200, "{plain}");
        let plain: serde_json::Value = serde_json::from_str(&plain).unwrap();
        let text = plain["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(text.contains("priorit"), "{model} said: {text}");
        assert!(plain["usage"]["completion_tokens"].as_u64().unwrap() > 3);
        let (status, stream) = pool.post("/v1/chat/completions", &chat(model, true));
        assert_eq!(status, 200);
        let streamed: String = stream
            .lines()
            .filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ")?).ok()
            })
            .filter_map(|chunk| {
                chunk["choices"][0]["delta"]["content"]
                    .as_str()
                    .map(str::to_owned)
            })
            .collect();
        assert_eq!(streamed, text);
        assert!(stream.trim_end().ends_with("data: [DONE]"), "{stream}");
    }
}

#[test]
fn a_preempted_stream_ends_with_an_error_that_names_the_preempting_model() {
    let long = ["--tokens", "600", "--token-ms", "50"];
    let pool = Pool::with_models(
        &[stub("low", 0, &long), stub("high", 1, &[])],
        "pool: {preempt_drain: 300ms}\n",
    );
    let stream = pool.stream("/v1/chat/completions", &chat("low", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let (status, response) = pool.post("/v1/chat/completions", &chat("high", false));
    assert_eq!(status, 200, "{response}");
    let end = stream.whole();
    let last = end.trim_end().lines().last().unwrap_or_default().to_owned();
    assert!(
        last.contains(r#""code":"preempted""#) && last.contains("high") && last.contains("(P2)"),
        "{end}"
    );
    assert!(!end.contains("[DONE]"), "a cut stream is not done: {end}");
}

#[test]
fn a_waiting_stream_reports_its_position_and_its_data_stays_valid() {
    let slow = ["--ready-after-ms", "1200"];
    let pool = Pool::with_models(&[stub("slow", 0, &slow)], "");
    let (status, text) = pool.post("/v1/chat/completions", &chat("slow", true));
    assert_eq!(status, 200);
    assert!(text.contains(": waiting position=1 stage="), "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    for line in data.filter(|line| *line != "[DONE]") {
        let chunk: serde_json::Value = serde_json::from_str(line).expect("data is JSON");
        assert_eq!(chunk["object"], "chat.completion.chunk");
    }
}

#[test]
fn a_failed_load_returns_the_engines_message_and_other_models_are_served() {
    let fails = ["--fail-load", "no tensor named lm_head"];
    let pool = Pool::with_models(&[stub("broken", 0, &fails), stub("whole", 0, &[])], "");
    let (status, body, headers) =
        pool.request("POST", "/v1/chat/completions", &chat("broken", false), None);
    assert_eq!(status, 503, "{body}");
    assert!(
        body.contains("no tensor named lm_head") && body.contains("load_failed"),
        "{body}"
    );
    assert!(headers.contains("retry-after"), "{headers}");
    let (status, body) = pool.post("/v1/chat/completions", &chat("broken", false));
    assert!(status == 503 && body.contains("cooling_down"), "{body}");
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("whole", false)).0,
        200
    );
}

#[test]
fn an_engine_crash_ends_the_stream_with_an_error() {
    let pool = Pool::with_models(
        &[stub(
            "fragile",
            0,
            &["--tokens", "50", "--crash-mid-stream", "5"],
        )],
        "",
    );
    let (status, text) = pool.post("/v1/chat/completions", &chat("fragile", true));
    assert_eq!(status, 200);
    assert!(
        text.contains("engine_crashed") && !text.contains("[DONE]"),
        "{text}"
    );
}

/// A request | its status | a part of its message
const BAD_REQUESTS: &str = r#"
    POST | /v1/chat/completions | not json | 400 | line 1
    POST | /v1/chat/completions | {} | 400 | `model` is missing
    POST | /v1/chat/completions | {"model":"tiny-chta","messages":[]} | 404 | tiny-chat
    POST | /v1/chat/completions | {"model":7} | 400 | must be a string
    POST | /v1/chat/completions | {"model":"tiny-chat","messages":"x"} | 400 | messages
    POST | /v1/chat/completions | {"model":"tiny-chat","messages":[{"role":"user","content":"x"}],"max_tokens":-1} | 400 | max_tokens
    GET | /v1/chat/completions |  | 405 | is not allowed for
    GET | /nowhere |  | 404 | /llm/docs
    POST | /v1/embeddings | {"model":"tiny-chat","input":"x"} | 501 | embedded engine
    POST | /v1/images/edits | {} | 400 | multipart/form-data
    POST | /v1/fine_tuning/jobs | {} | 501 | is not supported
    POST | /v1/audio/speech | {"model":"tiny-chat","input":"x"} | 501 | embedded engine
    POST | /llm/admin/load | {"model":"tiny-chat"} | 401 | admin key
"#;

/// The same for loads.
const BAD_LOADS: &str = r#"
    {"model":"tiny-chat","priority":-1} | 400 | priority
    {"model":"tiny-chat","gpus":0} | 400 | gpus
    {"model":"tiny-chat","gpus":4} | 409 | 4 devices per replica were requested
    {"model":"tiny-chat","lease":"soon"} | 400 | lease
    {"model":"nobody"} | 404 | nobody
"#;

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let pool = Pool::demo();
    for [method, path, body, status, words] in table::rows_of(BAD_REQUESTS) {
        let (got, text, _) = pool.request(method, path, body, None);
        assert_eq!(got.to_string(), status, "{method} {path} {body}: {text}");
        assert!(
            text.contains(words) && text.contains("\"error\""),
            "{method} {path} {body}: {text}"
        );
    }
    let huge = format!(r#"{{"model":"tiny-chat","x":"{}"}}"#, "y".repeat(11 << 20));
    assert_eq!(pool.post("/v1/chat/completions", &huge).0, 413);
    let admin = |path: &str, body: &str| pool.request("POST", path, body, Some(&pool.admin_key()));
    for [body, status, words] in table::rows_of(BAD_LOADS) {
        let (got, text, _) = admin("/llm/admin/load", body);
        assert_eq!(got.to_string(), status, "{body}: {text}");
        assert!(text.contains(words), "{body}: {text}");
    }
    assert_eq!(
        pool.request("POST", "/llm/admin/load", "{}", Some("mp-wrong"))
            .0,
        403
    );
}

#[test]
fn a_change_acknowledged_to_an_administrator_survives_kill_9() {
    let mut pool = Pool::demo();
    let key = pool.admin_key();
    for priority in 1..=12 {
        let body = format!(r#"{{"priority":{priority}}}"#);
        let (status, text, _) = pool.request(
            "PATCH",
            "/llm/admin/models?model=tiny-chat",
            &body,
            Some(&key),
        );
        assert_eq!(status, 200, "{text}");
        if priority % 4 == 0 {
            let mut engines = Vec::new();
            wait_for("an engine", || {
                engines = pool.engine_pids();
                !engines.is_empty()
            });
            pool.kill_and_restart();
            wait_for("engines of the dead controller to be gone", || {
                engines
                    .iter()
                    .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
            });
            let (_, shown, _) =
                pool.request("GET", "/llm/admin/models?model=tiny-chat", "", Some(&key));
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(shown["models"][0]["priority"], priority, "{shown}");
        }
    }
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("tiny-chat", false))
            .0,
        200
    );
}

#[test]
fn a_loaded_model_is_loaded_again_after_kill_9_with_its_history_kept() {
    let mut pool = Pool::demo();
    let key = pool.admin_key();
    let (status, text, _) = pool.request(
        "POST",
        "/llm/admin/load",
        r#"{"model":"tiny-chat"}"#,
        Some(&key),
    );
    assert_eq!(status, 200, "{text}");
    pool.kill_and_restart();
    wait_for("the wish to be carried out", || {
        let (_, shown, _) =
            pool.request("GET", "/llm/admin/models?model=tiny-chat", "", Some(&key));
        shown.contains(r#""state":"ready""#)
    });
    let (_, events, _) = pool.request("GET", "/llm/admin/events?model=tiny-chat", "", Some(&key));
    let events: serde_json::Value = serde_json::from_str(&events).unwrap();
    let events = events["events"].as_array().unwrap().iter();
    let loads = events
        .filter(|event| event["kind"] == "load")
        .map(|event| event["replica"].to_string());
    let mut numbers: Vec<String> = loads.collect();
    assert!(numbers.len() >= 2, "before and after: {numbers:?}");
    numbers.dedup();
    assert!(
        numbers.len() >= 2,
        "a replica's number is never given again: {numbers:?}"
    );
}

#[test]
fn a_second_sigterm_exits_immediately_and_ends_running_streams_with_an_error() {
    let talk = ["--tokens", "500", "--token-ms", "40"];
    let mut pool = Pool::with_models(&[stub("talker", 0, &talk)], "");
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    pool.terminate();
    wait_for("the drain to begin", || pool.log().contains("stopping"));
    pool.terminate();
    let text = stream.whole();
    assert!(text.contains("\"code\":\"shutting_down\""), "{text}");
    assert!(pool.wait(Duration::from_secs(10)), "it ends");
}

#[test]
fn after_sigterm_a_stream_finishes_and_no_process_remains() {
    let talk = ["--tokens", "20", "--token-ms", "40"];
    let mut pool = Pool::with_models(&[stub("talker", 0, &talk)], "");
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let engines = pool.engine_pids();
    pool.terminate();
    assert!(
        stream.whole().trim_end().ends_with("data: [DONE]"),
        "{}",
        stream.text()
    );
    assert!(
        pool.wait(Duration::from_secs(20)),
        "the service exits on its own"
    );
    assert!(
        engines
            .iter()
            .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    );
}

#[test]
fn a_client_that_leaves_the_queue_causes_no_load() {
    let hold = ["--tokens", "30", "--token-ms", "50"];
    let pool = Pool::with_models(&[stub("busy", 0, &hold), stub("other", 0, &[])], "");
    let key = pool.admin_key();
    let stream = pool.stream("/v1/chat/completions", &chat("busy", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let leaver = pool.stream("/v1/chat/completions", &chat("other", false));
    wait_for("the request to wait", || {
        pool.request("GET", "/llm/admin/queue", "", Some(&key))
            .1
            .contains(r#""model":"other""#)
    });
    drop(leaver);
    wait_for("the queue to be empty", || {
        !pool
            .request("GET", "/llm/admin/queue", "", Some(&key))
            .1
            .contains(r#""model":"other""#)
    });
    stream.whole();
    let (_, events, _) = pool.request("GET", "/llm/admin/events?model=other", "", Some(&key));
    assert!(!events.contains(r#""kind":"load""#), "{events}");
}

#[test]
fn an_impossible_start_is_refused_with_one_clear_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let cases = [
        (
            format!("server: {{listen: \"127.0.0.1:{port}\"}}\n"),
            "cannot listen on",
        ),
        ("server: {lisen: \"127.0.0.1:0\"}\n".to_owned(), "listen"),
        ("state: {dir: /proc/nowhere}\n".to_owned(), "/proc/nowhere"),
        (
            "evening: {cleanup: \"99 * * * * *\"}\n".to_owned(),
            "not a cron expression",
        ),
    ];
    for (config, words) in cases {
        let (status, text) = Pool::refused(&config);
        assert_eq!(status, Some(1), "{config}: {text}");
        let line = text.lines().last().unwrap_or_default();
        assert!(
            line.starts_with("model-pool: ") && text.contains(words),
            "{config}: {text}"
        );
    }
}

#[test]
fn the_evening_cleanup_empties_the_pool_at_its_cron_time() {
    let pool = Pool::demo_with(
        "evening: {cleanup: \"*/2 * * * * *\", reopen: \"0 0 0 1 1 *\", timezone: UTC}\n",
    );
    wait_for("the cleanup", || pool.log().contains("cleanup the pool:"));
    let key = pool.admin_key();
    wait_for("the pool to be empty", || {
        let (_, models, _) = pool.request("GET", "/llm/admin/models", "", Some(&key));
        !models.contains(r#""state":"ready""#)
    });
}
