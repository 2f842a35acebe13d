//! Jobs that end without the pool's order: a person cancels them, with and without time to drain, and while no controller runs.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::service::wait_for;

use super::lab::{Lab, model};
use super::server::SlurmServer;

/// Events of these kinds, with their reasons.
fn told(lab: &Lab<'_>, kind: &str) -> Vec<Value> {
    let path = format!("/llm/admin/events?kind={kind}&limit=200");
    let (_, text, _) = lab.pool.request("GET", &path, "", Some(&lab.key));
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    list["events"].as_array().cloned().unwrap_or_default()
}

/// Nodes of jobs and ready replicas on them, as all three surfaces show them.
fn is_shown(lab: &Lab<'_>, model: &str) -> bool {
    let (_, devices, _) = lab
        .pool
        .request("GET", "/llm/admin/devices", "", Some(&lab.key));
    !lab.nodes().is_empty() || !lab.ready_on(model).is_empty() || devices.contains("slurm-")
}

#[test]
fn s2_a_cancelled_job_leaves_the_pool_within_seconds_and_is_not_a_crash() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let mut lab = Lab::start(
        &slurm,
        "cancelled",
        &[model("here", 3, &[]), model("there", 0, &[])],
        "  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 30m, cost_per_hour: 2}]\n  slurm: {log_dir: FOLDER}\n",
    );
    for (how, options) in [
        ("with all its processes", &["--full"][..]),
        // The node cannot say goodbye, so only Slurm knows that it has ended.
        ("without any warning", &["--batch", "--signal=KILL"]),
    ] {
        assert_eq!(lab.asks("there", 1).0, 200, "{}", lab.pool.log());
        let node = lab.ready_on("there").remove(0);
        let job = node.trim_start_matches("slurm-").to_owned();
        lab.step(&format!("there is ready on {node}; it is cancelled {how}"));
        let began = SystemTime::now();
        slurm.client("scancel", &[options, &[job.as_str()]].concat());
        wait_for("the node to be gone everywhere", || {
            !is_shown(&lab, "there")
        });
        let took = began.elapsed().unwrap_or_default();
        lab.step(&format!(
            "it has left placement, models and nodes after {took:.1?}"
        ));
        assert!(
            took < Duration::from_secs(20),
            "{took:?}\n{}",
            lab.pool.log()
        );
    }
    for kind in ["crash", "load_failed"] {
        assert_eq!(told(&lab, kind), Vec::<Value>::new(), "{}", lab.pool.log());
    }
    // A job that ends while no controller runs does not come back.
    assert_eq!(lab.asks("there", 1).0, 200, "{}", lab.pool.log());
    let node = lab.ready_on("there").remove(0);
    let pid = lab.pool.pid().to_string();
    let mut kill = std::process::Command::new("kill");
    assert!(kill.args(["-KILL", &pid]).status().unwrap().success());
    slurm.client("scancel", &["--full", node.trim_start_matches("slurm-")]);
    lab.wait_for_no_job();
    lab.pool.kill_and_restart();
    wait_for("the node not to be expected any more", || {
        lab.node(&node) == Value::Null
    });
    let gone = told(&lab, "node_gone");
    let expected = format!("node {node} has ended (lease ");
    let mut reasons = gone.iter().filter_map(|event| event["reason"].as_str());
    let reason = reasons.find(|reason| reason.starts_with(&expected));
    assert!(
        reason.is_some_and(|reason| reason.contains("cancelled")),
        "{gone:?}"
    );
}
