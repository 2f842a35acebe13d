//! `model-pool cluster` and `check --slurm` on a real Slurm with two nodes of two fake GPUs. `.ci/slurm` installs it; without it
//! these tests report that they were skipped.

mod ends;
mod gangs;
mod lab;
mod pool_state;
mod renewal;
mod server;
mod shapes;
mod story;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;
use support::service::wait_for;

use crate::cluster_calls::{ClusterCalls, write_folder};
use server::SlurmServer;

/// A node that runs until its job gets SIGTERM, which it logs.
const STAYS: &str = "#!/bin/sh\necho \"arguments: $*\"\ntrap 'echo drained; exit 0' TERM\nwhile :; do sleep 0.1; done\n";

fn lab_pool(slurm: &SlurmServer, name: &str, program: &str) -> ClusterCalls {
    pool_with(slurm, name, program, "")
}

/// `more` contains additional keys of the section `slurm`.
fn pool_with(slurm: &SlurmServer, name: &str, program: &str, more: &str) -> ClusterCalls {
    let folder = slurm.path().join(name);
    write_folder(&folder, program);
    let text = format!(
        "cluster:
  kind: slurm
  name: {name}
  controller: https://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  shapes:
    - {{name: both, gpus: 2, memory: 24GiB, time_limit: 10m, cost_per_hour: 3}}
    - {{name: one, gpus: 1, memory: 24GiB, time_limit: 1m, gres: \"gpu:fake:1\"}}
    - {{name: long, gpus: 1, memory: 24GiB, time_limit: 8h}}
    - {{name: large, gpus: 3, memory: 24GiB, time_limit: 10m}}
    - {{name: closed, gpus: 1, memory: 24GiB, time_limit: 10m, partition: down}}
  slurm: {{log_dir: {folder}, grace: 1s{more}}}
",
        folder = folder.display()
    );
    fs::write(folder.join("pool.yaml"), text).unwrap();
    calls(slurm, folder.join("pool.yaml"))
}

/// Calls with this configuration.
fn calls(slurm: &SlurmServer, file: PathBuf) -> ClusterCalls {
    ClusterCalls {
        file,
        env: vec![("SLURM_CONF", slurm.conf().into_os_string())],
        wait_for: |what, so| wait_for(what, so),
    }
}

/// The log of a job.
fn log_of(pool: &ClusterCalls, id: &str) -> String {
    pool.read(&format!("model-pool-{id}.log"))
}

/// A node that does not drain.
const STUBBORN: &str = "#!/bin/sh\ntrap 'echo goes on' TERM\nwhile :; do sleep 0.1; done\n";

#[track_caller]
fn assert_has(value: &Value, part: &str) {
    assert!(value.as_str().unwrap_or_default().contains(part), "{value}");
}

#[test]
fn slurm_nodes_are_requested_wait_with_a_reason_run_and_are_released() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let pool = lab_pool(&slurm, "lab", STAYS);
    let ids = [(); 3].map(|()| pool.request("both"));
    for id in &ids[..2] {
        let lease = pool.wait_for(id, "running");
        assert_eq!(
            (&lease["shape"], &lease["time_limit_seconds"]),
            (&"both".into(), &600.into())
        );
        assert!(lease["host"] == "n0" || lease["host"] == "n1", "{lease}");
    }
    let waits = pool.wait_for(&ids[2], "pending");
    wait_for("the reason to be known", || {
        pool.lease(&ids[2])["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("all nodes of this shape are in use"))
    });
    assert_eq!(waits["node"], format!("slurm-{}", ids[2]));

    // The job runs the node, with only the path of the token.
    wait_for("the node to start", || {
        log_of(&pool, &ids[0]).contains("arguments: node")
    });
    let log = log_of(&pool, &ids[0]);
    let name = format!("--name slurm-{} --token-file", ids[0]);
    assert!(log.contains(&name) && !log.contains("secret"), "{log}");
    let job = slurm.client("scontrol", &["show", "job", "--details", &ids[0]]);
    assert!(!job.contains("secret"), "{job}");

    // Another pool of the same account does not see or end any of them.
    let other = lab_pool(&slurm, "lab2", STAYS);
    assert_eq!(other.leases(), Vec::<Value>::new());
    let refused = other.run(&["cluster", "release", &ids[0]]);
    refused.has(1, &[&format!("`{}` is not the id of a lease", ids[0])]);

    // A waiting request is withdrawn; a running node drains, and its place stays free.
    pool.run(&["cluster", "release", &ids[2]])
        .has(0, &["is being released"]);
    assert_has(&pool.wait_for(&ids[2], "ended")["why"], "cancelled");
    pool.run(&["cluster", "release", &ids[0]]).has(0, &[]);
    assert_has(
        &pool.wait_for(&ids[0], "ended")["why"],
        "released or ended on its own",
    );
    assert!(
        log_of(&pool, &ids[0]).contains("drained"),
        "{}",
        log_of(&pool, &ids[0])
    );
    pool.run(&["cluster", "release", "--now", &ids[1]])
        .has(0, &[]);
    pool.wait_for(&ids[1], "ended");
    pool.run(&["cluster", "release", &ids[1]]).has(0, &[]);
    let table = pool.run(&["cluster", "status"]);
    table.has(0, &["both", "slurm-", "ended", "cost 0.0"]);
}

#[test]
fn a_request_the_cluster_cannot_fulfil_is_refused_or_waits_with_advice() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let pool = lab_pool(&slurm, "lab", STAYS);
    let large = pool.run(&["cluster", "request", "large"]);
    large.has(1, &["sbatch refuses", "no node has that many GPUs"]);
    let unknown = pool.run(&["cluster", "request", "small"]);
    unknown.has(
        1,
        &["cluster.shapes has no shape `small`", "both, one, long"],
    );
    for (shape, reason) in [
        ("long", "longer than the partition allows"),
        ("closed", "the partition is down"),
    ] {
        let id = pool.request(shape);
        // Slurm finds the exact reason some moments later.
        wait_for(reason, || {
            let lease = pool.lease(&id);
            lease["reason"]
                .as_str()
                .is_some_and(|text| text.contains(reason))
        });
        pool.run(&["cluster", "release", &id]).has(0, &[]);
        pool.wait_for(&id, "ended");
    }
    let nowhere = pool_with(&slurm, "nowhere", STAYS, ", partition: cpu");
    let refused = nowhere.run(&["cluster", "request", "both"]);
    refused.has(1, &["nvalid partition", "correct cluster.slurm.partition"]);
}

#[test]
fn a_failed_start_a_time_limit_and_a_users_scancel_are_distinguished() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let stubborn = lab_pool(&slurm, "stubborn", STUBBORN);
    let limited = stubborn.request("one");
    stubborn.wait_for(&limited, "running");
    let pool = lab_pool(&slurm, "lab", STAYS);
    let cancelled = pool.request("one");
    pool.wait_for(&cancelled, "running");
    slurm.client("scancel", &[&cancelled]);
    assert_has(&pool.wait_for(&cancelled, "ended")["why"], "cancelled");

    let broken = lab_pool(
        &slurm,
        "broken",
        "#!/bin/sh\necho 'the token has expired' >&2\nexit 1\n",
    );
    let id = broken.request("one");
    let lease = broken.wait_for(&id, "ended");
    assert_has(&lease["why"], "it failed with status 1 on n");
    assert_has(&lease["why"], "its log ends with: the token has expired");
    // The next job of this pool avoids the machine.
    let failed_on = if lease["why"].as_str().unwrap().contains("on n0") {
        "n0"
    } else {
        "n1"
    };
    let second = broken.request("one");
    let job = slurm.client("scontrol", &["show", "job", &second]);
    assert!(job.contains(&format!("ExcNodeList={failed_on}")), "{job}");

    // The status reports a missing program on the nodes.
    let missing = lab_pool(&slurm, "missing", STAYS);
    fs::remove_file(missing.file.with_file_name("node")).unwrap();
    let id = missing.request("one");
    assert_has(&missing.wait_for(&id, "ended")["why"], "found no program");

    // A job with a limit of one minute gets SIGTERM before its time is over; a job that ignores it is killed within another minute.
    let began = std::time::SystemTime::now();
    while stubborn.lease(&limited)["state"] == "running" {
        let waited = began.elapsed().unwrap_or_default();
        assert!(waited.as_secs() < 150, "the time limit is not kept");
        std::thread::park_timeout(std::time::Duration::from_millis(500));
    }
    let why = stubborn.lease(&limited)["why"].clone();
    assert_has(&why, "its time limit of 1 min was over");
    assert!(log_of(&stubborn, &limited).contains("goes on"), "{why}");
}

#[test]
fn while_slurmctld_is_down_the_state_is_unknown_and_afterwards_known_again() {
    let Some(mut slurm) = SlurmServer::start() else {
        return;
    };
    let running = {
        let pool = lab_pool(&slurm, "lab", STAYS);
        let id = pool.request("both");
        pool.wait_for(&id, "running");
        id
    };
    slurm.kill_controller();
    let file = slurm.path().join("lab/pool.yaml");
    {
        let pool = calls(&slurm, file.clone());
        for words in [
            &["cluster", "status"][..],
            &["cluster", "request", "both"],
            &["cluster", "release", &running],
        ] {
            pool.run(words)
                .has(1, &["cannot be reached", "unknown", "try again later"]);
        }
        pool.run(&["check", "--slurm"])
            .has(1, &["cannot be reached"]);
    }
    slurm.start_controller();
    let pool = calls(&slurm, file);
    // Each call is a new process, like a restarted pool that finds its jobs.
    wait_for("the node to be known again", || {
        pool.lease(&running)["state"] == "running"
    });
    pool.run(&["cluster", "release", "--now", &running])
        .has(0, &[]);
    pool.wait_for(&running, "ended");
}

#[test]
fn check_slurm_reports_working_and_missing_parts() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let pool = lab_pool(&slurm, "lab", STAYS);
    let checked = pool.run(&["check", "--slurm"]);
    checked.has(
        1,
        &[
            "ok: sbatch: slurm",
            "partitions: gpu, down",
            "ok: squeue answers as JSON; this pool (cluster.name: lab) has 0 pending",
            "ok: shape both: Slurm would accept it",
            "ok: shape one: Slurm would accept it",
            "error: shape long: its time_limit of 8h is longer than the partition gpu allows (1:00:00)",
            "error: shape large: no node of the partition gpu has gpu:3; its nodes have: gpu:fake:2",
            "error: shape closed: the partition down is down",
            "accounting does not respond or does not exist",
            "ok: token file:",
            "note: whether nodes reach https://127.0.0.1:1",
        ],
    );
    assert!(
        slurm.client("squeue", &["-h"]).is_empty(),
        "nothing is submitted"
    );
    let text = fs::read_to_string(&pool.file).unwrap();
    let good = text.lines().filter(|line| {
        !["name: long", "name: large", "name: closed"]
            .iter()
            .any(|pattern| line.contains(pattern))
    });
    fs::write(&pool.file, good.collect::<Vec<_>>().join("\n")).unwrap();
    pool.run(&["check", "--slurm"]).has(0, &[]);
    // A machine that takes no jobs.
    let drain = |node: &str, state: &str| {
        let (node, state) = (format!("nodename={node}"), format!("state={state}"));
        slurm.client("scontrol", &["update", &node, &state, "reason=a-test"]);
    };
    drain("n0", "drain");
    let checked = pool.run(&["check", "--slurm"]);
    checked.has(0, &["note: shape both: 1 of 2 nodes of the partition gpu with gpu:2 are out of service (1 drained)"]);
    drain("n1", "drain");
    let checked = pool.run(&["check", "--slurm"]);
    checked.has(1, &["error: shape both: all 2 nodes of the partition gpu with gpu:2 are out of service (2 drained)", "sinfo -R"]);
    drain("n0", "resume");
    drain("n1", "resume");
    // Nodes refuse a token that others can read.
    let token = pool.file.with_file_name("token");
    fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
    pool.run(&["check", "--slurm"])
        .has(1, &["can be read by others (mode 0644)", "chmod 600"]);
    fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(pool.file.with_file_name("token")).unwrap();
    pool.run(&["check", "--slurm"])
        .has(1, &["cluster.token_file", "cannot be read"]);
    fs::write(&pool.file, "cluster: {kind: none}\n").unwrap();
    pool.run(&["check", "--slurm"])
        .has(1, &["cluster.kind is not slurm"]);
    pool.run(&["cluster", "status"])
        .has(1, &["cluster.kind is none", "pool.yaml"]);
}
