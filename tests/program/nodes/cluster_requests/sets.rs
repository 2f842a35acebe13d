//! Nodes for a replica over three nodes, requested from the cluster together (S2, M8): all of them join, or all are given back.

use support::family::{asks, shown};

use super::super::gangs::wide;
use super::*;

const LEASES: [&str; 3] = ["vm-1", "vm-2", "vm-3"];

fn start(cluster: &Cluster, idle: &str) -> (tempfile::TempDir, Pool) {
    let folder = tempfile::tempdir().unwrap();
    let config = cluster.config().replace("scale_down_after: 1s", idle);
    let pool = Pool::with_devices(&[wide(folder.path(), 5)], &config);
    (folder, pool)
}

fn requested(pool: &Pool) -> Vec<Value> {
    let (_, list) = pool.admin("GET", "/llm/admin/nodes", &Value::Null);
    list["requested"].as_array().cloned().unwrap_or_default()
}

fn plan(pool: &Pool) -> String {
    let (_, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "wide"}));
    plan.to_string()
}

/// Starts the machines of the leases. No process runs before the last of them has joined.
fn all_start(cluster: &Cluster, pool: &Pool) -> Vec<Node> {
    let mut nodes = Vec::new();
    for id in LEASES {
        assert!(nodes.iter().all(|node: &Node| node.engines().is_empty()));
        nodes.push(cluster.starts(pool, id));
        wait_for("the node to join", || node(pool, id)["state"] == "joined");
    }
    nodes
}

#[test]
fn m8_a_model_of_three_nodes_requests_all_of_them_and_gives_all_back() {
    let cluster = Cluster::new();
    let (_folder, pool) = start(&cluster, "scale_down_after: 1s");
    let planned = plan(&pool);
    assert!(
        planned.contains("would request 3 nodes of size one (1 GPU each)"),
        "{planned}"
    );
    assert_eq!(cluster.leases(), 0, "a plan requests nothing");
    let mut nodes = thread::scope(|scope| {
        let response = scope.spawn(|| asks(&pool, "wide"));
        for id in LEASES {
            wait_for_lease(&cluster, id, "pending");
        }
        wait_for("the reasons to be shown", || {
            let all = requested(&pool);
            let reports = |one: &Value| one["reason"].as_str().is_some_and(|why| !why.is_empty());
            all.len() == 3 && all.iter().all(reports)
        });
        let all = requested(&pool);
        assert!(all[0]["set"].is_u64(), "{all:?}");
        assert!(all.iter().all(|one| one["set"] == all[0]["set"]), "{all:?}");
        let planned = plan(&pool);
        assert!(
            planned.contains("waits for the 3 nodes of size one that are requested"),
            "{planned}"
        );
        let first = cluster.starts(&pool, LEASES[0]);
        let waits = "waits for the other nodes of 3";
        wait_for("the first node to wait for the others", || {
            let reason = node(&pool, LEASES[0])["reason"].clone();
            reason.as_str().is_some_and(|why| why.contains(waits))
        });
        assert!(first.engines().is_empty());
        let mut nodes = vec![first];
        for id in &LEASES[1..] {
            nodes.push(cluster.starts(&pool, id));
        }
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", pool.log());
        nodes
    });
    assert_eq!(requested(&pool), Vec::<Value>::new());
    assert_eq!(cluster.leases(), 3, "three are enough");
    assert!(nodes.iter().all(|node| node.engines().len() == 1));
    let stream = pool.stream("/v1/chat/completions", &chat("wide", true));
    assert!(stream.whole().contains("[DONE]"));
    let members = shown(&pool, "wide")["replicas"][0]["members"].clone();
    assert_eq!(members.as_array().map(Vec::len), Some(3), "{members}");

    let body = json!({"model": "wide"});
    let (status, text) = pool.admin("POST", "/llm/admin/unload", &body);
    assert_eq!(status, 200, "{text}");
    for (id, node) in LEASES.iter().zip(&mut nodes) {
        wait_for_lease(&cluster, id, "ended");
        node.signal("-TERM");
        node.ends();
    }
}

#[test]
fn m8_a_refused_node_withdraws_the_others_and_the_refusal_names_the_reason() {
    let cluster = Cluster::new();
    fs::write(cluster.path("most"), "2").unwrap();
    let (_folder, pool) = start(&cluster, "scale_down_after: 1h");
    let (status, text) = asks(&pool, "wide");
    assert_eq!(status, 503, "{text}");
    assert!(
        text.contains("no 3 nodes of size one: ") && text.contains("quota of the lab is used up"),
        "{text}"
    );
    for id in &LEASES[..2] {
        wait_for_lease(&cluster, id, "ended");
    }
    assert_eq!(requested(&pool), Vec::<Value>::new());
    let refused = support::family::told(&pool, "node_refused", 1);
    assert!(
        refused[0].contains("the 3 nodes requested together are given up"),
        "{refused:?}"
    );
    // As many nodes are not requested again soon.
    fs::remove_file(cluster.path("most")).unwrap();
    assert_eq!(asks(&pool, "wide").0, 503);
    assert_eq!(cluster.leases(), 2);
}

#[test]
fn m8_a_withdrawn_load_cancels_every_request_of_its_set() {
    let cluster = Cluster::new();
    let (_folder, mut pool) = start(&cluster, "scale_down_after: 1h");
    let body = chat("wide", false);
    thread::scope(|scope| {
        let _waits = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        for id in LEASES {
            wait_for_lease(&cluster, id, "pending");
        }
        pool.terminate();
    });
    assert!(pool.wait(Duration::from_secs(60)));
    for id in LEASES {
        assert_eq!(cluster.state(id).as_deref(), Some("ended"));
    }
}

#[test]
fn m8_the_evening_cleanup_gives_back_the_nodes_of_a_gang() {
    let cluster = Cluster::new();
    let (_folder, pool) = start(&cluster, "scale_down_after: 1h");
    let _nodes = thread::scope(|scope| {
        let response = scope.spawn(|| asks(&pool, "wide"));
        for id in LEASES {
            wait_for_lease(&cluster, id, "pending");
        }
        let nodes = all_start(&cluster, &pool);
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", pool.log());
        nodes
    });
    let (status, text) = pool.admin("POST", "/llm/admin/cleanup", &json!({}));
    assert_eq!(status, 200, "{text}");
    for id in LEASES {
        wait_for_lease(&cluster, id, "ended");
    }
}
