//! Permissions, limits and lifetimes of keys, with the real program.
//! One file because every test creates a key and uses it.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

/// A model with responses of ten tokens that take `token_ms` each.
fn model(name: &str, token_ms: u32) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"10\", --token-ms, \"{token_ms}\"]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn pool(config: &str) -> Pool {
    Pool::with_models(
        &[model("small", 1), model("other", 1), model("slow", 200)],
        config,
    )
}

const CLOSED: &str = "auth: {inference: key}\n";

fn admin(pool: &Pool, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let path = format!("/llm/admin{path}");
    let (status, text, _) = pool.request(method, &path, &text, Some(&pool.admin_key()));
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// A key and its id.
fn key(pool: &Pool, mut wish: Value) -> (String, String) {
    wish["name"] = json!("course");
    wish["role"] = wish.get("role").cloned().unwrap_or(json!("user"));
    let (status, made) = admin(pool, "POST", "/keys", &wish);
    assert_eq!(status, 200, "{made}");
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

fn chat(pool: &Pool, model: &str, key: &str) -> (u16, Value, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text, head) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), Some(key));
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::Null),
        head,
    )
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim())
}

#[test]
fn a_key_for_some_models_sees_no_others() {
    let pool = pool(CLOSED);
    let (key, id) = key(&pool, json!({"models": ["small", "sl*"]}));
    assert_eq!(chat(&pool, "small", &key).0, 200);
    let (status, refused, _) = chat(&pool, "other", &key);
    assert_eq!(status, 404, "the same as for a missing one: {refused}");
    assert_eq!(refused["error"]["code"], "model_not_found");
    let (_, listed, _) = pool.request("GET", "/v1/models", "", Some(&key));
    assert!(
        listed.contains("small") && listed.contains("slow"),
        "{listed}"
    );
    assert!(!listed.contains("other"), "{listed}");
    let one = |name: &str| {
        pool.request("GET", &format!("/v1/models/{name}"), "", Some(&key))
            .0
    };
    assert_eq!((one("small"), one("other")), (200, 404));

    let (status, changed) = admin(
        &pool,
        "PATCH",
        &format!("/keys?id={id}"),
        &json!({"models": null, "name": "all"}),
    );
    assert_eq!(
        (status, &changed["name"], &changed["models"]),
        (200, &json!("all"), &json!([]))
    );
    assert_eq!(chat(&pool, "other", &key).0, 200);
}

#[test]
fn a_key_restricted_to_routes_is_refused_on_others_under_every_prefix() {
    let pool = pool(CLOSED);
    let (user, _) = key(&pool, json!({"routes": ["/v1/models"]}));
    let get = |path: &str, key: &str| pool.request("GET", path, "", Some(key)).0;
    assert_eq!(
        (get("/v1/models", &user), get("/llm/v1/models", &user)),
        (200, 200)
    );
    let (status, refused, _) = chat(&pool, "small", &user);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (403, &json!("route_not_allowed"))
    );
    let (planner, _) = key(
        &pool,
        json!({"role": "admin", "routes": ["/admin/plan", "/admin/models"]}),
    );
    assert_eq!(get("/llm/admin/models", &planner), 200);
    assert_eq!(get("/llm/admin/keys", &planner), 403);
    let load = json!({"model": "small"}).to_string();
    let post = |path: &str| pool.request("POST", path, &load, Some(&planner)).0;
    assert_eq!(
        (post("/llm/admin/plan"), post("/llm/admin/load")),
        (200, 403)
    );
}

#[test]
fn a_revoked_or_expired_key_is_refused() {
    let pool = pool(CLOSED);
    let (revoked, id) = key(&pool, json!({}));
    let (short, _) = key(&pool, json!({"expires": "1s"}));
    assert_eq!(chat(&pool, "small", &revoked).0, 200);
    admin(&pool, "DELETE", &format!("/keys?id={id}"), &Value::Null);
    assert_eq!(chat(&pool, "small", &revoked).0, 401);
    wait_for("the key to expire", || {
        chat(&pool, "small", &short).0 == 401
    });
    let (_, keys) = admin(&pool, "GET", "/keys", &Value::Null);
    assert!(
        !keys.to_string().contains(&short[9..]),
        "only the beginning is shown"
    );
}

#[test]
fn the_last_full_admin_key_cannot_be_removed_in_any_way() {
    let pool = pool(CLOSED);
    let refused = |method: &str, change: &Value| {
        let (status, text) = admin(&pool, method, "/keys?id=k1", change);
        (status, text["error"]["code"].clone())
    };
    let last = (409, json!("last_admin_key"));
    assert_eq!(refused("DELETE", &Value::Null), last);
    for change in [json!({"routes": ["/admin/plan"]}), json!({"expires": "1s"})] {
        assert_eq!(refused("PATCH", &change), last, "{change}");
    }
    key(&pool, json!({"role": "admin", "routes": ["/admin/keys"]}));
    assert_eq!(
        refused("DELETE", &Value::Null),
        last,
        "that one is for little"
    );
    key(&pool, json!({"role": "admin"}));
    assert_eq!(
        refused("PATCH", &json!({"expires": "1h"})),
        (200, Value::Null)
    );
    let (status, text) = admin(&pool, "DELETE", "/keys?id=k1", &Value::Null);
    assert_eq!((status, &text["error"]["code"]), (409, &json!("own_key")));
    let (status, text) = admin(&pool, "DELETE", "/keys?id=k1&confirm=true", &Value::Null);
    assert_eq!(status, 200, "{text}");
}

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

#[test]
fn a_client_that_refuses_to_wait_gets_503_immediately_and_causes_no_load() {
    let pool = pool("");
    let body =
        json!({"model": "small", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    let ask =
        |lines: &[(&str, &str)]| pool.request_with("POST", "/v1/chat/completions", &body, lines);
    let (status, text, head) = ask(&[("x-model-pool-wait", "false")]);
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("not_ready"), "{text}");
    assert!(header(&head, "retry-after").is_some());
    assert!(!pool.log().contains("load small"));
    let (status, _, head) = ask(&[]);
    assert_eq!(
        (status, header(&head, "x-model-pool-loaded")),
        (200, Some("true"))
    );
    assert_eq!(header(&head, "x-model-pool-replica"), Some("r1"));
    let (status, _, head) = ask(&[("x-model-pool-wait", "false")]);
    assert_eq!(
        (status, header(&head, "x-model-pool-loaded")),
        (200, Some("false"))
    );
    let waited_ms: u64 = header(&head, "x-model-pool-waited-ms")
        .and_then(|waited| waited.parse().ok())
        .expect("a number");
    assert!(waited_ms < 1000, "nothing was loaded: {waited_ms} ms");
    let (status, text, _) = ask(&[("x-model-pool-wait", "perhaps")]);
    assert_eq!(status, 400, "{text}");
}

#[test]
fn a_response_that_exceeds_its_timeout_is_aborted() {
    let pool = pool("");
    let ask = |stream: bool| {
        let body = json!({"model": "slow", "stream": stream, "messages": [{"role": "user", "content": "Hello"}]});
        pool.request_with(
            "POST",
            "/v1/chat/completions",
            &body.to_string(),
            &[("x-request-timeout", "1s")],
        )
    };
    let (status, text, _) = ask(false);
    assert_eq!(status, 504, "{text}");
    assert!(text.contains("deadline_exceeded"), "{text}");
    let (status, text, _) = ask(true);
    assert_eq!(status, 200);
    assert!(
        text.contains("deadline_exceeded") && !text.contains("[DONE]"),
        "{text}"
    );
    wait_for("nothing to be in flight", || {
        let (_, models) = admin(&pool, "GET", "/models?model=slow", &Value::Null);
        models["models"][0]["replicas"][0]["in_flight"] == 0
    });
}
