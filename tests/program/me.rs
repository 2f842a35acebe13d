//! A user's view with an ordinary key, with the real program: only the user's own requests, usage that survives a restart, and no
//! model that is forbidden.

use serde_json::{Value, json};
use support::net::stub;
use support::service::{Pool, wait_for};

fn pool() -> Pool {
    let slow = ["--tokens", "400", "--token-ms", "10"];
    let models = [stub("one", &slow), stub("two", &[]), stub("hidden", &[])];
    Pool::with_models(&models, "auth: {inference: key}\n")
}

fn key(pool: &Pool, name: &str, more: &Value) -> String {
    let mut body = json!({"name": name, "role": "user"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let admin = pool.admin_key();
    let (status, text, _) =
        pool.request("POST", "/llm/admin/keys", &body.to_string(), Some(&admin));
    assert_eq!(status, 200, "{text}");
    let made: Value = serde_json::from_str(&text).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

fn get(pool: &Pool, key: &str, path: &str) -> Value {
    let (status, text, _) = pool.request("GET", path, "", Some(key));
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn chat(pool: &Pool, key: &str, model: &str) -> Value {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    let path = "/v1/chat/completions";
    let (status, text, _) = pool.request("POST", path, &body.to_string(), Some(key));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Requests, prompt tokens and response tokens, over all days.
fn used(usage: &Value, model: &str) -> [u64; 3] {
    let days = usage["days"].as_array().unwrap();
    let models = days
        .iter()
        .flat_map(|day| day["models"].as_array().unwrap());
    let of = models.filter(|usage| usage["model"] == model);
    of.fold([0; 3], |[requests, prompts, responses], usage| {
        let number = |name: &str| usage[name].as_u64().unwrap();
        [
            requests + number("requests"),
            prompts + number("prompt_tokens"),
            responses + number("completion_tokens"),
        ]
    })
}

#[test]
fn users_see_only_their_own_key_models_and_requests() {
    let pool = pool();
    let ann = key(
        &pool,
        "ann",
        &json!({"models": ["one", "two"], "limits": {"tokens_per_day": 100_000}}),
    );
    let bob = key(&pool, "bob", &json!({}));
    let me = get(&pool, &ann, "/llm/me");
    assert_eq!((&me["name"], &me["role"]), (&json!("ann"), &json!("user")));
    assert_eq!(me["limits"]["tokens_per_day"], 100_000);
    assert_eq!(me["key"]["models"], json!(["one", "two"]));
    assert!(!me.to_string().contains(&ann), "a key shows itself");
    let names: Vec<&str> = me["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| request["model"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert!(!me.to_string().contains("hidden"), "{me}");
    assert_eq!((&me["waiting"], &me["running"]), (&json!([]), &json!([])));

    let bearer = format!("Bearer {ann}");
    let body =
        json!({"model": "one", "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    let stream = pool.stream_with(
        "/v1/chat/completions",
        &body.to_string(),
        &[("Authorization", &bearer)],
    );
    wait_for("the request to run", || {
        let me = get(&pool, &ann, "/llm/me");
        let running = me["running"].as_array().unwrap();
        running
            .first()
            .is_some_and(|request| request["model"] == "one")
    });
    for other in [&bob, &pool.admin_key()] {
        let other = get(&pool, other, "/llm/me");
        assert_eq!(
            (&other["running"], &other["waiting"]),
            (&json!([]), &json!([]))
        );
    }
    drop(stream);
    wait_for("the request to end", || {
        get(&pool, &ann, "/llm/me")["running"] == json!([])
    });
    // Usage of clients that left early is counted too: a chunk is about a token.
    let [requests, _, responses] = used(&get(&pool, &ann, "/llm/me/usage"), "one");
    assert!(requests == 1 && responses > 0, "{requests} {responses}");
    assert_eq!(get(&pool, &bob, "/llm/me/usage")["days"], json!([]));
}

#[test]
fn a_waiting_request_shows_its_model_and_wait() {
    let slow = stub("slow", &["--ready-after-ms", "60000"]);
    let pool = Pool::with_models(&[slow], "auth: {inference: key}\n");
    let ann = key(&pool, "ann", &json!({}));
    let bob = key(&pool, "bob", &json!({}));
    let body =
        json!({"model": "slow", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let mut streams = Vec::new();
    for (key, waits) in [(&bob, 1), (&ann, 1), (&ann, 2)] {
        let bearer = format!("Bearer {key}");
        streams.push(pool.stream_with(
            "/v1/chat/completions",
            &body,
            &[("Authorization", &bearer)],
        ));
        wait_for("the request to wait", || {
            get(&pool, key, "/llm/me")["waiting"]
                .as_array()
                .unwrap()
                .len()
                == waits
        });
    }
    wait_for("the load to begin", || {
        get(&pool, &ann, "/llm/me")["waiting"][0]["stage"] != "waiting"
    });
    let me = get(&pool, &ann, "/llm/me");
    let waiting = me["waiting"].as_array().unwrap();
    let mut places: Vec<u64> = waiting
        .iter()
        .map(|request| request["position"].as_u64().unwrap())
        .collect();
    places.sort_unstable();
    assert!(
        places.len() == 2 && places[0] >= 1 && places[1] <= 3,
        "{places:?}"
    );
    assert!(
        waiting.iter().all(|request| request["model"] == "slow"),
        "{me}"
    );
    assert!(!me.to_string().contains("bob"), "{me}");
}

#[test]
fn the_usage_of_a_key_survives_a_restart_and_its_query_is_validated() {
    let mut pool = pool();
    let ann = key(&pool, "ann", &json!({}));
    let mut sums = [0; 3];
    for _ in 0..3 {
        let response = chat(&pool, &ann, "two");
        let number = |name: &str| response["usage"][name].as_u64().unwrap();
        sums = [
            sums[0] + 1,
            sums[1] + number("prompt_tokens"),
            sums[2] + number("completion_tokens"),
        ];
    }
    assert!(sums[1] > 0 && sums[2] > 0, "{sums:?}");
    let before = get(&pool, &ann, "/llm/me/usage?days=100");
    assert_eq!(used(&before, "two"), sums);
    assert_eq!(before["days"][0]["day"], before["today"]);
    pool.terminate();
    assert!(pool.wait(std::time::Duration::from_secs(20)));
    pool.restart();
    assert_eq!(used(&get(&pool, &ann, "/llm/me/usage"), "two"), sums);
    chat(&pool, &ann, "two");
    assert_eq!(used(&get(&pool, &ann, "/llm/me/usage"), "two")[0], 4);
    for (query, param) in [
        ("?days=0", "days"),
        ("?days=101", "days"),
        ("?day=3", "day"),
    ] {
        let (status, text, _) =
            pool.request("GET", &format!("/llm/me/usage{query}"), "", Some(&ann));
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, body["error"]["param"].as_str()),
            (400, Some(param)),
            "{text}"
        );
    }
    let (status, ..) = pool.request("GET", "/llm/me", "", None);
    assert_eq!(status, 401);
}
