//! Routes, addresses and headers of known clients, over the real socket.

mod unix_socket;
mod urls;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};
use support::stub::model;

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn call(pool: &Pool, path: &str, body: &Value, lines: &[(&str, &str)]) -> (u16, Value) {
    let (status, text, _) = pool.request_with("POST", path, &body.to_string(), lines);
    (status, json_of(&text))
}

fn get(pool: &Pool, path: &str) -> (u16, Value) {
    let (status, text, _) = pool.request("GET", path, "", None);
    (status, json_of(&text))
}

fn message(response: &Value) -> &str {
    response["error"]["message"].as_str().unwrap_or_default()
}

fn chat(name: &str) -> Value {
    json!({"model": name, "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]})
}

#[test]
fn a_websocket_upgrade_is_refused_with_426_to_make_clients_use_http() {
    let pool = Pool::with_models(&[model("m", &[], "memory_gib: 1")], "");
    let upgrade = [
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    for path in ["/v1/responses", "/llm/v1/responses", "/openai/v1/responses"] {
        let (status, text, head) = pool.request_with("GET", path, "", &upgrade);
        assert_eq!(status, 426, "{path}: {text}");
        assert!(message(&json_of(&text)).contains("POST"), "{text}");
        assert!(head.contains("upgrade: http/1.1"), "{head}");
    }
    assert_eq!(get(&pool, "/v1/responses").0, 405);
}

#[test]
fn input_tokens_of_a_response_equal_those_of_the_same_message() {
    let pool = Pool::demo();
    let count = |body: &Value| call(&pool, "/v1/responses/input_tokens", body, &[]);
    let (status, counted) = count(
        &json!({"model": "tiny-guide", "instructions": "Be short.", "input": "What is a priority?"}),
    );
    assert_eq!(status, 200, "{counted}");
    assert_eq!(counted["object"], "response.input_tokens");
    let message = json!({"model": "tiny-guide", "system": "Be short.", "messages": [{"role": "user", "content": "What is a priority?"}]});
    let (status, same) = call(&pool, "/v1/messages/count_tokens", &message, &[]);
    assert_eq!(
        (status, &same["input_tokens"]),
        (200, &counted["input_tokens"])
    );
    // The count includes the previous conversation.
    let first = json!({"model": "tiny-guide", "input": "What is a priority?", "max_output_tokens": 2, "store": true});
    let (status, first) = call(&pool, "/v1/responses", &first, &[]);
    assert_eq!(status, 200, "{first}");
    let alone = count(&json!({"model": "tiny-guide", "input": "And now?"})).1;
    let more = json!({"model": "tiny-guide", "input": "And now?", "previous_response_id": first["id"], "temperature": 0});
    let (status, more) = count(&more);
    assert_eq!(status, 200, "{more}");
    assert!(
        more["input_tokens"].as_u64() > alone["input_tokens"].as_u64(),
        "{more} {alone}"
    );
    let (status, wrong) = count(&json!({"model": "tiny-guide", "input": 5}));
    assert_eq!((status, &wrong["error"]["param"]), (400, &json!("input")));
    let (status, compacted) = call(
        &pool,
        "/v1/responses/compact",
        &json!({"model": "tiny-guide", "input": "x"}),
        &[],
    );
    assert_eq!(status, 200, "{compacted}");
    assert_eq!(compacted["object"], "response.compaction", "{compacted}");
}

#[test]
fn the_model_list_contains_limits_and_capabilities_and_loads_nothing() {
    let mut file = model(
        "m",
        &[],
        "memory_gib: 1, aliases: [other], labels: {capabilities: embedding}",
    );
    file.1 = file.1.replace(
        "  listen: port\n",
        "  listen: port\n  max_total_tokens: 4096\n",
    );
    let pool = Pool::with_models(&[file, model("plain", &[], "memory_gib: 1")], "");
    let (_, list) = get(&pool, "/v1/models");
    let rows = list["data"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["id"] == name).unwrap();
    for (name, aliases, root) in [
        ("m", json!(["other"]), Value::Null),
        ("other", json!([]), json!("m")),
    ] {
        let row = row(name);
        assert_eq!(
            (&row["max_model_len"], &row["context_length"]),
            (&json!(4096), &json!(4096))
        );
        assert_eq!(row["meta"]["n_ctx"], 4096);
        assert_eq!(
            (&row["kind"], &row["aliases"]),
            (&json!("embedding"), &aliases)
        );
        assert_eq!(row["root"], root);
    }
    assert_eq!(
        (&row("plain")["max_model_len"], &row("plain")["kind"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(get(&pool, "/v1/models/other").1["context_length"], 4096);
    assert_eq!(
        get(&pool, "/props?model=m").1["default_generation_settings"]["n_ctx"],
        4096
    );
    let (status, missing) = get(&pool, "/props");
    assert_eq!((status, &missing["error"]["param"]), (400, &json!("model")));
    assert!(pool.engine_pids().is_empty());
    let pool = Pool::demo();
    let lines = [("anthropic-version", "2023-06-01")];
    let (_, text, _) = pool.request_with("GET", "/v1/models/tiny-guide", "", &lines);
    let one = json_of(&text);
    assert_eq!(
        (&one["max_input_tokens"], &one["max_tokens"]),
        (&json!(512), &json!(512))
    );
    let guide = get(&pool, "/v1/models/tiny-guide").1;
    assert_eq!(
        (&guide["kind"], &guide["meta"]["n_ctx_train"]),
        (&json!("chat"), &json!(512))
    );
    let loaded =
        ["tiny-chat", "tiny-helper"].map(|name| pool.log().contains(&format!("load {name}")));
    assert_eq!(loaded, [false, false], "{}", pool.log());
}

#[test]
fn bodies_the_pool_does_not_parse_are_passed_through_to_the_engine_and_back() {
    let pool = Pool::with_models(&[model("m", &["--model", "m"], "memory_gib: 1")], "");
    let image = json!({"model": "m", "prompt": "A lake at https://lake.example", "size": "64x64", "seed": 7});
    let (status, response) = call(&pool, "/v1/images/generations", &image, &[]);
    assert_eq!(status, 200, "{response}");
    let sent = json_of(response["data"][0]["revised_prompt"].as_str().unwrap());
    assert_eq!((&sent["size"], &sent["seed"]), (&json!("64x64"), &json!(7)));
    for (field, value) in [
        ("image", json!("http://169.254.169.254/")),
        ("n", json!(100_000)),
    ] {
        let mut wrong = image.clone();
        wrong[field] = value;
        let (status, response) = call(&pool, "/v1/images/generations", &wrong, &[]);
        assert_eq!(
            (status, &response["error"]["param"]),
            (400, &json!(field)),
            "{response}"
        );
    }
    let part = |name: &str, file: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    };
    let picture = part(
        "image[]",
        "; filename=\"a.png\"\r\nContent-Type: image/png",
        "PNG1",
    );
    let other = part(
        "image[]",
        "; filename=\"b.png\"\r\nContent-Type: image/png",
        "PNG2",
    );
    let form = format!(
        "{}{picture}{other}{}--x--\r\n",
        part("model", "", "m"),
        part("prompt", "", "A boat")
    );
    let (status, text, _) =
        pool.request_as("multipart/form-data; boundary=x", "/v1/images/edits", &form);
    assert_eq!(status, 200, "{text}");
    for piece in ["PNG1", "PNG2", "b.png", "A boat"] {
        assert!(text.contains(piece), "{piece}: {text}");
    }
    let named = format!(
        "{}{}--x--\r\n",
        part("model", "", "m"),
        part("image", "", "http://10.0.0.1/a.png")
    );
    let (status, text, _) = pool.request_as(
        "multipart/form-data; boundary=x",
        "/v1/images/variations",
        &named,
    );
    assert_eq!(status, 400, "{text}");
    let (status, voices) = get(&pool, "/v1/audio/voices?model=m");
    assert_eq!((status, &voices), (200, &json!({"voices": ["stub"]})));
    let before = json!({"model": "m", "input_prefix": "a", "input_suffix": "b", "n_predict": 8, "id_slot": 0});
    for path in ["/infill", "/v1/infill", "/llm/infill"] {
        let (status, response) = call(&pool, path, &before, &[]);
        assert_eq!(status, 200, "{path}: {response}");
        let content = response["content"].as_str().unwrap();
        assert!(
            content.starts_with("/infill ") && !content.contains("id_slot"),
            "{content}"
        );
    }
    let stream = json!({"model": "m", "prompt": "a", "stream": true});
    let (status, text, head) = pool.request_with("POST", "/completion", &stream.to_string(), &[]);
    assert_eq!(status, 200, "{text}");
    assert!(
        head.contains("text/event-stream") && text.contains("data: "),
        "{head} {text}"
    );
    let counted = r#"model_pool_tokens_total{model="m",kind="completion"} 12"#;
    wait_for("the tokens to be counted", || {
        pool.request("GET", "/metrics", "", None)
            .1
            .contains(counted)
    });
}

#[test]
fn a_model_is_not_loaded_for_a_route_its_engine_lacks() {
    let pool = Pool::demo();
    for (path, body) in [
        (
            "/v1/images/generations",
            json!({"model": "tiny-chat", "prompt": "x"}),
        ),
        (
            "/infill",
            json!({"model": "tiny-chat", "input_prefix": "x"}),
        ),
        ("/completion", json!({"model": "tiny-chat", "prompt": "x"})),
    ] {
        let (status, response) = call(&pool, path, &body, &[]);
        assert_eq!(status, 501, "{path}: {response}");
        assert!(message(&response).contains("CommandEngine"), "{response}");
    }
    assert_eq!(get(&pool, "/v1/audio/voices?model=tiny-chat").0, 501);
    assert!(!pool.log().contains("load tiny-chat"), "{}", pool.log());
}

#[test]
fn desktop_programs_and_extensions_may_be_listed_as_origins() {
    let cors = r#"{origins: ["app://obsidian.md", "HTTP://LOCALHOST:*", "vscode-webview://*"]}"#;
    let files = [model("m", &[], "memory_gib: 1")];
    let pool = Pool::with_env(&files, "", &[("MODEL_POOL__SERVER__CORS", cors)]);
    for origin in [
        "app://obsidian.md",
        "http://localhost:5173",
        "vscode-webview://1aq2",
    ] {
        let lines = [("Origin", origin), ("Sec-Fetch-Site", "cross-site")];
        let (status, _, head) = pool.request_with("GET", "/v1/models", "", &lines);
        assert_eq!(status, 200, "{origin}");
        assert!(
            head.contains(&format!("access-control-allow-origin: {origin}")),
            "{head}"
        );
        let asks = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "DELETE"),
            (
                "Access-Control-Request-Headers",
                "authorization, x-never-seen",
            ),
        ];
        let (status, _, head) = pool.request_with("OPTIONS", "/v1/responses/resp_1", "", &asks);
        assert_eq!(status, 200, "{origin}");
        assert!(
            head.contains("x-never-seen") && head.contains("delete"),
            "{head}"
        );
    }
    for origin in ["https://localhost:1", "app://other", "null"] {
        let (status, _, head) = pool.request_with("GET", "/v1/models", "", &[("Origin", origin)]);
        assert_eq!(status, 403, "{origin}");
        assert!(!head.contains("allow-origin"), "{head}");
    }
}

#[test]
fn metrics_have_the_names_of_vllm_only_if_configured() {
    let env = [("MODEL_POOL__SERVER__VLLM_METRICS", "true")];
    let pool = Pool::with_env(&[model("m", &[], "memory_gib: 1")], "", &env);
    let body =
        json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": true});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let lines = [
        "vllm:e2e_request_latency_seconds_count{model_name=\"m\"} 1\n",
        "vllm:num_requests_running{model_name=\"m\"} 0\n",
        "vllm:num_requests_waiting{model_name=\"m\"} 0\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"m\"} 1\n",
    ];
    wait_for("the request in the metrics", || {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        lines.iter().all(|line| text.contains(line))
    });
    let plain = Pool::with_models(&[model("m", &[], "memory_gib: 1")], "");
    let (_, text, _) = plain.request("GET", "/metrics", "", None);
    assert!(!text.contains("vllm:"), "{text}");
}
