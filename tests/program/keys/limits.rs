//! Limits of requests and tokens, and their counts.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{CLOSED, admin, chat, header, key, pool};

#[test]
fn requests_per_minute_are_limited_and_the_refusal_gives_the_waiting_time() {
    let pool = pool("auth: {inference: key}\nlimits: {default: {requests_per_minute: 3}}\n");
    let (first, _) = key(&pool, json!({}));
    let (wide, id) = key(&pool, json!({"limits": {}}));
    for left in ["2", "1", "0"] {
        let (status, _, head) = chat(&pool, "small", &first);
        assert_eq!(status, 200);
        assert_eq!(header(&head, "x-ratelimit-limit-requests"), Some("3"));
        assert_eq!(header(&head, "x-ratelimit-remaining-requests"), Some(left));
        assert!(header(&head, "x-ratelimit-reset-requests").is_some());
    }
    let (status, refused, head) = chat(&pool, "small", &first);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (429, &json!("rate_limit_exceeded"))
    );
    assert_eq!(refused["error"]["type"], "requests");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("3 requests per minute"), "{message}");
    let retry: u64 = header(&head, "retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&retry), "{retry}");
    for _ in 0..6 {
        let (status, _, head) = chat(&pool, "small", &wide);
        assert_eq!(
            (status, header(&head, "x-ratelimit-limit-requests")),
            (200, None)
        );
    }
    admin(
        &pool,
        "PATCH",
        &format!("/keys?id={id}"),
        &json!({"limits": {"requests_per_minute": 1}}),
    );
    assert_eq!(
        (chat(&pool, "small", &wide).0, chat(&pool, "small", &wide).0),
        (200, 429)
    );
    let more = json!({"limits": {"tokens_per_day": 5}});
    let (_, changed) = admin(&pool, "PATCH", &format!("/keys?id={id}"), &more);
    assert_eq!(
        changed["limits"]["requests_per_minute"], 1,
        "what is not named stays"
    );
    assert_eq!(changed["limits"]["tokens_per_day"], 5);
}

#[test]
fn a_client_that_disconnects_before_usage_arrives_pays_for_the_received_tokens() {
    let pool = pool(CLOSED);
    let (key, _) = key(&pool, json!({"limits": {"tokens_per_minute": 15}}));
    let body = json!({"model": "slow", "stream": true, "messages": [{"role": "user", "content": "Hello"}]});
    let line = format!("Bearer {key}");
    let lines = [("Authorization", line.as_str())];
    let stream = pool.stream_with("/v1/chat/completions", &body.to_string(), &lines);
    wait_for("it to be answered", || stream.text().contains("content"));
    drop(stream);
    wait_for("nothing to be in flight", || {
        let (_, models) = admin(&pool, "GET", "/models?model=slow", &Value::Null);
        models["models"][0]["replicas"][0]["in_flight"] == 0
    });
    assert_eq!(chat(&pool, "small", &key).0, 429);
}

/// A model whose engine has this flag, and a request of 800 tokens.
fn odd(name: &str, flag: &[&str]) -> ((String, String), String) {
    let program = support::stub::stub_engine().display().to_string();
    let flags: Vec<String> = flag.iter().map(|word| format!(", {word:?}")).collect();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}{}]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n",
        flags.concat()
    );
    let words = "one two ".repeat(390);
    let body =
        json!({"model": name, "stream": true, "messages": [{"role": "user", "content": words}]});
    ((format!("{name}.yaml"), text), body.to_string())
}

#[test]
fn a_client_that_disconnects_before_the_first_token_pays_for_its_prompt() {
    let (mute, body) = odd("mute", &["--never-answer"]);
    let pool = Pool::with_models(&[mute], CLOSED);
    let (key, _) = key(&pool, json!({"limits": {"tokens_per_minute": 1000}}));
    let line = format!("Bearer {key}");
    let in_flight = || {
        let (_, models) = admin(&pool, "GET", "/models?model=mute", &Value::Null);
        models["models"][0]["replicas"][0]["in_flight"].clone()
    };
    let mut let_in = 0;
    for _ in 0..8 {
        let lines = [("Authorization", line.as_str())];
        let stream = pool.stream_with("/v1/chat/completions", &body, &lines);
        let mut is_in = false;
        wait_for("it to be at the engine, or refused", || {
            is_in = in_flight() == 1;
            is_in || stream.text().contains("rate_limit_exceeded")
        });
        let_in += u32::from(is_in);
        drop(stream);
        wait_for("nothing to be in flight", || in_flight() != 1);
    }
    assert_eq!(let_in, 2, "of 800 tokens each, where a minute has 1000");
}

#[test]
fn requests_refused_by_an_engine_or_dropped_from_the_queue_cost_no_tokens() {
    let (strict, refused) = odd("strict", &["--status", "400"]);
    let (late, waiting) = odd("late", &["--ready-after-ms", "600000"]);
    let pool = Pool::with_models(&[strict, late], CLOSED);
    let (key, _) = key(&pool, json!({"limits": {"tokens_per_minute": 1000}}));
    let line = format!("Bearer {key}");
    let lines = [("Authorization", line.as_str())];
    for _ in 0..4 {
        let chat = "/v1/chat/completions";
        let (status, text, _) = pool.request_with("POST", chat, &refused, &lines);
        assert_eq!(status, 400, "{text}");
        let stream = pool.stream_with(chat, &waiting, &lines);
        wait_for("it to wait", || stream.text().contains("waiting"));
        drop(stream);
        wait_for("the queue to be empty", || {
            let (_, queue) = admin(&pool, "GET", "/queue", &Value::Null);
            !queue.to_string().contains("\"position\"")
        });
    }
}

#[test]
fn used_tokens_are_counted_including_streams_and_daily_counts_survive_a_restart() {
    let mut pool = pool(CLOSED);
    let (minute, _) = key(&pool, json!({"limits": {"tokens_per_minute": 15}}));
    let (day, _) = key(&pool, json!({"limits": {"tokens_per_day": 15}}));
    for key in [&minute, &day] {
        let body = json!({"model": "small", "stream": true, "messages": [{"role": "user", "content": "Hello"}]});
        let line = format!("Bearer {key}");
        let stream = pool.stream_with(
            "/v1/chat/completions",
            &body.to_string(),
            &[("Authorization", &line)],
        );
        assert!(stream.whole().contains("[DONE]"));
    }
    // Ten tokens per response, plus the prompt's: one more request may still begin.
    wait_for("the tokens to be used up", || {
        chat(&pool, "small", &minute).0 == 429
    });
    wait_for("the daily tokens to be used up", || {
        chat(&pool, "small", &day).0 == 429
    });
    let (_, refused, head) = chat(&pool, "small", &minute);
    assert_eq!(refused["error"]["type"], "tokens");
    assert_eq!(header(&head, "x-ratelimit-remaining-tokens"), Some("0"));
    let (_, refused, _) = chat(&pool, "small", &day);
    assert_eq!(refused["error"]["code"], "insufficient_quota");
    pool.terminate();
    assert!(pool.wait(std::time::Duration::from_secs(30)));
    pool.restart();
    assert_eq!(chat(&pool, "small", &day).0, 429, "the day is the same");
    assert_eq!(
        chat(&pool, "small", &minute).0,
        200,
        "the minute is not kept"
    );
}

#[test]
fn concurrent_requests_are_counted_until_they_end_or_their_client_disconnects() {
    let pool = pool(CLOSED);
    let (key, _) = key(&pool, json!({"limits": {"concurrent_requests": 1}}));
    let line = format!("Bearer {key}");
    let body = json!({"model": "slow", "stream": true, "messages": [{"role": "user", "content": "Hello"}]});
    let begin = || {
        pool.stream_with(
            "/v1/chat/completions",
            &body.to_string(),
            &[("Authorization", &line)],
        )
    };
    let first = begin();
    wait_for("it to be answered", || first.text().contains("content"));
    let (status, refused, _) = chat(&pool, "small", &key);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (429, &json!("concurrency_limit_exceeded"))
    );
    drop(first);
    wait_for("the seat to be free", || {
        chat(&pool, "small", &key).0 == 200
    });
}

#[test]
fn a_model_limit_applies_to_all_callers_and_each_address_has_its_own() {
    let pool = pool(
        "limits: {models: {\"sm*\": {requests_per_minute: 2}}, anonymous: {requests_per_minute: 4}}\n",
    );
    let ask = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
        pool.post("/v1/chat/completions", &body.to_string())
    };
    assert_eq!((ask("small").0, ask("small").0), (200, 200));
    let (status, text) = ask("small");
    assert_eq!(status, 429);
    assert!(
        text.contains("the model small has reached its limit of 2"),
        "{text}"
    );
    assert_eq!(ask("other").0, 200);
    let (status, text) = ask("other");
    assert_eq!(status, 429, "tried ones count: {text}");
    assert!(text.contains("the address 127.0.0.1"), "{text}");
}
