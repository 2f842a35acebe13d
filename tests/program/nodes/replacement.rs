//! A request whose node is killed before its response begins is placed again without the client noticing.

use std::fs;

use serde_json::json;
use support::family::{after, shown};
use support::service::{Pool, Stream, wait_for};

use super::{Node, one_device, pool_with, token, until};

/// With room for one replica.
fn start(pool: &Pool, name: &'static str) -> Node {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("node.yaml"), one_device("600MiB")).unwrap();
    let node = Node::start_in(folder, pool, name, &token(pool, json!({})));
    until(pool, name, "joined");
    node
}

fn load(pool: &Pool, replicas: u32) {
    let body = json!({"model": "a", "replicas": replicas}).to_string();
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", "/llm/admin/load", &body, Some(&key));
    assert_eq!(status, 200, "{text}");
}

fn in_flight(pool: &Pool, device: &str) -> u64 {
    let shown = shown(pool, "a");
    let mut replicas = shown["replicas"].as_array().into_iter().flatten();
    let replica = replicas.find(|replica| replica["devices"][0]["device"] == device);
    replica.map_or(0, |replica| replica["in_flight"].as_u64().unwrap_or(0))
}

#[test]
fn a_request_without_a_token_yet_on_a_killed_node_is_retried() {
    let marks = tempfile::tempdir().unwrap();
    let first = marks.path().join("first");
    // The first engine never answers; the second one does.
    let script = format!(
        "mkdir {} 2>/dev/null && MORE=--never-answer;",
        first.display()
    );
    let pool = pool_with(&[after("a", &script, "$MORE")], "");
    let mut lost = start(&pool, "gpu-1");
    load(&pool, 1);
    let _stays = start(&pool, "gpu-2");
    load(&pool, 2);
    // Some of several conversations go to the first replica.
    let ask = |nth: u32| {
        let messages = [json!({"role": "user", "content": format!("Question {nth}?")})];
        let body = json!({"model": "a", "messages": messages}).to_string();
        pool.stream("/v1/chat/completions", &body)
    };
    let responses: Vec<Stream> = (0..16).map(ask).collect();
    wait_for("a request that gets no answer", || {
        in_flight(&pool, "gpu-1/gpu0") > 0
    });
    lost.signal("-KILL");
    assert_eq!(lost.ends(), None);
    for response in &responses {
        let text = response.whole();
        assert!(text.contains("\"choices\""), "{text}");
    }
}
