//! Replicas over three nodes, with the double of vLLM (M8): loaded and streamed, evicted by priority, with one process killed and one
//! frozen, and adopted after a restart of the controller. Prints the times.

use std::fs;
use std::path::Path;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::double::vllm_double;
use support::family::{asks, chat, is_alive, kill, shown, stub, told};
use support::folder::write_tiny_weights;
use support::service::{Pool, wait_for};

use super::{Node, one_device, pool_with, token, until};

const NODES: [&str; 3] = ["gpu-1", "gpu-2", "gpu-3"];

/// A model of 9 GiB whose replica takes 3 GiB on a device of each of three nodes.
pub(super) fn wide(folder: &Path, tokens: u32) -> (String, String) {
    let weights = folder.join("wide");
    fs::create_dir(&weights).unwrap();
    write_tiny_weights(&weights);
    let program = vllm_double().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: wide\n  type: VLLMEngine\n  model_path: {:?}\n  program: {program:?}\n  env: {{VLLM_DOUBLE_LOAD_MS: '300', VLLM_DOUBLE_TOKENS: '{tokens}', VLLM_DOUBLE_TOKEN_MS: '20'}}\npool_config: {{memory_gib: 9, nodes: 3, min_resident: 0s}}\n",
        weights.display().to_string()
    );
    ("wide.yaml".to_owned(), text)
}

/// A model of higher priority that fills most of a device.
fn urgent() -> (String, String) {
    let (file, text) = stub("urgent", &[]);
    (
        file,
        text.replace("memory_gib: 0.5", "memory_gib: 3, priority: 1"),
    )
}

fn start(pool: &Pool) -> Vec<Node> {
    let start = |name: &'static str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("node.yaml"), one_device("4GiB")).unwrap();
        Node::start_in(folder, pool, name, &token(pool, json!({})))
    };
    let nodes: Vec<Node> = NODES.into_iter().map(start).collect();
    for name in NODES {
        until(pool, name, "joined");
    }
    nodes
}

fn engines(nodes: &[Node]) -> Vec<u32> {
    nodes.iter().flat_map(Node::engines).collect()
}

fn members(pool: &Pool) -> Vec<Value> {
    let replica = shown(pool, "wide")["replicas"][0].clone();
    let members = replica["members"].as_array();
    members.cloned().unwrap_or_default()
}

/// The process of a rank, and the name of its node.
fn member(pool: &Pool, rank: usize) -> (u32, String) {
    let member = members(pool)[rank].clone();
    let pid = member["pid"].as_u64().expect("a process");
    let name = member["node"].as_str().expect("a name");
    (u32::try_from(pid).expect("a pid"), name.to_owned())
}

#[expect(clippy::disallowed_methods, reason = "real programs in real time")]
fn timed<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = act();
    println!("{what}: {} ms", began.elapsed().as_millis());
    result
}

fn none_left(pids: &[u32]) {
    wait_for("every process of the gang to end", || {
        !pids.iter().any(|pid| is_alive(*pid))
    });
}

#[test]
fn m8_a_gang_over_three_nodes_serves_and_gives_way_to_a_higher_priority() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool_with(&[wide(folder.path(), 5), urgent()], "");
    let nodes = start(&pool);
    let (_, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "wide"}));
    let plan = plan.to_string();
    assert!(
        NODES
            .iter()
            .all(|name| plan.contains(&format!("{name}/gpu0"))),
        "{plan}"
    );
    let (status, text) = timed("load and first response", || asks(&pool, "wide"));
    assert_eq!(status, 200, "{text}");
    let stream = pool.stream("/v1/chat/completions", &chat("wide", true));
    assert!(timed("stream", || stream.whole()).contains("[DONE]"));
    let shown = members(&pool);
    let ranks: Vec<_> = shown.iter().map(|member| member["rank"].as_u64()).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(2)], "{shown:?}");
    assert!(nodes.iter().all(|node| node.engines().len() == 1));
    let pids = engines(&nodes);
    let (status, text) = timed("eviction of the gang and load of the urgent model", || {
        asks(&pool, "urgent")
    });
    assert_eq!(status, 200, "{text}");
    none_left(&pids);
    let evicted = told(&pool, "evict", 1);
    assert!(evicted[0].contains("preempted by urgent"), "{evicted:?}");
}

/// Ends a process of the gang while it streams; returns the client's text and the history.
fn after_signal(signal: Signal, config: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool_with(&[wide(folder.path(), 100_000)], config);
    let nodes = start(&pool);
    let stream = pool.stream("/v1/chat/completions", &chat("wide", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    wait_for("every process to be listed", || {
        members(&pool).iter().all(|member| member["pid"].is_u64())
    });
    let pids = engines(&nodes);
    assert_eq!(pids.len(), NODES.len());
    let (pid, node) = member(&pool, 1);
    kill(pid, signal);
    timed(&format!("{signal} until the stream ends"), || {
        wait_for("the cut stream to end", || stream.text().contains("error"));
    });
    timed("until every process has ended", || none_left(&pids));
    let crash = told(&pool, "crash", 1).remove(0);
    let place = format!("rank 1 on node {node}");
    assert!(stream.text().contains(&place), "{}", stream.text());
    assert!(crash.contains(&place), "{crash}");
    timed("until it serves again", || {
        wait_for("the model to be loaded again", || {
            let stream = pool.stream("/v1/chat/completions", &chat("wide", true));
            wait_for("a response", || {
                stream.text().contains("data: ") || stream.text().contains("error")
            });
            stream.text().contains("data: ") && !stream.text().contains("error")
        });
    });
    assert!(engines(&nodes).iter().all(|pid| !pids.contains(pid)));
    (stream.text(), crash)
}

#[test]
fn m8_a_killed_process_ends_the_gang_with_its_node_and_rank() {
    after_signal(Signal::SIGKILL, "");
}

#[test]
fn m8_a_frozen_process_ends_the_gang_with_its_node_and_rank() {
    // A healthy process on a loaded machine may miss some heartbeats.
    let quick = "pool: {heartbeat: 1s, heartbeat_timeout: 1s, heartbeat_misses: 6}\n";
    let (_, crash) = after_signal(Signal::SIGSTOP, quick);
    assert!(crash.contains("stopped"), "{crash}");
}

#[test]
fn m8_a_node_that_is_ordered_to_end_takes_the_gang_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool_with(&[wide(folder.path(), 5)], "");
    let mut nodes = start(&pool);
    assert_eq!(asks(&pool, "wide").0, 200);
    let pids = engines(&nodes);
    let (_, last) = member(&pool, 2);
    let leaver = nodes.iter_mut().find(|node| node.name == last);
    let leaver = leaver.expect("a node of the gang");
    leaver.signal("-TERM");
    assert_eq!(timed("until the node has left", || leaver.ends()), Some(0));
    none_left(&pids);
    let drained = told(&pool, "drain", 1);
    assert!(drained[0].contains(&format!("node {last}")), "{drained:?}");
    let (status, text) = asks(&pool, "wide");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("3 joined nodes"), "{text}");
}

#[test]
fn m8_a_restarted_controller_adopts_a_gang() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool_with(&[wide(folder.path(), 5)], "");
    // Nodes know the controller by its address.
    let address = pool.address().to_owned();
    pool.set_env("MODEL_POOL__SERVER__LISTEN", &address);
    pool.set_env("MODEL_POOL__POOL__ON_RESTART", "adopt");
    let nodes = start(&pool);
    assert_eq!(asks(&pool, "wide").0, 200);
    let pids = engines(&nodes);
    pool.kill_and_restart();
    for name in NODES {
        until(&pool, name, "joined");
    }
    assert_eq!(told(&pool, "adopt", 1).len(), 1);
    assert_eq!(asks(&pool, "wide").0, 200);
    assert_eq!(engines(&nodes), pids, "the same processes");
    assert_eq!(members(&pool).len(), NODES.len());
}

#[test]
fn m8_a_takeover_of_each_node_keeps_the_gang() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool_with(&[wide(folder.path(), 5)], "");
    let mut nodes = start(&pool);
    assert_eq!(asks(&pool, "wide").0, 200);
    let pids = engines(&nodes);
    for node in &mut nodes {
        node.take_over(&pool);
    }
    assert_eq!(asks(&pool, "wide").0, 200);
    assert_eq!(engines(&nodes), pids, "the same processes");
    assert_eq!(members(&pool).len(), NODES.len());
    for pid in &pids {
        assert!(is_alive(*pid));
    }
}

#[test]
fn m8_a_process_that_does_not_start_fails_the_load_with_its_node_and_rank() {
    // A command whose second process fails.
    let script = "test {{ node_rank }} -ne 1 || { echo no such device >&2; exit 3; }; echo {{ port }}; exec sleep 60";
    let command = format!(
        "engine_config:\n  model_id: wide\n  type: CommandEngine\n  listen: port\n  command: [sh, -c, {script:?}]\npool_config: {{memory_gib: 9, nodes: 3}}\n"
    );
    let pool = pool_with(&[("wide.yaml".to_owned(), command)], "");
    let nodes = start(&pool);
    let (status, text) = asks(&pool, "wide");
    assert_eq!(status, 503, "{text}");
    assert!(
        text.contains("rank 1 on node gpu-") && text.contains("no such device"),
        "{text}"
    );
    wait_for("every process of the gang to end", || {
        engines(&nodes).is_empty()
    });
}
