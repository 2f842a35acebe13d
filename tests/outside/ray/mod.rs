//! `model-pool cluster`, `check --ray` and RayServeEngine on a real Ray with fake GPUs. `.ci/ray` installs it; without it these
//! tests report that they were skipped.

mod serve;
mod server;
mod story;
mod swap;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::cluster_calls::{ClusterCalls, write_folder};
use server::{RayServer, processes, wait_for};

/// A node that runs until SIGTERM, and writes its observations into a file next to it.
const STAYS: &str = "#!/bin/sh
[ \"$1\" = version ] && echo model-pool VERSION && exit
log=$(dirname \"$0\")/log
echo \"arguments: $* gpus: $CUDA_VISIBLE_DEVICES token: $RAY_AUTH_TOKEN address: $RAY_ADDRESS setup: $OF_SETUP env: $OF_ENV\" >>\"$log\"
trap 'echo drained >>\"$log\"; exit 0' TERM
while :; do sleep 0.1; done
";

fn lab_pool(ray: &RayServer, name: &str, program: &str) -> ClusterCalls {
    let folder = ray.path().join(name);
    write_folder(
        &folder,
        &program.replace("VERSION", env!("CARGO_PKG_VERSION")),
    );
    let text = format!(
        "cluster:
  kind: ray
  name: {name}
  controller: https://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  shapes:
    - {{name: both, gpus: 2, memory: 24GiB, time_limit: 10m, cost_per_hour: 3}}
    - {{name: one, gpus: 1, memory: 24GiB, time_limit: 10m, labels: {{pool: small}}}}
    - {{name: large, gpus: 8, memory: 24GiB, time_limit: 10m}}
  ray:
    address: {address}
    grace: 2s
    env: {{OF_ENV: yes1}}
    setup: export OF_SETUP=yes2
",
        address = ray.address(),
        folder = folder.display()
    );
    fs::write(folder.join("pool.yaml"), text).unwrap();
    calls(folder.join("pool.yaml"))
}

/// Calls with this configuration.
fn calls(file: PathBuf) -> ClusterCalls {
    ClusterCalls {
        file,
        env: Vec::new(),
        wait_for: |what, so| wait_for(what, so),
    }
}

fn release(pool: &ClusterCalls, words: &[&str]) {
    let words = [&["cluster", "release"][..], words].concat();
    pool.run(&words).has(0, &["is being released"]);
}

fn node_runs(pool: &ClusterCalls) -> bool {
    let program = pool.file.with_file_name("node").display().to_string();
    processes().any(|(_, words)| words.contains(&program))
}

#[track_caller]
fn assert_has(value: &Value, parts: &[&str]) {
    support::assert_has(value.as_str().unwrap_or_default(), parts);
}

#[test]
fn ray_nodes_are_requested_wait_with_a_reason_run_and_are_released() {
    if !server::is_inside("ray::ray_nodes_are_requested_wait_with_a_reason_run_and_are_released") {
        return;
    }
    let mut ray = RayServer::start(None);
    let big = ray.add_machine(2, "pool=big");
    let small = ray.add_machine(1, "pool=small");
    let pool = lab_pool(&ray, "lab", STAYS);

    check_says_what_is_there_and_what_is_missing(&ray, &pool);

    // A job runs the node with its GPUs, and without secrets.
    let first = pool.request("both");
    let lease = pool.wait_for(&first, "running");
    assert_eq!(
        (&lease["shape"], &lease["host"]),
        (&"both".into(), &Value::from(big))
    );
    assert_eq!(lease["time_limit_seconds"], 600);
    wait_for("the node to start", || {
        pool.read("log").contains("arguments")
    });
    let log = pool.read("log");
    let node = lease["node"].as_str().unwrap();
    let name =
        format!("arguments: node --controller https://127.0.0.1:1 --name {node} --token-file");
    let rest = " gpus: 0,1 token:  address:  setup: yes2 env: yes1";
    assert!(log.contains(&name) && log.contains(rest), "{log}");
    let jobs = ray.get("/api/jobs/").to_string();
    assert!(!jobs.contains("secret"), "{jobs}");

    // Requests that cannot be placed report the reason. A label selects the machine.
    let waits = pool.request("both");
    let large = pool.request("large");
    let waiting = pool.wait_for(&waits, "pending");
    assert_has(
        &waiting["reason"],
        &["2 free GPUs yet: 1 node is that large; the job starts when it is free"],
    );
    let waiting = pool.wait_for(&large, "pending");
    assert_has(
        &waiting["reason"],
        &["no node has 8 GPUs, the largest has 2", "no autoscaler"],
    );
    let labelled = pool.request("one");
    assert_eq!(pool.wait_for(&labelled, "running")["host"], small);

    // Another pool does not see or end any of them.
    let other = lab_pool(&ray, "lab2", STAYS);
    assert_eq!(other.lease(&first), Value::Null);
    let refused = other.run(&["cluster", "release", &first]);
    refused.has(1, &[&format!("`{first}` is not the id of a lease")]);

    // A waiting request is withdrawn, which Ray itself does not support: its demand also disappears.
    for id in [&waits, &large] {
        release(&pool, &[id]);
        pool.wait_for(id, "ended");
    }
    let mut own = vec![first.clone(), labelled.clone()];
    own.sort();
    wait_for("the demand to be gone", || {
        let mut live = ray.live_jobs();
        live.sort();
        live == own
    });

    // The first drains, the second ends immediately; neither leaves a process.
    release(&pool, &[&first]);
    assert_has(&pool.wait_for(&first, "ended")["why"], &["given back"]);
    assert!(pool.read("log").contains("drained"), "{}", pool.read("log"));
    fs::remove_file(pool.file.with_file_name("log")).unwrap();
    release(&pool, &["--now", &labelled]);
    assert_has(&pool.wait_for(&labelled, "ended")["why"], &["given back"]);
    wait_for("the node to be gone", || !node_runs(&pool));
    pool.run(&["cluster", "status"])
        .has(0, &["both", "ray-p", "ended", "cost 0.0"]);

    a_node_that_cannot_start_says_why(&ray);
    while_the_dashboard_is_down_nothing_is_known(&ray, &pool);
}

fn check_says_what_is_there_and_what_is_missing(ray: &RayServer, pool: &ClusterCalls) {
    let checked = pool.run(&["check", "--ray"]);
    checked.has(
        1,
        &[
            "ok: Ray 2.60.0 answers at http://127.0.0.1:8265",
            "note: Ray wants no token",
            "ok: the Jobs API answers; this pool (cluster.name: lab) has 0 pending",
            "3 nodes are in Ray; GPUs: 127.0.0.",
            "note: there is no autoscaler",
            "ok: shape both: fits on 1 node",
            "ok: shape one: fits on 1 node",
            "error: shape large: no node has 8 GPUs, the largest has 2, and there is no autoscaler",
            &format!(
                "ok: 127.0.0.2: {}/node is model-pool ",
                pool.file.parent().unwrap().display()
            ),
            "ok: 127.0.0.3: can read ",
            "ok: token file: ",
        ],
    );
    assert!(ray.live_jobs().is_empty(), "{:?}", ray.live_jobs());
    // Without a configuration of Ray, an address is enough.
    let text = fs::read_to_string(&pool.file).unwrap();
    fs::write(&pool.file, "cluster: {kind: none}\n").unwrap();
    let elsewhere = pool.run(&["check", "--ray", &ray.address()]);
    elsewhere.has(
        1,
        &[
            "ok: Ray 2.60.0",
            "127.0.0.2: there is no program `model-pool`",
        ],
    );
    pool.run(&["check", "--ray", "http://127.0.0.1:2"])
        .has(1, &["cannot be reached"]);
    pool.run(&["check", "--ray", "127.0.0.1"])
        .has(1, &["is not a URL", "http://ray-head:8265"]);
    pool.run(&["check", "--ray"])
        .has(1, &["cluster.kind is not ray"]);
    fs::write(&pool.file, text).unwrap();
}

fn a_node_that_cannot_start_says_why(ray: &RayServer) {
    let broken = "#!/bin/sh\necho 'the token has expired' >&2\nexit 1\n";
    let broken = lab_pool(ray, "broken", broken);
    let id = broken.request("both");
    let why = broken.wait_for(&id, "ended")["why"].clone();
    assert_has(
        &why,
        &[
            "it failed with status 1 on 127.0.0.2",
            "its log ends with: the token has expired",
        ],
    );
    let missing = lab_pool(ray, "missing", STAYS);
    fs::remove_file(missing.file.with_file_name("node")).unwrap();
    let id = missing.request("both");
    let why = missing.wait_for(&id, "ended")["why"].clone();
    assert_has(&why, &["found no program", "cluster.program"]);
}

fn while_the_dashboard_is_down_nothing_is_known(ray: &RayServer, pool: &ClusterCalls) {
    let running = pool.request("both");
    pool.wait_for(&running, "running");
    let dashboard = ray.kill_dashboard();
    for words in [
        &["cluster", "status"][..],
        &["cluster", "request", "both"],
        &["cluster", "release", &running],
        &["check", "--ray"],
    ] {
        pool.run(words)
            .has(1, &["cannot be reached", "unknown", "try again later"]);
    }
    ray.start_dashboard(&dashboard);
    wait_for("the node to be known again", || {
        let status = pool.run(&["cluster", "status", "--json"]);
        status.status == Some(0) && pool.lease(&running)["state"] == "running"
    });
    assert!(node_runs(pool));
    release(pool, &["--now", &running]);
    pool.wait_for(&running, "ended");
}
