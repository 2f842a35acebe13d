//! Output of engines on a node, in their replicas' logs: the complete output of an engine that ends immediately, and later output
//! after the connection or the controller was lost for a while.

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::family::{after, asks};
use support::service::{Pool, wait_for};

use super::{Node, pool_with, until};

fn lines(pool: &Pool, model: &str) -> Vec<String> {
    let path = format!("/llm/admin/logs?model={model}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    let log: Value = serde_json::from_str(&text).unwrap_or_default();
    let lines = log["lines"].as_array().into_iter().flatten();
    let texts = lines.filter_map(|line| line["line"].as_str());
    texts.map(str::to_owned).collect()
}

/// Its engine prints two lines and exits.
fn short_lived(name: &str) -> (String, String) {
    after(name, "echo first line; echo last line; exit 3;", "")
}

fn assert_log_of_short_lived(pool: &Pool, model: &str) {
    let (status, text) = asks(pool, model);
    assert!(status >= 500, "{status}: {text}");
    wait_for("the lines of the engine that has ended", || {
        let lines = lines(pool, model);
        let is = |line: Option<&String>, text: &str| line.is_some_and(|line| line == text);
        is(lines.first(), "first line") && is(lines.last(), "last line")
    });
}

/// Its engine serves, and prints a line once this file exists.
fn prints_at(name: &str, mark: &Path) -> (String, String) {
    let script = format!(
        "(while [ ! -e {} ]; do sleep 0.05; done; echo later line) &",
        mark.display()
    );
    after(name, &script, "")
}

fn wait_for_later_line(pool: &Pool, model: &str) {
    wait_for("the later line", || {
        lines(pool, model).iter().any(|line| line == "later line")
    });
}

#[test]
fn the_log_of_a_short_lived_engine_has_its_first_and_last_line() {
    let pool = pool_with(&[short_lived("a")], "");
    let _node = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_log_of_short_lived(&pool, "a");
}

#[test]
fn the_log_of_an_engine_continues_after_its_node_was_silent() {
    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("mark");
    let pool = pool_with(&[prints_at("a", &mark)], "node: {silent_after: 2s}\n");
    let other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    other.signal("-STOP");
    until(&pool, "gpu-2", "silent");
    other.signal("-CONT");
    until(&pool, "gpu-2", "joined");
    fs::write(&mark, "").unwrap();
    wait_for_later_line(&pool, "a");
}

#[test]
fn lines_printed_without_a_controller_appear_in_the_log_of_the_next_one() {
    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("mark");
    let mut pool = pool_with(&[prints_at("a", &mark), short_lived("b")], "");
    // Nodes know the controller by its address.
    let address = pool.address().to_owned();
    pool.set_env("MODEL_POOL__SERVER__LISTEN", &address);
    pool.set_env("MODEL_POOL__POOL__ON_RESTART", "adopt");
    let other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    let engines = other.engines();
    pool.kill();
    fs::write(&mark, "").unwrap();
    pool.restart();
    until(&pool, "gpu-2", "joined");
    wait_for_later_line(&pool, "a");
    assert_eq!(other.engines(), engines, "it was adopted");
    assert_log_of_short_lived(&pool, "b");
}
