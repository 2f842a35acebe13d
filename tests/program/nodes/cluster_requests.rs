//! The pool requests nodes from a cluster of three site programs, and returns them (S2). Leases are files, and the nodes are real.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::family::{chat, stub};
use support::service::{Pool, wait_for};

use super::{NO_ROOM, Node, node, one_device, requested_node, token};
mod makers;
mod sets;

const SCALE_UP: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
input=$(cat)
[ -e full ] && { echo "the quota of the lab is used up" >&2; exit 1; }
[ -e most ] && [ "$(ls leases | wc -l)" -ge "$(cat most)" ] && { echo "the quota of the lab is used up" >&2; exit 1; }
demand=$(echo "$input" | sed 's/.*"demand":\([0-9]*\).*/\1/')
shape=$(echo "$input" | sed 's/.*"shape":{[^}]*"name":"\([^"]*\)".*/\1/')
count=$(ls leases | wc -l)
id="vm-$((count + 1))"
echo "{\"id\": \"$id\", \"shape\": \"$shape\", \"state\": \"pending\", \"reason\": \"no machine is free\", \"demand\": $demand}" > leases/$id
echo "{\"id\": \"$id\"}"
"#;
const SCALE_DOWN: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
id=$(sed 's/.*"id":"\([^"]*\)".*/\1/')
sed -i 's/"pending"\|"running"/"ended"/' leases/$id
"#;
const STATUS: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
cat > /dev/null
[ -e away ] && { echo "the cluster is away" >&2; exit 75; }
echo "{\"leases\": [$(cat leases/* 2>/dev/null | paste -sd, -)]}"
"#;

/// The folder of a cluster's programs and leases.
struct Cluster(tempfile::TempDir);

impl Cluster {
    fn new() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("leases")).unwrap();
        for (name, text) in [("up", SCALE_UP), ("down", SCALE_DOWN), ("status", STATUS)] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        Cluster(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self) -> String {
        let folder = self.0.path().display();
        format!(
            "{NO_ROOM}cluster:
  kind: command
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  scale_down_after: 1s
  shapes: [{{name: one, gpus: 1, memory: 4GiB, time_limit: 1h}}]
  command: {{scale_up: [{folder}/up], scale_down: [{folder}/down], status: [{folder}/status]}}
"
        )
    }

    fn pool(&self) -> Pool {
        self.pool_with("")
    }

    /// `more` contains additional lines of the section `cluster`.
    fn pool_with(&self, more: &str) -> Pool {
        let config = format!("{}{more}", self.config());
        Pool::with_devices(&[stub("a", &[])], &config)
    }

    fn lease(&self, id: &str) -> Option<Value> {
        let text = fs::read_to_string(self.path("leases").join(id)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn state(&self, id: &str) -> Option<String> {
        Some(self.lease(id)?["state"].as_str()?.to_owned())
    }

    fn leases(&self) -> usize {
        fs::read_dir(self.path("leases")).unwrap().count()
    }

    /// Starts the machine of this lease with its node, which has one device of 4 GiB.
    fn starts(&self, pool: &Pool, id: &'static str) -> Node {
        self.starts_with(pool, id, "4GiB")
    }

    fn starts_with(&self, pool: &Pool, id: &'static str, memory: &str) -> Node {
        let mut lease = self.lease(id).unwrap();
        let demand = lease["demand"].to_string();
        lease["state"] = json!("running");
        lease["host"] = json!("rack-7");
        // Replaced atomically, because a poll may come at any time. The status program joins the lines of all files.
        let new = self.path("new");
        fs::write(&new, format!("{lease}\n")).unwrap();
        fs::rename(new, self.path("leases").join(id)).unwrap();
        let url = format!("http://{}", pool.address());
        let token = token(pool, json!({}));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("node.yaml"), one_device(memory)).unwrap();
        Node::start_at(folder, &url, id, &token, &["--demand", &demand])
    }
}

fn wait_for_lease(cluster: &Cluster, id: &str, state: &str) {
    wait_for(&format!("lease {id} to be {state}"), || {
        cluster.state(id).as_deref() == Some(state)
    });
}

fn kinds(pool: &Pool) -> Vec<String> {
    let (_, list) = pool.admin("GET", "/llm/admin/events?limit=200", &Value::Null);
    let events = list["events"].as_array().cloned().unwrap_or_default();
    let kinds = events.iter().filter_map(|event| event["kind"].as_str());
    kinds
        .filter(|kind| kind.starts_with("node_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn s2_a_request_adds_a_node_and_an_idle_node_is_released() {
    let cluster = Cluster::new();
    let pool = cluster.pool();
    thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &chat("a", false)));
        wait_for_lease(&cluster, "vm-1", "pending");
        wait_for("the reason to be shown", || {
            let shown = requested_node(&pool);
            shown["shape"] == "one"
                && shown["model"] == "a"
                && shown["reason"] == "lease vm-1: no machine is free"
        });
        let mut machine = cluster.starts(&pool, "vm-1");
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", machine.log());
        assert_eq!(requested_node(&pool), Value::Null);
        assert_eq!(node(&pool, "vm-1")["state"], "joined");
        assert_eq!(cluster.leases(), 1, "one is enough");

        let (status, text, _) = pool.request(
            "POST",
            "/llm/admin/unload",
            r#"{"model": "a"}"#,
            Some(&pool.admin_key()),
        );
        assert_eq!(status, 200, "{text}");
        wait_for_lease(&cluster, "vm-1", "ended");
        machine.signal("-TERM");
        machine.ends();
        wait_for("the pool to know that it is gone", || {
            node(&pool, "vm-1") == Value::Null
        });
    });
    let expected = [
        "node_gone",
        "node_joined",
        "node_released",
        "node_requested",
    ];
    wait_for("the history to tell it", || {
        let mut kinds = kinds(&pool);
        // A race of milliseconds decides if the drain events are stored before the node has gone.
        kinds.retain(|kind| kind != "node_drain" && kind != "node_undrain");
        kinds.sort();
        kinds == expected
    });
}

#[test]
fn s2_a_cluster_refusal_is_reported_to_the_client_and_not_retried_immediately() {
    let cluster = Cluster::new();
    fs::write(cluster.path("full"), "").unwrap();
    let pool = cluster.pool();
    let (status, text) = pool.post("/v1/chat/completions", &chat("a", false));
    assert_eq!(status, 503, "{text}");
    wait_for("the refusal to be in the history", || {
        kinds(&pool).contains(&"node_refused".to_owned())
    });
    fs::remove_file(cluster.path("full")).unwrap();
    let (again, _) = pool.post("/v1/chat/completions", &chat("a", false));
    assert_eq!(again, 503);
    assert_eq!(
        cluster.leases(),
        0,
        "within 300 s that size is not requested"
    );
}

#[test]
fn s2_an_abandoned_node_request_is_cancelled_and_one_from_before_a_kill_is_used() {
    let cluster = Cluster::new();
    let mut pool = cluster.pool();
    let body = chat("a", false);
    thread::scope(|scope| {
        let asked = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        wait_for_lease(&cluster, "vm-1", "pending");
        wait_for("the lease to be known", || {
            requested_node(&pool)["reason"] == "lease vm-1: no machine is free"
        });
        let pid = pool.pid().to_string();
        let mut kill = Command::new("kill");
        assert!(kill.args(["-KILL", &pid]).status().unwrap().success());
        let _ = asked.join();
    });
    pool.kill_and_restart();
    thread::scope(|scope| {
        let asked = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        wait_for("the lease of before to be used", || {
            requested_node(&pool)["reason"] == "lease vm-1: no machine is free"
        });
        // A cluster that does not respond has not ended any node.
        fs::write(cluster.path("away"), "").unwrap();
        wait_for("the trouble to be shown", || {
            requested_node(&pool)["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("the cluster is away"))
        });
        fs::remove_file(cluster.path("away")).unwrap();
        let machine = cluster.starts(&pool, "vm-1");
        let (status, text) = asked.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", machine.log());
        assert_eq!(cluster.leases(), 1);
    });
}

#[test]
fn s2_a_pool_that_ends_cancels_its_open_node_request() {
    let cluster = Cluster::new();
    let mut pool = cluster.pool();
    let body = chat("a", false);
    thread::scope(|scope| {
        let _asked = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        wait_for_lease(&cluster, "vm-1", "pending");
        pool.terminate();
    });
    assert!(pool.wait(Duration::from_secs(60)));
    assert_eq!(cluster.state("vm-1").as_deref(), Some("ended"));
}

/// The seconds of `Retry-After`.
fn retry_after(head: &str) -> Option<u64> {
    let head = head.to_ascii_lowercase();
    let line = head
        .lines()
        .find_map(|line| line.strip_prefix("retry-after:"))?;
    line.trim().parse().ok()
}

#[test]
fn s2_a_refusal_names_the_failed_lease_and_a_reset_forgets_it() {
    let cluster = Cluster::new();
    fs::write(cluster.path("full"), "").unwrap();
    let pool = cluster.pool();
    let body = chat("a", false);
    for _ in 0..2 {
        let (status, text, head) = pool.request("POST", "/v1/chat/completions", &body, None);
        assert_eq!(status, 503, "{text}");
        assert!(
            text.contains("no node of size one: ") && text.contains("quota of the lab is used up"),
            "{text}"
        );
        let retry = retry_after(&head);
        assert!(
            retry.is_some_and(|retry| (1..=300).contains(&retry)),
            "{head}"
        );
    }
    fs::remove_file(cluster.path("full")).unwrap();
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", "/llm/admin/reset", "", Some(&key));
    assert_eq!(status, 200, "{text}");
    thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        wait_for_lease(&cluster, "vm-1", "pending");
        let machine = cluster.starts(&pool, "vm-1");
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", machine.log());
    });
}

#[test]
fn s2_no_node_is_requested_beyond_a_limit_and_the_refusal_names_the_limit() {
    for (limit, name) in [
        ("  max_nodes: 0\n", "cluster.max_nodes"),
        (
            "  budget: {gpu_hours_per_month: 0}\n",
            "cluster.budget.gpu_hours_per_month",
        ),
    ] {
        let cluster = Cluster::new();
        let pool = cluster.pool_with(limit);
        let (status, text) = pool.post("/v1/chat/completions", &chat("a", false));
        assert_eq!(status, 503, "{text}");
        assert!(text.contains(name), "{text}");
        assert_eq!(cluster.leases(), 0, "{name}");
    }
}

#[test]
fn a_token_that_expires_soon_is_reported_at_the_start() {
    let cluster = Cluster::new();
    let mut pool = cluster.pool();
    for (expires, is_reported) in [("90d", false), ("2d", true)] {
        let text = token(&pool, json!({ "expires": expires }));
        fs::write(cluster.path("token"), text).unwrap();
        pool.kill_and_restart();
        let reported = |pool: &Pool| pool.log().contains("in cluster.token_file");
        if is_reported {
            wait_for("the warning", || reported(&pool));
            assert!(pool.log().contains("expires in 47 h"), "{}", pool.log());
        } else {
            assert_eq!(pool.post("/v1/chat/completions", "{}").0, 400);
            assert!(!reported(&pool), "{}", pool.log());
        }
    }
}

/// The memory for replicas on each GPU of the first size.
fn bytes_per_gpu(pool: &Pool) -> u64 {
    let (_, list) = pool.admin("GET", "/llm/admin/nodes", &Value::Null);
    list["shapes"][0]["bytes_per_gpu"].as_u64().unwrap()
}

/// Returns when everything that the pool has decided before is on disk: an order is acknowledged once it is.
fn kill_and_restart_when_written(pool: &mut Pool) {
    let key = pool.admin_key();
    for what in ["cordon", "uncordon"] {
        let path = format!("/llm/admin/devices/{what}");
        let (status, text, _) = pool.request("POST", &path, r#"{"device": "small"}"#, Some(&key));
        assert_eq!(status, 200, "{text}");
    }
    pool.kill_and_restart();
}

#[test]
fn s2_the_measured_memory_of_a_size_survives_a_kill_and_is_forgotten_at_a_reset() {
    let cluster = Cluster::new();
    let mut pool = cluster.pool();
    let configured = bytes_per_gpu(&pool);
    let machine = thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &chat("a", false)));
        wait_for_lease(&cluster, "vm-1", "pending");
        let machine = cluster.starts_with(&pool, "vm-1", "3GiB");
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", machine.log());
        machine
    });
    let measured = bytes_per_gpu(&pool);
    assert!(measured < configured, "{measured} of {configured}");
    // The node does not return to the next controller.
    drop(machine);
    kill_and_restart_when_written(&mut pool);
    assert_eq!(bytes_per_gpu(&pool), measured);
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", "/llm/admin/reset", "", Some(&key));
    assert_eq!(status, 200, "{text}");
    assert_eq!(bytes_per_gpu(&pool), configured);
    kill_and_restart_when_written(&mut pool);
    assert_eq!(bytes_per_gpu(&pool), configured);
}

#[test]
fn s2_the_size_of_a_requested_node_is_known_after_a_restart() {
    let cluster = Cluster::new();
    let mut pool = cluster.pool();
    // Nodes know the controller by its address.
    let address = pool.address().to_owned();
    pool.set_env("MODEL_POOL__SERVER__LISTEN", &address);
    let machine = thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &chat("a", false)));
        wait_for_lease(&cluster, "vm-1", "pending");
        let machine = cluster.starts(&pool, "vm-1");
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", machine.log());
        machine
    });
    assert_eq!(node(&pool, "vm-1")["shape"], "one");
    pool.kill_and_restart();
    wait_for("the size to be known", || {
        node(&pool, "vm-1")["shape"] == "one"
    });
    drop(machine);
}
