//! One pool over several machines: `model-pool node` processes with separate devices, joined to one controller.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::child::ChildGuard;
use support::family::{asks, chat, is_alive, shown, stub, told};
use support::service::{Pool, end_engines_in, engine_pids_in, wait_for};

mod cluster_requests;
mod gangs;
mod hostile;
mod joining;
mod kubernetes;
mod load;
mod logs;
mod pbs;
mod replacement;
mod takeover;
mod weights;

/// The controller has no room for a model, which forces all models onto nodes.
const NO_ROOM: &str = "inventory: {provider: fixed, devices: [{name: small, memory: 1MiB}]}\n";

/// A `model-pool node`, ended with the test.
struct Node {
    child: ChildGuard,
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Node {
    /// Starts a node with one device of 4 GiB and a new token.
    fn start(pool: &Pool, name: &'static str) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let token = token(pool, json!({}));
        Node::start_in(folder, pool, name, &token)
    }

    fn start_in(folder: tempfile::TempDir, pool: &Pool, name: &'static str, token: &str) -> Node {
        let url = format!("http://{}", pool.address());
        Node::start_at(folder, &url, name, token, &[])
    }

    fn start_at(
        folder: tempfile::TempDir,
        url: &str,
        name: &'static str,
        token: &str,
        more: &[&str],
    ) -> Node {
        let file = folder.path().join("token");
        fs::write(&file, token).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let config = folder.path().join("node.yaml");
        if !config.exists() {
            fs::write(&config, one_device("4GiB")).unwrap();
        }
        Node {
            child: ChildGuard(spawn(folder.path(), url, name, more)),
            folder,
            name,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Its exit status, once it has ended.
    fn ends(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the node to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Processes of its engines, from its journal.
    fn engines(&self) -> Vec<u32> {
        engine_pids_in(&self.folder.path().join("data"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_engines_in(&self.folder.path().join("data"));
        if std::thread::panicking() {
            eprintln!("--- the log of {} ---\n{}", self.name, self.log());
        }
    }
}

fn one_device(memory: &str) -> String {
    format!("inventory: {{provider: fixed, devices: [{{name: gpu0, memory: {memory}}}]}}\n")
}

fn spawn(folder: &Path, url: &str, name: &str, more: &[&str]) -> Child {
    // An earlier process may still write to its own log.
    let _ = fs::remove_file(folder.join("log"));
    let log = fs::File::create(folder.join("log")).unwrap();
    let file = |name: &str| -> PathBuf { folder.join(name) };
    Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["node", "--controller"])
        .arg(url)
        .args(more)
        .args(["--name", name, "--token-file"])
        .arg(file("token"))
        .arg("--config")
        .arg(file("node.yaml"))
        .arg("--data")
        .arg(file("data"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn token(pool: &Pool, body: Value) -> String {
    let key = pool.admin_key();
    let (status, text, _) = pool.request(
        "POST",
        "/llm/admin/nodes/tokens",
        &body.to_string(),
        Some(&key),
    );
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).unwrap();
    response["token"].as_str().unwrap().to_owned()
}

/// The pending node request of the pool; null if none.
fn requested_node(pool: &Pool) -> Value {
    let (_, list) = pool.admin("GET", "/llm/admin/nodes", &Value::Null);
    list["requested"][0].clone()
}

fn node(pool: &Pool, name: &str) -> Value {
    let (_, list) = pool.admin("GET", "/llm/admin/nodes", &Value::Null);
    let nodes = list["nodes"].as_array().unwrap();
    nodes
        .iter()
        .find(|node| node["node"] == name)
        .cloned()
        .unwrap_or_default()
}

fn until(pool: &Pool, name: &str, state: &str) {
    wait_for(&format!("node {name} to be {state}"), || {
        node(pool, name)["state"] == state
    });
}

fn pool_with(models: &[(String, String)], more: &str) -> Pool {
    Pool::with_devices(models, &format!("{NO_ROOM}{more}"))
}

#[test]
fn a_model_loaded_on_a_node_serves_complete_and_streamed_responses() {
    let pool = pool_with(&[stub("a", &[])], "");
    let other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    let (status, text) = asks(&pool, "a");
    assert_eq!(status, 200, "{text}");
    let stream = pool.stream("/v1/chat/completions", &chat("a", true));
    assert!(stream.whole().contains("[DONE]"));
    let replica = shown(&pool, "a")["replicas"][0].clone();
    assert_eq!(replica["devices"][0]["device"], "gpu-2/gpu0", "{replica}");
    assert_eq!(other.engines().len(), 1);
    assert!(pool.journal().is_empty(), "the controller started nothing");
}

#[test]
fn a_client_that_disconnects_ends_its_request_on_the_node() {
    let talk = ["--tokens", "100000", "--token-ms", "20"];
    let pool = pool_with(&[stub("a", &talk)], "");
    let _node = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    let stream = pool.stream("/v1/chat/completions", &chat("a", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let in_flight = || shown(&pool, "a")["replicas"][0]["in_flight"].as_u64();
    wait_for("the request to be seen", || in_flight() == Some(1));
    drop(stream);
    wait_for("the request to end", || in_flight() == Some(0));
}

#[test]
fn a_killed_node_fails_its_own_requests_and_no_others() {
    let talk = ["--tokens", "100000", "--token-ms", "20"];
    let pool = pool_with(&[stub("a", &talk), stub("b", &talk)], "");
    let mut first = Node::start(&pool, "gpu-1");
    until(&pool, "gpu-1", "joined");
    let on_first = pool.stream("/v1/chat/completions", &chat("a", true));
    wait_for("the first chunk", || on_first.text().contains("data: "));
    let key = pool.admin_key();
    let body = r#"{"node": "gpu-1", "wait": false}"#;
    let _second = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    let drained = pool.request("POST", "/llm/admin/nodes/drain", body, Some(&key));
    assert_eq!(drained.0, 202, "{}", drained.1);
    let on_second = pool.stream("/v1/chat/completions", &chat("b", true));
    wait_for("the first chunk", || on_second.text().contains("data: "));
    let engines = first.engines();
    first.signal("-KILL");
    assert_eq!(first.ends(), None);
    wait_for("the cut stream to end", || {
        on_first.text().contains("error")
    });
    until(&pool, "gpu-1", "silent");
    assert!(
        engines.iter().all(|pid| is_alive(*pid)),
        "engines wait for another process of the node"
    );
    let before = on_second.text().len();
    wait_for("the other stream to continue", || {
        on_second.text().len() > before
    });
}

#[test]
fn a_node_paused_for_a_while_returns_with_its_engines() {
    let pool = pool_with(&[stub("a", &[])], "node: {silent_after: 2s}\n");
    let other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    let engines = other.engines();
    other.signal("-STOP");
    until(&pool, "gpu-2", "silent");
    other.signal("-CONT");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    assert_eq!(other.engines(), engines, "one engine, and the same");
}

/// A pool that adopts engines after a restart, and a node that serves its model.
fn adopting_pool_with_node() -> (Pool, Node) {
    let mut pool = pool_with(&[stub("a", &[])], "");
    // Nodes know the controller by its address.
    let address = pool.address().to_owned();
    pool.set_env("MODEL_POOL__SERVER__LISTEN", &address);
    pool.set_env("MODEL_POOL__POOL__ON_RESTART", "adopt");
    let other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    (pool, other)
}

#[test]
fn a_controller_that_was_killed_adopts_the_engines_of_its_nodes() {
    let (mut pool, other) = adopting_pool_with_node();
    let engines = other.engines();
    assert_eq!(engines.len(), 1);
    pool.kill_and_restart();
    until(&pool, "gpu-2", "joined");
    let adopted = told(&pool, "adopt", 1);
    assert_eq!(adopted.len(), 1, "{adopted:?}");
    assert_eq!(asks(&pool, "a").0, 200);
    assert_eq!(other.engines(), engines, "the same process");
}

#[test]
fn after_a_restart_a_request_waits_for_the_node_that_can_serve_it() {
    let (mut pool, other) = adopting_pool_with_node();
    other.signal("-STOP");
    pool.kill_and_restart();
    until(&pool, "gpu-2", "silent");
    let waits = pool.stream("/v1/chat/completions", &chat("a", true));
    wait_for("the request to wait", || shown(&pool, "a")["waiting"] == 1);
    other.signal("-CONT");
    until(&pool, "gpu-2", "joined");
    let response = waits.whole();
    assert!(response.contains("[DONE]"), "it was refused: {response}");
}

#[test]
fn a_node_that_is_stopped_drains_signs_off_and_leaves_nothing_behind() {
    let pool = pool_with(&[stub("a", &["--tokens", "50", "--token-ms", "20"])], "");
    let mut other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    let stream = pool.stream("/v1/chat/completions", &chat("a", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let engines = other.engines();
    other.signal("-TERM");
    assert!(
        stream.whole().contains("[DONE]"),
        "what was in flight has ended"
    );
    assert_eq!(other.ends(), Some(0), "{}", other.log());
    assert!(!engines.iter().any(|pid| is_alive(*pid)));
    wait_for("the node to be gone", || node(&pool, "gpu-2").is_null());
    let again = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(
        asks(&pool, "a").0,
        200,
        "it is not drained any more: {}",
        again.log()
    );
}

#[test]
fn a_node_without_a_controller_stops_its_engines_and_exits() {
    let mut pool = pool_with(&[stub("a", &[])], "node: {orphan_after: 1s}\n");
    let mut other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    let engines = other.engines();
    pool.kill();
    assert_eq!(other.ends(), Some(0));
    assert!(
        other.log().contains("there has been no controller for"),
        "{}",
        other.log()
    );
    assert!(!engines.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_file_missing_on_a_node_is_reported_with_the_node() {
    let (file, text) = stub("a", &[]);
    let text = text.replace("  command:", "  model_path: /no/such/weights\n  command:");
    let pool = pool_with(&[(file, text)], "");
    let _node = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    let (status, text) = asks(&pool, "a");
    assert!(status >= 500, "{status}");
    // Clients do not see folders; the history contains the full path.
    assert!(text.contains("node gpu-2 has no"), "{text}");
    let reasons = told(&pool, "load_failed", 1);
    assert!(
        reasons[0].contains("node gpu-2 has no /no/such/weights"),
        "{reasons:?}"
    );
}

#[test]
fn secrets_of_a_model_reach_its_engine_and_no_log() {
    let (file, text) = stub("a", &[]);
    let text = text.replace(
        "pool_config:",
        "  env: {HF_TOKEN: hf_topsecretvalue}\npool_config:",
    );
    let pool = pool_with(&[(file, text)], "");
    let other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    let engine = other.engines()[0];
    let environment = fs::read(format!("/proc/{engine}/environ")).unwrap();
    assert!(String::from_utf8_lossy(&environment).contains("hf_topsecretvalue"));
    assert!(!pool.log().contains("hf_topsecretvalue"));
    assert!(!other.log().contains("hf_topsecretvalue"));
    assert_eq!(other.name, "gpu-2");
}

/// The time that nodes add, for display.
#[test]
fn a_node_adds_little_time_to_a_request() {
    let here = Pool::with_models(&[stub("a", &[])], "");
    let there = pool_with(&[stub("a", &[])], "");
    let _node = Node::start(&there, "gpu-2");
    until(&there, "gpu-2", "joined");
    let median = |pool: &Pool| {
        assert_eq!(asks(pool, "a").0, 200);
        let mut times: Vec<Duration> = (0..200)
            .map(|_| {
                let began = std::time::SystemTime::now();
                assert_eq!(asks(pool, "a").0, 200);
                began.elapsed().unwrap()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let (local, remote) = (median(&here), median(&there));
    println!("p50 of a plain request: {local:?} here, {remote:?} on a node");
    assert!(
        remote < local + Duration::from_millis(20),
        "{local:?} {remote:?}"
    );
}
