//! Errors of requests are in Ollama's form, with the field and the permitted values.

use serde_json::{Value, json};
use support::service::Pool;
use support::table::{self, rows_of};

use super::{ON, ask, demo, pool, stub};

fn words(response: &Value) -> &str {
    assert_eq!(
        response.as_object().map(|fields| fields.len()),
        Some(1),
        "{response}"
    );
    response["error"].as_str().unwrap_or_default()
}

const TURN: &str = r#"[{"role": "user", "content": "x"}]"#;
/// A path | a body | the name of the wrong field
const WRONG: &str = r#"
    /api/chat | {} | `model`
    /api/chat | {"model": ""} | `model`
    /api/chat | {"model": 7} | `model`
    /api/chat | {"model": "writer", "messages": TURN, "prompt": "x"} | `prompt`
    /api/generate | {"model": "writer", "messages": TURN, "prompt": "x"} | `messages`
    /api/chat | {"model": "writer", "messages": "x"} | `messages`
    /api/chat | {"model": "writer", "messages": [{"role": "robot"}]} | `messages[0].role`
    /api/chat | {"model": "writer", "messages": TURN, "keep_alive": "abc"} | `keep_alive`
    /api/chat | {"model": "writer", "messages": TURN, "format": "yaml"} | `format`
    /api/chat | {"model": "writer", "messages": TURN, "stream": "yes"} | `stream`
    /api/chat | {"model": "writer", "messages": TURN, "think": 3} | `think`
    /api/chat | {"model": "writer", "messages": TURN, "options": {"temperature": "hot"}} | `options.temperature`
    /api/chat | {"model": "writer", "messages": TURN, "options": {"num_ctx": []}} | `options.num_ctx`
    /api/chat | {"model": "writer", "messages": TURN, "options": 3} | `options`
    /api/generate | {"model": "writer", "prompt": ["x"]} | `prompt`
    /api/generate | {"model": "writer", "prompt": "x", "template": "{{ .Prompt }}"} | `template`
    /api/generate | {"model": "writer", "prompt": "x", "context": [1]} | `context`
    /api/generate | {"model": "writer", "prompt": "x", "images": ["/etc/passwd"]} | `images[0]`
    /api/embed | {"model": "writer", "input": [1, 2]} | `input`
    /api/embed | {"model": "writer", "input": ["x", ""]} | `input`
    /api/embed | {"model": "writer", "input": "x", "dimensions": 0} | `dimensions`
    /api/embeddings | {"model": "writer", "prompt": 3} | `prompt`
    /api/show | {} | `model`
    /api/pull | {"model": "writer", "stream": 1} | `stream`
"#;

#[test]
fn wrong_requests_are_refused_by_the_name_of_the_field_and_load_nothing() {
    let pool = pool("writer", &[]);
    for [path, body, named] in rows_of(WRONG) {
        let body = table::json(&body.replace("TURN", TURN));
        let (status, response, head) = ask(&pool, path, &body, None);
        assert_eq!(status, 400, "{path} {body}: {response}");
        assert!(
            words(&response).contains(named),
            "{path} {body}: {response}"
        );
        assert!(head.contains("content-type: application/json"), "{head}");
    }
    assert!(pool.engine_pids().is_empty(), "nothing was loaded for them");
}

#[test]
fn unknown_names_and_routes_and_invalid_bodies_are_refused_in_ollamas_form() {
    let pool = pool("writer", &[]);
    for path in ["/api/chat", "/api/generate", "/api/embed", "/api/show"] {
        let body = json!({"model": "writre", "messages": [{"role": "user", "content": "x"}], "prompt": "",
            "input": "x"});
        let mut body = body;
        if path == "/api/generate" {
            body["messages"] = json!([]);
        }
        let (status, response, _) = ask(&pool, path, &body, None);
        assert_eq!(
            (status, words(&response)),
            (404, "model 'writre' not found; the closest is writer"),
            "{path}"
        );
    }
    let long = json!({"model": "x".repeat(1 << 20), "prompt": "x"});
    let (status, response, _) = ask(&pool, "/api/generate", &long, None);
    assert!(
        status == 400 && words(&response).contains("longer than 256 bytes"),
        "{status}"
    );
    for (body, status) in [
        ("", 400),
        ("not json", 400),
        ("[]", 400),
        ("null", 400),
        ("{\"model\": \"\u{0}\"}", 400),
    ] {
        let (refused, text) = pool.post("/api/chat", body);
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(refused, status, "{body}: {text}");
        assert!(!words(&response).is_empty());
    }
    let deep = format!(
        "{{\"model\": \"writer\", \"messages\": {}{}}}",
        "[".repeat(100),
        "]".repeat(100)
    );
    assert_eq!(pool.post("/api/chat", &deep).0, 400);
    let large = json!({"model": "writer", "prompt": "x".repeat(11 << 20)}).to_string();
    let (status, text) = pool.post("/api/generate", &large);
    assert_eq!(status, 413, "{text}");
    for (method, path, status) in [
        ("GET", "/api/nothing", 404),
        ("GET", "/llm/api/nothing", 404),
        ("GET", "/api/chat", 405),
        ("POST", "/api/tags", 405),
    ] {
        let (refused, text, _) = pool.request(method, path, "", None);
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(refused, status, "{method} {path}: {text}");
        assert!(!words(&response).is_empty());
    }
}

#[test]
fn cross_site_pages_and_wrong_keys_are_refused() {
    let pool = pool("writer", &[]);
    let body = json!({"model": "writer"}).to_string();
    for path in ["/api/generate", "/llm/api/chat"] {
        let page = [
            ("Origin", "https://evil.example"),
            ("Sec-Fetch-Site", "cross-site"),
        ];
        let (status, text, _) = pool.request_with("POST", path, &body, &page);
        assert!(status == 403 && text.starts_with("{\"error\":\""), "{text}");
        let (status, text, _) = pool.request("POST", path, &body, Some("mp-no-such-key"));
        assert!(status == 401 && !text.contains("mp-no-such-key"), "{text}");
    }
    assert!(pool.engine_pids().is_empty());
    // Programs that omit the type, and `curl -d`, which sends a form's type.
    for kind in ["", "text/plain", "application/x-www-form-urlencoded"] {
        let body = json!({"model": "writer", "prompt": "Hi", "stream": false}).to_string();
        let (status, text, _) = pool.request_as(kind, "/api/generate", &body);
        assert_eq!(status, 200, "{kind}: {text}");
    }
}

#[test]
fn an_invalid_schema_is_refused_by_the_engine_and_the_next_request_is_served() {
    let pool = demo();
    for format in [
        json!({"type": "nonsense"}),
        json!({"$ref": "#/definitions/nowhere"}),
        json!({"type": "object", "properties": {"a": 3}}),
    ] {
        let body = json!({"model": "tiny-guide", "prompt": "x", "stream": false, "format": format});
        let (status, response, _) = ask(&pool, "/api/generate", &body, None);
        assert_eq!(status, 400, "{format}: {response}");
        assert!(words(&response).contains("`format`"), "{response}");
    }
    let body = json!({"model": "tiny-guide", "prompt": "x", "stream": false, "options": {"num_predict": 1}});
    assert_eq!(ask(&pool, "/api/generate", &body, None).0, 200);
}

#[test]
fn ollama_routes_do_not_exist_unless_configured_and_the_response_names_the_setting() {
    let pool = Pool::with_models(&[stub("writer", &[], "")], "");
    for (method, path) in [
        ("GET", "/api/tags"),
        ("POST", "/llm/api/chat"),
        ("GET", "/api/version"),
    ] {
        let (status, text, _) = pool.request(method, path, r#"{"model":"writer"}"#, None);
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &response["error"]["code"]),
            (404, &json!("not_found")),
            "{path}"
        );
        assert!(text.contains("compat.ollama"), "{text}");
    }
    assert_eq!(pool.request("GET", "/", "", None).0, 404);
    let (_, text, _) = pool.request("GET", "/llm/openapi.json", "", None);
    assert!(
        !text.contains("/api/chat"),
        "the document has them where they are"
    );
    drop(pool);
    let pool = Pool::with_models(&[stub("writer", &[], "")], ON);
    let (_, text, _) = pool.request("GET", "/llm/openapi.json", "", None);
    let document: Value = serde_json::from_str(&text).unwrap();
    for path in [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/tags",
        "/api/show",
        "/api/ps",
        "/api/version",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}
