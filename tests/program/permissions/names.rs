//! Models that a key may use, without any route revealing others.

use serde_json::{Value, json};

use super::callers::{key, models};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

const CLOSED: &str = "auth: {inference: key}\ncompat: {ollama: true, rayllm: true, run: true}\n";

fn get(pool: &Pool, path: &str, key: &str) -> (u16, Value) {
    let (status, text, _) = pool.request("GET", path, "", Some(key));
    (status, serde_json::from_str(&text).unwrap_or_default())
}

fn ids(pool: &Pool, key: &str) -> Vec<String> {
    let (status, list) = get(pool, "/v1/models", key);
    assert_eq!(status, 200, "{list}");
    let all = list["data"].as_array().unwrap().iter();
    all.map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns true if the key may use the model on every route that names a model; loads nothing.
fn may(pool: &Pool, key: &str, model: &str) -> bool {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let bodies = [
        (
            "/v1/chat/completions",
            json!({"model": model, "messages": messages}),
        ),
        ("/v1/completions", json!({"model": model, "prompt": "x"})),
        ("/v1/responses", json!({"model": model, "input": "x"})),
        (
            "/v1/messages",
            json!({"model": model, "max_tokens": 5, "messages": messages}),
        ),
        (
            "/v1/messages/count_tokens",
            json!({"model": model, "messages": messages}),
        ),
        ("/v1/tokenize", json!({"model": model, "prompt": "x"})),
        ("/v1/embeddings", json!({"model": model, "input": "x"})),
        ("/run", json!({"model": model, "data": "x"})),
        ("/api/chat", json!({"model": model, "messages": messages})),
        ("/api/generate", json!({"model": model, "prompt": "x"})),
        ("/api/embed", json!({"model": model, "input": "x"})),
        ("/api/embeddings", json!({"model": model, "prompt": "x"})),
        ("/api/show", json!({"model": model})),
        ("/api/pull", json!({"model": model})),
    ];
    let line = format!("Bearer {key}");
    let lines = [
        ("Authorization", line.as_str()),
        ("x-model-pool-wait", "false"),
    ];
    let mut verdicts = bodies.map(|(path, body)| {
        let (status, text, _) = pool.request_with("POST", path, &body.to_string(), &lines);
        assert!(status != 401 && status != 403, "{path}: {text}");
        (path, status != 404)
    });
    let (status, _) = get(
        pool,
        &format!("/v1/models/{}", model.replace('/', "%2F")),
        key,
    );
    let first = status == 200;
    let differs = verdicts.iter_mut().find(|(_, may)| *may != first);
    assert_eq!(differs, None, "{model}: {first} in the list");
    first
}

#[test]
fn a_key_for_an_adapter_reaches_neither_its_base_nor_another_adapter() {
    let pool = Pool::with_models(&models(), CLOSED);
    let names = ["lab/base", "base", "lab/polite", "lab/terse", "lab/other"];
    for (patterns, had) in [
        (json!([]), [true, true, true, true, true]),
        (json!(["lab/polite"]), [false, false, true, false, false]),
        (json!(["lab/base"]), [true, true, false, false, false]),
        (
            json!(["base", "lab/terse"]),
            [true, true, false, true, false],
        ),
        (json!(["lab/o*"]), [false, false, false, false, true]),
    ] {
        let key = key(&pool, json!({"role": "user", "models": patterns}));
        assert_eq!(names.map(|name| may(&pool, &key, name)), had, "{patterns}");
        let listed = ids(&pool, &key);
        for (name, had) in names.iter().zip(had).filter(|(name, _)| **name != "base") {
            assert_eq!(
                listed.iter().any(|listed| listed == name),
                had,
                "{patterns}: {listed:?}"
            );
        }
    }
    let polite = key(&pool, json!({"role": "user", "models": ["lab/polite"]}));
    // RayLLM's form of a name, and names that are nearly right.
    assert_eq!(get(&pool, "/v1/models/lab--polite", &polite).0, 200);
    for near in ["lab--terse", "lab--base", "lab%2Fbas", "lab%2Fters"] {
        let (status, response) = get(&pool, &format!("/v1/models/{near}"), &polite);
        let message = response["error"]["message"].as_str().unwrap();
        let (_, hint) = message.split_once(';').unwrap();
        assert_eq!(status, 404, "{message}");
        for hidden in ["lab/base", "lab/terse", "lab/other"] {
            assert!(!hint.contains(hidden), "{message}");
        }
    }
}

#[test]
fn metrics_and_hot_models_show_only_the_callers_models() {
    let pool = Pool::with_models(&models(), CLOSED);
    let cold = |bearer: Option<&str>| {
        let (status, text, _) = pool.request("GET", "/llm/hot-models", "", bearer);
        let lists: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, lists["cold_models"].clone())
    };
    let other = key(&pool, json!({"role": "user", "models": ["lab/other"]}));
    let polite = key(&pool, json!({"role": "user", "models": ["lab/polite"]}));
    let whole = key(&pool, json!({"role": "user"}));
    assert_eq!(cold(None), (401, Value::Null));
    assert_eq!(cold(Some(&other)), (200, json!(["lab/other"])));
    assert_eq!(cold(Some(&polite)), (200, json!([])));
    assert_eq!(cold(Some(&whole)), (200, json!(["lab/base", "lab/other"])));

    let afar = ("X-Forwarded-For", "192.0.2.7");
    let admin = format!("Bearer {}", pool.admin_key());
    let reader = key(&pool, json!({"role": "admin", "routes": ["/metrics"]}));
    assert_eq!(get(&pool, "/llm/admin/models", &reader).0, 403);
    let bearers = [other.as_str(), reader.as_str()].map(|key| format!("Bearer {key}"));
    let ask = |pool: &Pool| {
        [
            &[][..],
            &[afar],
            &[("Authorization", bearers[0].as_str())],
            &[("Authorization", bearers[1].as_str())],
            &[("Authorization", admin.as_str()), afar],
        ]
        .map(|lines| pool.request_with("GET", "/metrics", "", lines).0)
    };
    assert_eq!(ask(&pool), [200, 401, 403, 200, 200], "loopback");
    let mut pool = pool;
    for (setting, expected) in [("admin", [401, 401, 403, 200, 200]), ("open", [200; 5])] {
        pool.set_env("MODEL_POOL__AUTH__METRICS", setting);
        pool.kill_and_restart();
        assert_eq!(ask(&pool), expected, "{setting}");
    }
}

/// A model of this memory size with the stub as engine.
fn large(name: &str, priority: u32) -> (String, String) {
    let program = stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"500\", --token-ms, \"50\"]\n  ready_path: /health\npool_config: {{memory_gib: 12, priority: {priority}}}\n"
    );
    (format!("{name}.yaml"), text)
}

#[test]
fn a_refusal_does_not_name_models_hidden_from_the_key() {
    let pool = Pool::with_models(&[large("secret", 2), large("mine", 0)], CLOSED);
    let admin = pool.admin_key();
    wait_for("the always-hot model", || {
        let (_, lists) = get(&pool, "/llm/hot-models", &admin);
        lists["hot_models"][0]["model_name"] == "secret"
    });
    let mine = key(&pool, json!({"role": "user", "models": ["mine"]}));
    let body = json!({"model": "mine", "messages": [{"role": "user", "content": "Hello"}]});
    for (bearer, named) in [(&mine, "another model"), (&admin, "secret")] {
        let line = format!("Bearer {bearer}");
        let now = [
            ("Authorization", line.as_str()),
            ("x-model-pool-wait", "false"),
        ];
        for lines in [&now[..1], &now[..]] {
            let chat = "/v1/chat/completions";
            let (status, text, _) = pool.request_with("POST", chat, &body.to_string(), lines);
            assert_eq!(status, 503, "{text}");
            assert!(text.contains(&format!("held by {named}")), "{text}");
            assert_eq!(text.contains("secret"), named == "secret", "{text}");
        }
    }
}

#[test]
fn a_cut_stream_does_not_name_models_hidden_from_the_key() {
    let config = format!("{CLOSED}pool: {{preempt_drain: 100ms}}\n");
    let pool = Pool::with_models(&[large("secret", 1), large("mine", 0)], &config);
    let mine = key(&pool, json!({"role": "user", "models": ["mine"]}));
    let admin = pool.admin_key();
    let line = format!("Bearer {mine}");
    let body = |model: &str| {
        json!({"model": model, "stream": true, "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]}).to_string()
    };
    let lines = [("Authorization", line.as_str())];
    let cut = pool.stream_with("/v1/chat/completions", &body("mine"), &lines);
    wait_for("a response", || cut.text().contains("content"));
    let line = format!("Bearer {admin}");
    let lines = [("Authorization", line.as_str())];
    let wanted = pool.stream_with("/v1/chat/completions", &body("secret"), &lines);
    let told = cut.whole();
    assert!(told.contains("preempted by another model"), "{told}");
    assert!(!told.contains("secret"), "{told}");
    drop(wanted);
}
