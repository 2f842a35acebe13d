//! Shapes by cost on a real Slurm: the cheapest one waits for other users' jobs, and the next one serves the model.

use serde_json::Value;
use support::service::wait_for;

use super::lab::{Lab, model};
use super::server::SlurmServer;

#[test]
fn s2_while_the_cheapest_shape_waits_the_next_one_is_tried_and_the_loser_is_cancelled() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    // Another user's jobs hold one GPU of each machine, so no machine has two.
    for machine in ["n0", "n1"] {
        let nodelist = format!("--nodelist={machine}");
        let output = format!("--output={}", slurm.path().join("other.log").display());
        let job = [
            "--parsable",
            "--gres=gpu:fake:1",
            &nodelist,
            &output,
            "--wrap",
            "sleep 600",
        ];
        slurm.client("sbatch", &job);
    }
    let running = || slurm.client("squeue", &["--noheader", "--states=RUNNING"]);
    wait_for("both jobs to run", || running().lines().count() == 2);
    let lab = Lab::start(
        &slurm,
        "shapes",
        &[model("here", 0, &[]), model("there", 0, &[])],
        "  shapes:\n    - {name: both, gpus: 2, memory: 16GiB, time_limit: 10m, cost_per_hour: 1}\n    - {name: one, gpus: 1, memory: 16GiB, time_limit: 10m, cost_per_hour: 3}\n  slurm: {log_dir: FOLDER}\n",
    );
    assert_eq!(lab.asks("here", 1).0, 200);
    let plan = lab.post("/llm/admin/plan", r#"{"model": "there"}"#).1;
    assert_eq!(plan["node"]["shape"], "both", "{plan}");
    assert_eq!(plan["node"]["cost_per_hour"], 1.0, "{plan}");
    assert_eq!(plan["victims"], serde_json::json!([]), "{plan}");

    lab.step("`there` is requested");
    let response = lab.asks("there", 1);
    assert_eq!(response.0, 200, "{response:?}\n{}", lab.pool.log());
    lab.step("`there` has answered");
    assert!(
        lab.seconds() < 90.0,
        "{} s\n{}",
        lab.seconds(),
        lab.pool.log()
    );
    let (_, list, _) = lab
        .pool
        .request("GET", "/llm/admin/nodes", "", Some(&lab.key));
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["requested"], serde_json::json!([]), "{list}");
    let node = &lab.nodes()[0];
    assert_eq!(node["shape"], "one", "{node}");
    assert_eq!(node["cost_per_hour"], 3.0, "{node}");
    let log = lab.pool.log();
    let both = log
        .find("one more node of size both is requested")
        .expect("the cheapest first");
    let one = log
        .find("one more node of size one is requested")
        .expect("then the next");
    assert!(both < one, "{log}");
    assert!(!log.contains("evict there"), "{log}");
    wait_for("the loser to be gone", || {
        lab.jobs("PENDING").trim().is_empty()
    });
    let (_, events, _) =
        lab.pool
            .request("GET", "/llm/admin/events?kind=evict", "", Some(&lab.key));
    assert!(
        !events.contains("\"evict\""),
        "nothing was evicted: {events}"
    );
}
