//! URLs and prefixes that clients and proxies use for the same routes.

use std::io::{Read, Write};

use serde_json::json;
use support::service::Pool;
use support::stub::model;

use super::{call, chat, get, json_of};

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
