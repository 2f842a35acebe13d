//! Failures of remote endpoints: wrong keys, servers that are down, crash or redirect, and endpoints that may not be registered.

use serde_json::{Value, json};

use super::{assert_secrets_are_kept, chat, far, keyed, message, pool_of, until_state, view};
use support::servers::KEY;
use support::servers::{ScriptedServer, Stub, dead_url, http};
use support::service::{Pool, wait_for};

#[test]
fn a_wrong_key_is_reported_with_its_source_and_not_retried() {
    let stub = Stub::with(&[]);
    let wrong = [("FAR_KEY", "sesame-of-somebody-else")];
    let pool = Pool::with_env(&[keyed(&stub.url(), "")], "", &wrong);
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{response}");
    let told = message(&response);
    assert!(told.contains("401") && told.contains("FAR_KEY"), "{told}");
    assert!(told.contains("check that it is valid"), "{told}");
    until_state(&pool, "quarantined");
    assert!(!pool.log().contains("sesame-of"), "{}", pool.log());
}

#[test]
fn a_missing_key_is_reported_by_its_name() {
    let file = far(&dead_url(), "  api_key_env: NO_SUCH_KEY\n", "");
    let pool = pool_of(file);
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{response}");
    assert!(message(&response).contains("NO_SUCH_KEY"), "{response}");
}

#[test]
fn an_unreachable_server_fails_the_load_and_is_used_again_once_it_recovers() {
    let url = dead_url();
    let pool = pool_of(keyed(&url, ""));
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{response}");
    let told = message(&response);
    assert!(
        told.contains("unreachable") && told.contains("cannot connect"),
        "{told}"
    );
    until_state(&pool, "cooling");

    let port = url.trim_end_matches("/v1").rsplit(':').next().unwrap();
    let _stub = Stub::on(port, &[]);
    let (status, response) = pool.admin("POST", "/llm/admin/load", &json!({"model": "far"}));
    assert_eq!(status, 200, "{response}");
    assert_eq!(pool.post("/v1/chat/completions", &chat(false)).0, 200);
    assert_secrets_are_kept(&pool);
}

#[test]
fn a_remote_server_that_dies_mid_stream_ends_the_stream_with_an_error_and_never_with_done() {
    let stub = Stub::with(&["--crash-mid-stream", "3"]);
    let pool = pool_of(keyed(&stub.url(), ""));
    let stream = pool.stream("/v1/chat/completions", &chat(true)).whole();
    assert!(stream.contains("Hello"), "{stream}");
    assert!(stream.contains("\"error\""), "{stream}");
    assert!(!stream.contains("[DONE]"), "{stream}");
    // The pool's connections are unusable, and the next request reports the reason.
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 502, "{response}");
    assert!(message(&response).contains(&stub.address), "{response}");
}

#[test]
fn a_silent_remote_server_is_dropped_after_its_missed_heartbeats() {
    let mut stub = Stub::with(&[]);
    let quick = "pool: {heartbeat: 50ms, heartbeat_timeout: 50ms, heartbeat_misses: 2}\n";
    let file = keyed(&stub.url(), "");
    let pool = Pool::with_env(&[file], quick, &[("FAR_KEY", KEY)]);
    assert_eq!(pool.post("/v1/chat/completions", &chat(false)).0, 200);
    stub.end();
    wait_for("the route to be dropped", || {
        view(&pool)["last_failure"] != Value::Null
    });
    let failure = view(&pool)["last_failure"].to_string();
    assert!(failure.contains("unresponsive"), "{failure}");
}

#[test]
fn a_redirect_is_reported_and_not_followed() {
    let target = ScriptedServer::server(|_| http("200 OK", "", "{}"));
    let to = format!("location: {}\r\n", target.url("/v1/models"));
    let here = to.clone();
    let at_once = ScriptedServer::server(move |_| http("302 Found", &here, ""));
    let pool = pool_of(keyed(&at_once.url("/v1"), ""));
    let (status, response) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{response}");
    assert!(message(&response).contains("redirect"), "{response}");

    let later = ScriptedServer::server(move |request| {
        if request.starts_with("GET") {
            http("200 OK", "", "{}")
        } else {
            http("307 Temporary Redirect", &to, "")
        }
    });
    let pool = pool_of(keyed(&later.url("/v1"), ""));
    let (status, response, head) = pool.request("POST", "/v1/chat/completions", &chat(false), None);
    assert_eq!(status, 502, "{response}");
    assert!(message(&response).contains("redirect"), "{response}");
    assert!(!head.contains("location"), "{head}");
    assert_eq!(
        target.asked(),
        Vec::<String>::new(),
        "no request went there"
    );
}

#[test]
fn the_api_registers_only_https_or_loopback_urls_and_never_connects_to_metadata() {
    let stub = Stub::with(&[]);
    let pool = pool_of(far(&dead_url(), "", ""));
    let register = |name: &str, url: &str| {
        let document = json!({"engine_config": {
            "model_id": name, "type": "RemoteEngine", "url": url, "api_key_env": "FAR_KEY",
        }});
        let path = format!("/llm/admin/models?model={name}");
        pool.admin("PUT", &path, &document)
    };
    let (status, response) = register("plain", "http://192.0.2.7/v1");
    assert_eq!(status, 400, "{response}");
    assert!(response.to_string().contains("only https"), "{response}");

    let (status, response) = register("near", &stub.url());
    assert!(status < 300, "{response}");
    let ask = |name: &str| {
        let request = chat(false).replace("\"far\"", &format!("{name:?}"));
        pool.post("/v1/chat/completions", &request)
    };
    assert_eq!(ask("near").0, 200);

    let (status, response) = register("metadata", "https://169.254.169.254/v1");
    assert!(status < 300, "{response}");
    let (status, response) = ask("metadata");
    assert_eq!(status, 503, "{response}");
    assert!(
        message(&response).contains("metadata address"),
        "{response}"
    );
    assert_secrets_are_kept(&pool);
}

#[test]
fn check_shows_the_address_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (name, text) = keyed("https://api.example.org/v1", "");
    std::fs::write(folder.path().join(name), text).unwrap();
    let config = folder.path().join("pool.yml.config");
    std::fs::write(
        &config,
        format!("catalog: {{models_dir: {:?}}}\n", folder.path()),
    )
    .unwrap();
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check".as_ref(), "--config".as_ref(), config.as_os_str()])
        .env("FAR_KEY", KEY)
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&shown.stdout),
        String::from_utf8_lossy(&shown.stderr)
    );
    assert!(
        said.contains("remote engine at https://api.example.org/v1"),
        "{said}"
    );
    assert!(!said.contains(KEY) && !said.contains(super::TEAM), "{said}");
}
