//! `admin-client` with a real pool: its errors and exit statuses for impossible requests, mistyped names and the wrong scheme.

use std::process::{Command, Stdio};

use serde_json::Value;

use support::service::Pool;

/// Output of a run of the client.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

fn run(pool: &Pool, server: &str, words: &[&str]) -> Run {
    let output = Command::new(support::profile_dir().join("admin-client"))
        .args(words)
        .env("MODEL_POOL_SERVER", server)
        .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
        .stdin(Stdio::null())
        .output()
        .expect("admin-client is built with the tests");
    Run {
        status: output.status.code().expect("an exit status"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn client(pool: &Pool, words: &[&str]) -> Run {
    run(pool, &format!("http://{}", pool.address()), words)
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn a_load_with_too_few_replicas_exits_with_1_and_reports_how_many_would_fit() {
    let pool = Pool::demo();
    let load = client(&pool, &["load", "tiny-helper", "--replicas", "50"]);
    assert_eq!(load.status, 1, "{load:?}");
    has(
        &load.stdout,
        &["partly ready", "of 50 replicas", "missing", "MiB"],
    );
    has(
        &load.stdout,
        &["The devices hold at most 2 replicas if no other model is loaded"],
    );
    has(&load.stderr, &["error: ", "only 1 of 50 replicas ready"]);
    let json = client(
        &pool,
        &["load", "tiny-helper", "--replicas", "50", "--json"],
    );
    let response: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json.status, 1, "{json:?}");
    assert_eq!(response["fits_when_empty"], 2, "{response}");
}

#[test]
fn a_plan_is_refused_for_the_same_reason_as_the_load() {
    let pool = Pool::demo();
    for model in ["tiny-guide", "tiny-helper"] {
        let plan = client(&pool, &["plan", model, "--gpus", "3"]);
        let load = client(&pool, &["load", model, "--gpus", "3"]);
        assert_eq!((plan.status, load.status), (1, 1), "{plan:?} {load:?}");
        let why = "3 devices per replica were requested, and the largest node has 1";
        has(&plan.stdout, &["cannot be loaded", why]);
        has(&load.stderr, &[why]);
    }
}

#[test]
fn every_command_suggests_the_nearest_name_for_an_unknown_one() {
    let pool = Pool::demo();
    for words in [
        &["events", "--model", "tiny-gide"][..],
        &["events", "--model", "tiny-gide", "--follow"],
        &["logs", "tiny-gide"],
        &["show", "tiny-gide"],
        &["load", "tiny-gide"],
    ] {
        let response = client(&pool, words);
        assert_eq!(response.status, 1, "{words:?}: {response:?}");
        has(&response.stderr, &["tiny-gide", "tiny-guide"]);
    }
    let response = client(&pool, &["audit", "--of", "first admin kye"]);
    assert_eq!(response.status, 1, "{response:?}");
    has(&response.stderr, &["no key has the id", " is k1"]);
    assert_eq!(client(&pool, &["audit", "--of", "k1"]).status, 0);
    // The model is registered and removed, and its history stays.
    let file = pool.folder().join("gone.yaml");
    let text = "engine_config: {model_id: gone, type: CommandEngine, listen: port, command: [x, \"{{ port }}\"]}\npool_config: {memory_gib: 0.01}\n";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    assert_eq!(client(&pool, &["register", &file]).status, 0);
    let _it_cannot_start = client(&pool, &["load", "gone"]);
    assert_eq!(client(&pool, &["remove", "gone"]).status, 0);
    let events = client(&pool, &["events", "--model", "gone"]);
    assert_eq!(events.status, 0, "{events:?}");
    has(&events.stdout, &["gone"]);
}

#[test]
fn https_to_a_plain_port_suggests_http() {
    let pool = Pool::demo();
    let response = run(&pool, &format!("https://{}", pool.address()), &["models"]);
    assert_eq!(response.status, 3, "{response:?}");
    has(
        &response.stderr,
        &["plain HTTP", &format!("--server http://{}", pool.address())],
    );
}

#[test]
fn http_to_a_tls_port_suggests_https() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = format!("{{cert: {cert:?}, key: {key:?}}}");
    let model = "engine_config: {model_id: m, type: CommandEngine, listen: port, command: [x, \"{{ port }}\"]}\npool_config: {memory_gib: 1}\n";
    let model = ("m.yaml".to_owned(), model.to_owned());
    let pool = Pool::with_env(&[model], "", &[("MODEL_POOL__SERVER__TLS", &tls)]);
    let server = pool.address().to_owned();
    let response = run(&pool, &format!("http://{server}"), &["models"]);
    assert_eq!(response.status, 3, "{response:?}");
    has(
        &response.stderr,
        &["TLS", &format!("--server https://{server}")],
    );
}
