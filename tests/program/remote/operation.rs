//! Remote endpoints in operation: responses, the form of requests, TLS, seats and queue, the evening and the reopening.

use serde_json::{Value, json};

use super::{TEAM, assert_secrets_are_kept, chat, far, keyed, message, pool_of, until_state, view};
use support::servers::KEY;
use support::servers::{ScriptedServer, Stub, http, tls_before};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

#[test]
fn a_remote_model_serves_complete_and_streamed_responses_without_a_device() {
    let stub = Stub::with(&[]);
    let named = "  served_model_name: their-name\n  api_key_env: FAR_KEY\n";
    let pool = pool_of(far(&stub.url(), named, ""));
    let (status, plain) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 200, "{plain}");
    assert!(plain.contains("Hello from their-name"), "{plain}");
    assert!(plain.contains("\"model\":\"far\""), "{plain}");
    let stream = pool.stream("/v1/chat/completions", &chat(true)).whole();
    assert!(
        stream.contains("their-name") && stream.contains("[DONE]"),
        "{stream}"
    );
    assert!(!stream.contains("\"model\":\"their-name\""), "{stream}");
    assert!(stream.contains("\"model\":\"far\""), "{stream}");

    until_state(&pool, "ready");
    let view = view(&pool);
    assert_eq!(
        (&view["engine"], &view["state"]),
        (&json!("remote"), &json!("ready"))
    );
    assert_eq!(
        view["replicas"][0]["devices"],
        json!([{"device": "elsewhere", "bytes": 0}])
    );
    assert_eq!(view["replicas"][0]["pid"], Value::Null);
    let (_, hot) = pool_get(&pool, "/llm/hot-models");
    assert_eq!(hot["hot_models"][0]["remote"], json!(true), "{hot}");
    assert_eq!(hot["hot_models"][0]["gpus_per_replica"], json!(0), "{hot}");

    let (_, devices) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
    let devices = devices["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 1, "only the GPU is shown");
    let (_, metrics, _) = pool.request("GET", "/metrics", "", Some(&pool.admin_key()));
    assert!(!metrics.contains("elsewhere"), "{metrics}");
    for counted in ["first_token", "tokens", "requests"] {
        let of_it = |line: &str| line.contains(counted) && line.contains("\"far\"");
        assert!(
            metrics.lines().any(of_it),
            "{counted} is missing in {metrics}"
        );
    }
    assert!(pool.engine_pids().is_empty(), "nothing was started");
    assert_secrets_are_kept(&pool);
}

fn pool_get(pool: &Pool, path: &str) -> (u16, Value) {
    let (status, text, _) = pool.request("GET", path, "", None);
    (status, serde_json::from_str(&text).unwrap_or_default())
}

#[test]
fn a_request_is_sent_below_the_prefix_with_the_pools_own_key_and_headers() {
    let server = ScriptedServer::server(|request| {
        if request.starts_with("GET") {
            http("200 OK", "", "{}")
        } else {
            // A server that repeats the complete request in its error.
            http("400 Bad Request", "content-type: text/plain\r\n", request)
        }
    });
    let engine = format!(
        "  served_model_name: their-name\n  api_key_env: FAR_KEY\n  headers: {{X-Team: {TEAM}}}\n"
    );
    let pool = pool_of(far(&server.url("/openai/v2/"), &engine, ""));
    let (status, body, _) = pool.request(
        "POST",
        "/v1/chat/completions",
        &chat(false),
        Some("of-the-client"),
    );
    assert_eq!(status, 400, "{body}");
    assert!(
        !body.contains(KEY) && !body.contains(TEAM),
        "masked: {body}"
    );
    let asked = server.asked();
    assert!(
        asked[0].starts_with("GET /openai/v2/models HTTP/1.1\r\n"),
        "{asked:?}"
    );
    let request = asked.last().unwrap();
    let head = request.to_lowercase();
    assert!(
        request.starts_with("POST /openai/v2/chat/completions HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        head.contains(&format!("authorization: bearer {KEY}\r\n")),
        "{request}"
    );
    assert!(head.contains(&format!("x-team: {TEAM}\r\n")), "{request}");
    assert!(
        head.contains(&format!("host: {}\r\n", server.address)),
        "{request}"
    );
    assert!(!head.contains("of-the-client"), "{request}");
    assert!(request.contains("\"model\":\"their-name\""), "{request}");
    assert_secrets_are_kept(&pool);
}

#[test]
fn a_key_in_a_file_is_read_when_the_model_is_loaded() {
    let stub = Stub::with(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    let engine = format!("  api_key_file: {file:?}\n");
    let pool = pool_of(far(&stub.url(), &engine, ""));
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 200, "{response}");
    assert_secrets_are_kept(&pool);
}

#[test]
fn the_tls_certificate_of_a_remote_server_must_be_signed_by_a_known_authority() {
    let stub = Stub::with(&[]);
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let port = tls_before(&stub.address, &authority);
    let file = keyed(&format!("https://localhost:{port}/v1"), "");
    let path = authority.display().to_string();
    let trusting = Pool::with_env(
        std::slice::from_ref(&file),
        "",
        &[("FAR_KEY", KEY), ("SSL_CERT_FILE", &path)],
    );
    let (status, response) = trusting.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 200, "{response}");
    let stream = trusting.stream("/v1/chat/completions", &chat(true)).whole();
    assert!(
        stream.contains("Hello") && stream.contains("[DONE]"),
        "{stream}"
    );
    assert_secrets_are_kept(&trusting);

    let other = folder.path().join("other.pem");
    tls_before(&stub.address, &other);
    let path = other.display().to_string();
    let wary = Pool::with_env(&[file], "", &[("FAR_KEY", KEY), ("SSL_CERT_FILE", &path)]);
    let (status, response) = wary.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{response}");
    assert!(message(&response).contains("SSL_CERT_FILE"), "{response}");
    assert_secrets_are_kept(&wary);
}

#[test]
fn requests_beyond_the_seats_are_queued_and_requests_beyond_the_queue_are_refused() {
    let stub = Stub::with(&["--tokens", "100000", "--token-ms", "5"]);
    let limits = "deployment_config: {max_ongoing_requests: 1}\npool_config: {queue_limit: 1}\n";
    let pool = pool_of(keyed(&stub.url(), limits));
    let first = pool.stream("/v1/chat/completions", &chat(true));
    wait_for("the first answer to begin", || {
        first.text().contains("Hello")
    });
    let second = pool.stream("/v1/chat/completions", &chat(true));
    wait_for("the second request to wait", || {
        view(&pool)["waiting"] == json!(1)
    });
    let (status, refused) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 429, "{refused}");
    drop(first);
    wait_for("the second answer to begin", || {
        second.text().contains("Hello")
    });
}

#[test]
fn the_evening_cleanup_drops_a_remote_model_and_a_request_restores_it() {
    let stub = Stub::with(&[]);
    let pool = pool_of(keyed(&stub.url(), ""));
    assert_eq!(pool.post("/v1/chat/completions", &chat(false)).0, 200);
    let (status, response) = pool.admin("POST", "/llm/admin/cleanup", &json!({}));
    assert_eq!(status, 200, "{response}");
    until_state(&pool, "cold");
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 200, "{response}");
    until_state(&pool, "ready");
}

#[test]
fn a_remote_model_evicts_no_local_one_and_is_never_a_victim() {
    let stub = Stub::with(&[]);
    let local = |name: &str, gib: u32| {
        let engine = stub_engine().display().to_string();
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\"]\npool_config: {{memory_gib: {gib}}}\n"
        );
        (format!("{name}.yaml"), text)
    };
    let files = [keyed(&stub.url(), ""), local("near", 15), local("huge", 20)];
    let pool = Pool::with_env(&files, "", &[("FAR_KEY", KEY)]);
    let order = |what: &str, model: &str| {
        let path = format!("/llm/admin/{what}");
        pool.admin("POST", &path, &json!({"model": model}))
    };
    let (status, response) = order("load", "near");
    assert_eq!(status, 200, "{response}");
    let (_, plan) = order("plan", "far");
    assert!(plan.to_string().contains("elsewhere"), "{plan}");
    let (status, response) = order("load", "far");
    assert_eq!(status, 200, "{response}");
    let (_, hot, _) = pool.request("GET", "/llm/hot-models", "", None);
    let hot: Value = serde_json::from_str(&hot).unwrap_or_default();
    assert_eq!(hot["hot_models"].as_array().map(Vec::len), Some(2), "{hot}");
    let (status, refused) = order("load", "huge");
    assert_eq!(status, 409, "{refused}");
    assert!(!refused.to_string().contains("elsewhere"), "{refused}");
    let (_, plan) = order("plan", "near");
    assert!(!plan.to_string().contains("elsewhere"), "{plan}");
}
