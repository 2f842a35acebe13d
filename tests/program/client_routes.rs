//! Routes, addresses and headers of known clients, over the real socket.
//! One file because every test sends a client's request and checks the response.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
    assert_eq!(status, 501, "{compacted}");
    assert!(self::message(&compacted).contains("summary"), "{compacted}");
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
fn azures_urls_and_headers_select_the_model() {
    let files = ["one", "org/two"].map(|name| {
        let (file, text) = model(name, &["--model", name, "--tokens", "3"], "memory_gib: 1");
        (file.replace('/', "-"), text)
    });
    let pool = Pool::with_models(&files, "auth: {inference: key}\n");
    let wanted = json!({"name": "a client", "role": "user", "routes": ["/v1/*"]});
    let (status, made) = pool.admin("POST", "/llm/admin/keys", &wanted);
    assert_eq!(status, 200, "{made}");
    let key = made["key"].as_str().unwrap();
    for header in ["api-key", "x-api-key", "x-goog-api-key"] {
        let lines = [(header, key)];
        let path = "/openai/deployments/one/chat/completions?api-version=2024-10-21";
        let (status, response) = call(&pool, path, &chat("gpt-4o"), &lines);
        assert_eq!(status, 200, "{header}: {response}");
        assert_eq!(response["model"], "one", "{response}");
    }
    let lines = [("api-key", key)];
    let mut without = chat("x");
    without.as_object_mut().unwrap().remove("model");
    for path in [
        "/openai/deployments/org/two/chat/completions",
        "/llm/openai/deployments/org%2Ftwo/chat/completions?api-version=1",
        "/v1/engines/org/two/chat/completions",
    ] {
        let (status, response) = call(&pool, path, &without, &lines);
        assert_eq!(
            (status, &response["model"]),
            (200, &json!("org/two")),
            "{path}: {response}"
        );
    }
    let form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--x--\r\n";
    let bearer = format!("Bearer {key}");
    let (status, text) = send(
        &pool,
        "/openai/deployments/one/audio/transcriptions?api-version=1",
        "multipart/form-data; boundary=x",
        form,
        &bearer,
    );
    assert_eq!(status, 200, "{text}");
    // A wrong key is refused on every path, before any of the body is read.
    let (status, response) = call(
        &pool,
        "/openai/deployments/one/chat/completions",
        &chat("one"),
        &[("api-key", "mp-wrong")],
    );
    assert_eq!(
        (status, &response["error"]["code"]),
        (401, &json!("invalid_api_key"))
    );
    let (status, response) = call(
        &pool,
        "/openai/deployments/none/chat/completions",
        &chat("one"),
        &lines,
    );
    assert_eq!(
        (status, &response["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}

fn send(pool: &Pool, path: &str, kind: &str, body: &str, bearer: &str) -> (u16, String) {
    let mut socket = std::net::TcpStream::connect(pool.address()).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        pool.address(),
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

#[test]
fn alternative_urls_of_clients_reach_the_same_routes() {
    let pool = Pool::with_models(&[model("m", &["--model", "m"], "memory_gib: 1")], "");
    for path in [
        "/v1/v1/chat/completions",
        "/api/v1/chat/completions",
        "/openai/v1/chat/completions",
        "/v1beta/openai/chat/completions",
        "/engines/v1/chat/completions",
        "/v1/chat/completions/",
        "/llm/v1/v1/chat/completions",
    ] {
        let (status, response) = call(&pool, path, &chat("m"), &[]);
        assert_eq!(status, 200, "{path}: {response}");
    }
    let ranks = json!({"model": "m", "query": "q", "documents": ["a", "bbb"]});
    for path in [
        "/v2/rerank",
        "/v1/reranking",
        "/llm/v2/rerank",
        "/v1/rerank/",
    ] {
        let (status, response) = call(&pool, path, &ranks, &[]);
        assert_eq!(status, 200, "{path}: {response}");
        assert_eq!(response["results"][1]["relevance_score"], 3, "{path}");
    }
    for path in [
        "/v1/engines",
        "/api/v1/models",
        "/v1/models/",
        "/openai/models?api-version=1",
    ] {
        let (status, response) = get(&pool, path);
        assert_eq!(
            (status, &response["data"][0]["id"]),
            (200, &json!("m")),
            "{path}"
        );
    }
    let (status, text, _) = pool.request("HEAD", "/v1/models/", "", None);
    assert_eq!((status, text.as_str()), (200, ""));
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

/// Status and head of a request over a Unix socket.
fn over_socket(path: &Path, lines: &str) -> (u16, String) {
    let mut socket = UnixStream::connect(path).unwrap();
    let head = format!(
        "GET /v1/models HTTP/1.1\r\nHost: llm.example.org\r\n{lines}Connection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

fn on_socket(folder: &Path, socket: &Path, more: &[&str]) -> Child {
    let config = format!(
        "server: {{listen: \"unix:{}\", socket_mode: \"660\"}}\nstate: {{dir: {:?}}}\ncatalog: {{models_dir: {:?}}}\n",
        socket.display(),
        folder.join("data"),
        folder.join("models"),
    );
    fs::write(folder.join("config.yaml"), config).unwrap();
    fs::create_dir_all(folder.join("models")).unwrap();
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    Command::new(support::program())
        .arg("serve")
        .arg("--config")
        .arg(folder.join("config.yaml"))
        .args(more)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn terminate(mut child: Child) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_service_listens_on_a_unix_socket_with_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("http.sock");
    let serves = |count: usize| {
        let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        log.matches("serving http://unix:").count() >= count
    };
    // A socket left by a killed process does not prevent the start.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let child = on_socket(folder.path(), &socket, &[]);
    wait_for("the socket to be served", || serves(1));
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let (status, text) = over_socket(&socket, "");
    assert_eq!(status, 200, "{text}");
    // A client behind a proxy does not count as local.
    for line in [
        "X-Forwarded-For: 127.0.0.1\r\n",
        "X-Forwarded-For: 192.0.2.1\r\n",
        "Via: 1.1 proxy\r\n",
    ] {
        let (status, text) = over_socket(&socket, line);
        assert_eq!(status, 401, "{line}: {text}");
    }
    // A service with another state cannot take the socket; a new process takes over without a pause.
    let other = tempfile::tempdir().unwrap();
    assert!(
        !on_socket(other.path(), &socket, &[])
            .wait()
            .unwrap()
            .success()
    );
    let log = fs::read_to_string(other.path().join("log")).unwrap();
    assert!(log.contains("another process listens there"), "{log}");
    let successor = on_socket(folder.path(), &socket, &["--takeover"]);
    wait_for("the new one to serve", || serves(2));
    let mut child = child;
    assert!(child.wait().unwrap().success());
    assert_eq!(over_socket(&socket, "").0, 200);
    terminate(successor);
    assert!(!socket.exists(), "nothing is left behind");
}

#[test]
fn behind_a_proxy_that_removes_a_prefix_pages_cookies_and_the_document_work() {
    let pool = Pool::with_env(
        &[],
        "",
        &[("MODEL_POOL__SERVER__TRUSTED_PROXIES", "[127.0.0.1]")],
    );
    let forwarded = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Prefix", "/ai"),
    ];
    let (status, _, head) = pool.request_with("GET", "/llm/docs", "", &forwarded);
    assert!((300..400).contains(&status), "{status}");
    assert!(head.contains("location: docs/\r\n"), "{head}");
    let server = |path: &str, lines: &[(&str, &str)]| {
        let (_, text, _) = pool.request_with("GET", path, "", lines);
        json_of(&text)["servers"][0]["url"].clone()
    };
    assert_eq!(server("/llm/openapi.json", &forwarded), "/ai/llm");
    assert_eq!(server("/llm/openapi.json", &[]), "/llm");
    // Swagger UI resolves it relative to the document's address in the browser.
    assert_eq!(server("/llm/openapi.json?relative", &[]), ".");
    let (_, page, _) = pool.request_with("GET", "/llm/docs/swagger-initializer.js", "", &[]);
    assert!(page.contains("../openapi.json?relative"), "{page}");
    for prefix in ["//evil.example", "/ai/../x", "/a b"] {
        let lines = [
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-Forwarded-Prefix", prefix),
        ];
        assert_eq!(server("/llm/openapi.json", &lines), "/llm", "{prefix}");
    }
    // A browser stores a cookie without a path for the folder of the visible route: /ai/llm.
    let own = format!("http://{}", pool.address());
    let login = json!({"key": pool.admin_key()}).to_string();
    let lines = [("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let (status, text, head) = pool.request_with("POST", "/llm/session", &login, &lines);
    assert_eq!(status, 200, "{text}");
    let cookie = head
        .lines()
        .find(|line| line.starts_with("set-cookie"))
        .unwrap();
    assert!(!cookie.contains("path="), "{cookie}");
    let pool = Pool::with_models(&[], "");
    let (_, text, _) = pool.request_with("GET", "/llm/openapi.json", "", &[forwarded[1]]);
    assert_eq!(
        json_of(&text)["servers"][0]["url"],
        "/llm",
        "a stranger names no prefix"
    );
}
