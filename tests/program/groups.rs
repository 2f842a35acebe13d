//! Groups of callers with the real program: shares of a model's seats by weight, classes, and what a group allows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};
use support::servers::{ScriptedServer, http};
use support::service::{Pool, wait_for};

use crate::permissions::admin;
use crate::remote::far;

/// A model with two seats and responses of up to 200 tokens.
fn model() -> (String, String) {
    let flags = ["--model", "shared", "--tokens", "200", "--token-ms", "1"];
    let (name, text) = support::stub::model("shared", &flags, "memory_gib: 1");
    (
        name,
        text + "deployment_config: {max_ongoing_requests: 2}\n",
    )
}

fn key(pool: &Pool, name: &str) -> String {
    let wish = json!({"name": name, "role": "user"});
    let (status, made) = admin(pool, &pool.admin_key(), "POST", "/keys", &wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

fn chat(pool: &Pool, key: &str, more: &Value) -> (u16, Value, String) {
    let mut body = json!({"model": "shared", "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let (status, text, head) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), Some(key));
    let response = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, response, head)
}

fn class(head: &str) -> Option<&str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix("x-model-pool-class: "))
}

/// A group with clients that always have a request.
struct Load {
    key: String,
    clients: usize,
    tokens: u64,
    served: AtomicU64,
}

#[test]
fn groups_with_many_and_long_requests_get_no_more_than_their_share() {
    let config = "auth: {inference: key}\npool: {queue_limit: 1000}\ngroups: {physics: {weight: 2, keys: [physics]}, guests: {keys: [guests]}, course: {keys: [course, other]}}\n";
    let pool = Pool::with_models(&[model()], config);
    let load = |name: &str, clients, tokens| Load {
        key: key(&pool, name),
        clients,
        tokens,
        served: AtomicU64::new(0),
    };
    let loads = [
        load("physics", 8, 20),
        load("guests", 8, 20),
        load("course", 60, 200),
    ];
    // The costs of tokens are measured from the first requests.
    for load in &loads {
        for _ in 0..4 {
            let limit = json!({"max_tokens": load.tokens});
            assert_eq!(chat(&pool, &load.key, &limit).0, 200);
        }
    }
    let (is_counted, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let served = |nth: usize| loads[nth].served.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for load in &loads {
            for _ in 0..load.clients {
                scope.spawn(|| {
                    while !has_ended.load(Ordering::Relaxed) {
                        let limit = json!({"max_tokens": load.tokens});
                        let (status, response, _) = chat(&pool, &load.key, &limit);
                        assert_eq!(status, 200, "{response}");
                        let tokens = response["usage"]["completion_tokens"].as_u64().unwrap();
                        if is_counted.load(Ordering::Relaxed) {
                            load.served.fetch_add(tokens, Ordering::Relaxed);
                        }
                    }
                });
            }
        }
        wait_for("all clients", || waiting(&pool) >= 70);
        is_counted.store(true, Ordering::Relaxed);
        wait_for("enough tokens", || (0..3).map(served).sum::<u64>() >= 8_000);
        is_counted.store(false, Ordering::Relaxed);
        has_ended.store(true, Ordering::Relaxed);
    });
    let [physics, guests, course] = [served(0), served(1), served(2)];
    // Each request takes time in addition to its tokens, so short requests get fewer tokens for the same service.
    let counts = format!("physics {physics}, guests {guests}, course {course}");
    assert!(course * 2 < physics + guests + course, "{counts}");
    assert!(guests * 5 > course * 2, "{counts}");
    assert!(
        physics * 10 > guests * 14 && physics * 10 < guests * 28,
        "{counts}"
    );
}

fn waiting(pool: &Pool) -> usize {
    let (status, queue) = admin(pool, &pool.admin_key(), "GET", "/queue", &Value::Null);
    assert_eq!(status, 200, "{queue}");
    queue["waiting"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_request_gets_the_class_that_its_group_allows_and_the_response_names_it() {
    let config = "auth: {inference: key}\ngroups: {lab: {reserved_permille: 100, keys: [lab]}, course: {class_max: flex, keys: [course]}}\n";
    let pool = Pool::with_models(&[model()], config);
    let keys = ["lab", "course", "alone"].map(|name| key(&pool, name));
    for (nth, more, expected) in [
        (0, json!({}), "default"),
        (0, json!({"service_tier": "flex"}), "flex"),
        (0, json!({"service_tier": "priority"}), "priority"),
        (0, json!({"priority": -1}), "priority"),
        (0, json!({"priority": 3}), "flex"),
        (1, json!({"service_tier": "priority"}), "flex"),
        (2, json!({"service_tier": "priority"}), "default"),
    ] {
        let mut more = more;
        more["max_tokens"] = json!(2);
        let (status, response, head) = chat(&pool, &keys[nth], &more);
        assert_eq!(status, 200, "{more}: {response}");
        assert_eq!(class(&head), Some(expected), "{more}: {head}");
        assert!(!head.contains("x-model-pool-ignored"), "{more}: {head}");
        let tier = match more.get("service_tier") {
            Some(_) => json!(expected),
            None => Value::Null,
        };
        assert_eq!(response["service_tier"], tier, "{more}: {response}");
    }
    let more = json!({"service_tier": "flex", "stream": true, "max_tokens": 3});
    let (_, text, head) = chat(&pool, &keys[0], &more);
    let chunks = text.as_str().unwrap().matches("data: {").count();
    let tiers = text.as_str().unwrap();
    let tiers = tiers.matches("\"service_tier\":\"flex\"").count();
    assert!(chunks >= 3 && tiers == chunks, "{text}");
    assert_eq!(class(&head), Some("flex"));
    let (status, response, _) = chat(&pool, &keys[0], &json!({"priority": "high"}));
    assert_eq!(status, 400, "{response}");
}

#[test]
fn a_response_of_the_responses_api_names_the_class_in_which_it_was_served() {
    let config = "auth: {inference: key}\ngroups: {lab: {reserved_permille: 100, keys: [lab]}, course: {class_max: flex, keys: [course]}}\n";
    let pool = Pool::with_models(&[model()], config);
    let keys = ["lab", "course", "alone"].map(|name| key(&pool, name));
    let send = |key: &str, more: &Value| {
        let mut body = json!({"model": "shared", "input": "Hello", "max_output_tokens": 2});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        pool.request("POST", "/v1/responses", &body.to_string(), Some(key))
    };
    for (nth, more, expected) in [
        (0, json!({}), "default"),
        (0, json!({"service_tier": "flex"}), "flex"),
        (0, json!({"priority": -1}), "priority"),
        (
            0,
            json!({"service_tier": "default", "priority": -1}),
            "default",
        ),
        (1, json!({"service_tier": "priority"}), "flex"),
        (1, json!({}), "flex"),
        (2, json!({"priority": -1}), "default"),
    ] {
        let (status, text, head) = send(&keys[nth], &more);
        assert_eq!(status, 200, "{more}: {text}");
        assert_eq!(class(&head), Some(expected), "{more}: {head}");
        assert!(!head.contains("x-model-pool-ignored"), "{more}: {head}");
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["service_tier"], expected, "{more}: {text}");
    }
    let (_, text, _) = send(&keys[1], &json!({"stream": true}));
    let named = text.matches("\"service_tier\":").count();
    let flex = text.matches("\"service_tier\":\"flex\"").count();
    assert!(named >= 3 && flex == named, "{text}");
    let (status, text, _) = send(&keys[0], &json!({"priority": "high"}));
    assert!(status == 400 && text.contains("`priority`"), "{text}");
}

#[test]
fn a_remote_endpoint_gets_the_tier_that_the_group_allows_and_its_own_tier_is_shown() {
    let server = ScriptedServer::server(|request| {
        let response = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "service_tier": "default",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}});
        if request.starts_with("GET") {
            return http("200 OK", "", "{}");
        }
        http(
            "200 OK",
            "content-type: application/json\r\n",
            &response.to_string(),
        )
    });
    let config = "auth: {inference: key}\ngroups: {lab: {class_max: priority, keys: [lab]}, course: {class_max: flex, keys: [course]}}\n";
    let pool = Pool::with_models(&[far(&server.url("/v1"), "", "")], config);
    let keys = ["lab", "course", "alone"].map(|name| key(&pool, name));
    for (nth, tier, expected) in [
        (0, "priority", Some("priority")),
        (0, "scale", Some("scale")),
        (1, "priority", Some("flex")),
        (1, "default", Some("flex")),
        (2, "priority", Some("default")),
        (2, "scale", None),
    ] {
        for (path, input) in [
            ("/v1/chat/completions", "messages"),
            ("/v1/responses", "input"),
        ] {
            let messages = json!([{"role": "user", "content": "Hello"}]);
            let body = json!({"model": "far", input: messages, "service_tier": tier});
            let (status, text, head) =
                pool.request("POST", path, &body.to_string(), Some(&keys[nth]));
            let case = format!("{path} {nth} {tier}: {text}");
            assert_eq!(status, 200, "{case}");
            let mut sent = server.asked().into_iter();
            let sent = sent.rfind(|request| request.starts_with("POST"));
            let sent = sent.unwrap();
            let (_, sent) = sent.split_once("\r\n\r\n").unwrap();
            let sent: Value = serde_json::from_str(sent).unwrap();
            assert_eq!(sent["service_tier"].as_str(), expected, "{case}");
            let ignored = head.contains("x-model-pool-ignored: service_tier");
            assert_eq!(ignored, expected.is_none(), "{case} {head}");
            let response: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(response["service_tier"], "default", "{case}");
        }
    }
}

#[test]
fn a_field_for_the_class_is_removed_and_named_on_a_route_without_classes() {
    let server = ScriptedServer::server(|request| {
        let vectors = json!({"object": "list", "model": "m",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": 1, "total_tokens": 1}});
        let body = if request.starts_with("GET") {
            json!({})
        } else {
            vectors
        };
        http(
            "200 OK",
            "content-type: application/json\r\n",
            &body.to_string(),
        )
    });
    let pool = Pool::with_models(&[far(&server.url("/v1"), "", "")], "");
    for (priority, is_named) in [(json!(3), true), (json!(0), false)] {
        let body = json!({"model": "far", "input": "x", "priority": priority});
        let (status, text, head) = pool.request("POST", "/v1/embeddings", &body.to_string(), None);
        assert_eq!(status, 200, "{text}");
        let named = head.contains("x-model-pool-ignored: priority");
        assert_eq!(named, is_named, "{priority}: {head}");
        let asked = server.asked();
        let sent = asked.iter().rfind(|sent| sent.starts_with("POST")).unwrap();
        assert!(!sent.contains("priority"), "{sent}");
    }
}

#[test]
fn a_reload_warns_of_members_that_no_key_matches_and_of_keys_in_two_groups() {
    let pool = Pool::with_models(&[model()], "auth: {inference: key}\n");
    let wish = json!({"name": "one", "role": "user"});
    let (_, made) = admin(&pool, &pool.admin_key(), "POST", "/keys", &wish);
    let id = made["id"].as_str().unwrap();
    let file = pool.folder().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let reload = |groups: &str| {
        std::fs::write(&file, format!("{text}groups: {groups}\n")).unwrap();
        admin(&pool, &pool.admin_key(), "POST", "/reload", &Value::Null)
    };
    let groups = format!("{{lab: {{keys: [{id}]}}, course: {{keys: [one, tpyo], claims: [x]}}}}");
    let (status, reloaded) = reload(&groups);
    assert_eq!(status, 200, "{reloaded}");
    let warnings = reloaded["warnings"].to_string();
    let twice = format!("{id} by its id to lab and by its name to course");
    for expected in [
        "groups.course.keys",
        "`tpyo`",
        &twice,
        "groups.course.claims has no effect",
    ] {
        assert!(warnings.contains(expected), "{expected}: {warnings}");
    }
    let (status, reloaded) = reload("{lab: {keys: [one]}}");
    assert_eq!((status, &reloaded["warnings"]), (200, &json!([])));
    let (status, refused) = reload("{lab: {models: []}}");
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused.to_string().contains("groups.lab.models"),
        "{refused}"
    );
}

#[test]
fn models_and_limits_of_a_group_hold_for_all_its_keys_and_change_with_a_reload() {
    let config = "auth: {inference: key}\ngroups: {lab: {limits: {requests_per_minute: 3}, keys: [one, two]}, none: {models: [other], keys: [three]}}\n";
    let pool = Pool::with_models(&[model()], config);
    let keys = ["one", "two", "three"].map(|name| key(&pool, name));
    let short = json!({"max_tokens": 1});
    for nth in [0, 1, 0] {
        assert_eq!(chat(&pool, &keys[nth], &short).0, 200);
    }
    let (status, response, _) = chat(&pool, &keys[1], &short);
    assert_eq!(status, 429, "{response}");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("the group lab") && message.contains("3 requests"),
        "{message}"
    );
    assert_eq!(chat(&pool, &keys[2], &short).0, 404);

    let file = pool.folder().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("{requests_per_minute: 3}", "{}");
    std::fs::write(&file, text.replace("models: [other]", "weight: 2")).unwrap();
    let (status, reloaded) = admin(&pool, &pool.admin_key(), "POST", "/reload", &Value::Null);
    assert_eq!(status, 200, "{reloaded}");
    for key in &keys {
        assert_eq!(chat(&pool, key, &short).0, 200);
    }
    std::fs::write(&file, "groups: {a: {parent: b}, b: {parent: a}}\n").unwrap();
    let (status, refused) = admin(&pool, &pool.admin_key(), "POST", "/reload", &Value::Null);
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused.to_string().contains("groups contain each other"),
        "{refused}"
    );
}
