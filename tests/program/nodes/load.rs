//! Three nodes under load. One is killed and one freezes for half a minute: only requests in flight on the killed node are lost,
//! and no model ever has two engines.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::json;
use support::family::{asks, is_alive, shown, stub};
use support::service::{Pool, wait_for};

use super::{Node, one_device, pool_with, token, until};

const FROZEN_FOR: Duration = Duration::from_secs(30);

/// A request of the load.
struct LoadRequest {
    model: &'static str,
    began: SystemTime,
    ended: SystemTime,
    status: u16,
    text: String,
}

/// Ends the load, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A model that fills most of a device of 4 GiB, and responds in half a second.
fn large(name: &str) -> (String, String) {
    let (file, text) = stub(name, &["--tokens", "20", "--token-ms", "25"]);
    (file, text.replace("memory_gib: 0.5", "memory_gib: 3"))
}

fn start(pool: &Pool, name: &'static str, memory: &str) -> Node {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("node.yaml"), one_device(memory)).unwrap();
    let node = Node::start_in(folder, pool, name, &token(pool, json!({})));
    until(pool, name, "joined");
    node
}

/// Returns true if a replica on this device serves requests. A silent node's replica is listed too.
fn serves(pool: &Pool, model: &str, device: &str) -> bool {
    let shown = shown(pool, model);
    let mut replicas = shown["replicas"].as_array().into_iter().flatten();
    replicas.any(|replica| {
        replica["devices"][0]["device"] == device && replica["in_flight"].as_u64() > Some(0)
    })
}

/// Loads the model with a first request.
fn load_on(pool: &Pool, model: &str, device: &str) {
    assert_eq!(asks(pool, model).0, 200);
    let found = shown(pool, model)["replicas"][0]["devices"][0]["device"].clone();
    assert_eq!(found, device);
}

/// Sends requests for the model one after the other until stopped.
fn load(pool: &Pool, model: &'static str, ends: &AtomicBool) -> Vec<LoadRequest> {
    let mut asked = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let began = SystemTime::now();
        let (status, text) = asks(pool, model);
        asked.push(LoadRequest {
            model,
            began,
            ended: SystemTime::now(),
            status,
            text,
        });
        if status != 200 {
            // Refusals are immediate; a flood of them would measure nothing.
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    asked
}

#[test]
fn only_running_requests_of_a_dead_node_are_lost_and_no_model_has_two_engines() {
    let models = [large("a"), large("b"), large("c")];
    let pool = pool_with(&models, "node: {silent_after: 2s}\n");
    // Placement prefers the tightest device, which puts each model on a separate node; the last node has room for two.
    let mut first = start(&pool, "gpu-1", "4GiB");
    load_on(&pool, "a", "gpu-1/gpu0");
    let second = start(&pool, "gpu-2", "4GiB");
    load_on(&pool, "b", "gpu-2/gpu0");
    let third = start(&pool, "gpu-3", "8GiB");
    load_on(&pool, "c", "gpu-3/gpu0");
    let frozen = second.engines();

    let ends = AtomicBool::new(false);
    let (asked, killed) = thread::scope(|scope| {
        let ends_load = EndOnDrop(&ends);
        let clients: Vec<_> = ["a", "a", "b", "b", "c", "c"]
            .map(|model| scope.spawn(|| load(&pool, model, &ends)))
            .into();
        wait_for("requests on every node", || {
            serves(&pool, "a", "gpu-1/gpu0")
                && serves(&pool, "b", "gpu-2/gpu0")
                && serves(&pool, "c", "gpu-3/gpu0")
        });
        second.signal("-STOP");
        let froze = SystemTime::now();
        first.signal("-KILL");
        let killed = SystemTime::now();
        assert_eq!(first.ends(), None);
        until(&pool, "gpu-1", "silent");
        until(&pool, "gpu-2", "silent");
        wait_for("the model of the dead node to serve again", || {
            serves(&pool, "a", "gpu-3/gpu0")
        });
        let moved = killed.elapsed().unwrap();
        println!("the dead node's model serves on another node {moved:.1?} after the kill");
        let left = FROZEN_FOR.saturating_sub(froze.elapsed().unwrap());
        thread::park_timeout(left);
        second.signal("-CONT");
        until(&pool, "gpu-2", "joined");
        let back = SystemTime::now();
        wait_for("the frozen node's model to serve again", || {
            serves(&pool, "b", "gpu-2/gpu0")
        });
        thread::park_timeout(Duration::from_secs(2));
        drop(ends_load);
        println!(
            "the frozen node was back {:.1?} after it froze",
            back.duration_since(froze).unwrap()
        );
        let asked: Vec<LoadRequest> = clients
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        (asked, killed)
    });

    for model in ["a", "b", "c"] {
        let of: Vec<&LoadRequest> = asked
            .iter()
            .filter(|request| request.model == model)
            .collect();
        let lost = of.iter().filter(|request| request.status != 200).count();
        let longest = of
            .iter()
            .filter_map(|request| request.ended.duration_since(request.began).ok())
            .max();
        println!(
            "{model}: {} requests, {lost} lost, the longest took {:.1?}",
            of.len(),
            longest.unwrap_or_default()
        );
        assert!(of.len() > 4, "{model}");
    }
    for lost in asked.iter().filter(|request| request.status != 200) {
        assert_eq!(lost.model, "a", "{} {}", lost.status, lost.text);
        assert!(
            lost.began < killed,
            "it came after the kill: {} {}",
            lost.status,
            lost.text
        );
        assert!(lost.ended > killed, "{} {}", lost.status, lost.text);
    }
    // Each model has exactly one engine, on any node.
    let engines = [second.engines(), third.engines()].concat();
    let alive = engines.iter().filter(|pid| is_alive(**pid)).count();
    assert_eq!(alive, 3, "{engines:?}");
    assert_eq!(second.engines(), frozen, "the frozen node kept its engine");
}
