//! The end of a job on a real Slurm: models move before its time limit and within the grace time of a preemption, and the evening
//! returns nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::service::{Stream, wait_for};

use super::lab::{Lab, body, model};
use super::server::SlurmServer;

/// Sends short requests for the model until stopped. Counts requests and refusals, and measures the longest response.
fn probe(lab: &Lab<'_>, model: &str, ends: &AtomicBool) -> (u32, Vec<(u16, Value)>, Duration) {
    let (mut count, mut refused, mut longest) = (0, Vec::new(), Duration::ZERO);
    while !ends.load(Ordering::Relaxed) {
        let began = SystemTime::now();
        let (status, response) = lab.asks(model, 1);
        longest = longest.max(began.elapsed().unwrap_or_default());
        count += 1;
        if status != 200 {
            refused.push((status, response));
        }
        thread::park_timeout(Duration::from_millis(50));
    }
    (count, refused, longest)
}

/// Ends the probe, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The only node on which the model is ready.
fn home(lab: &Lab<'_>, model: &str) -> String {
    let mut found = Vec::new();
    wait_for("the model to be ready on a node", || {
        found = lab.ready_on(model);
        found.len() == 1
    });
    found.remove(0)
}

/// The complete text of a stream that ends within two minutes.
fn ended(lab: &Lab<'_>, stream: &Stream) -> String {
    lab.wait_for_long("the stream to end", Duration::from_secs(120), || {
        let text = stream.text();
        text.contains("[DONE]") || text.contains("\"error\"")
    });
    stream.text()
}

/// 100 ms per token: no response ends on its own within a test.
const SLOW: [&str; 4] = ["--tokens", "5000", "--token-ms", "100"];

#[test]
fn n7_an_always_hot_model_moves_before_the_time_limit_of_its_job_with_streams_running() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let lab = Lab::start(
        &slurm,
        "renewal",
        &[model("here", 3, &[]), model("hot", 2, &SLOW)],
        "  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 2m}]\n  slurm: {log_dir: FOLDER, grace: 1s}\n",
    );
    let first = home(&lab, "hot");
    lab.step(&format!("hot is ready on {first}"));
    wait_for("its end to be known", || {
        lab.node(&first)["ends_at"].is_string()
    });
    lab.step(&format!("it ends at {}", lab.node(&first)["ends_at"]));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends_probe = EndOnDrop(&ends);
        let client = scope.spawn(|| probe(&lab, "hot", &ends));
        lab.wait_for_long("the models to move", Duration::from_secs(90), || {
            lab.node(&first)["state"] == "ending"
        });
        lab.step(&format!("{}", lab.node(&first)["reason"]));
        let short = lab
            .pool
            .stream("/v1/chat/completions", &body("hot", 200, true));
        let long = lab
            .pool
            .stream("/v1/chat/completions", &body("hot", 5000, true));
        lab.wait_for_long(
            "hot to be ready on its successor",
            Duration::from_secs(40),
            || lab.ready_on("hot").iter().any(|node| *node != first),
        );
        let second = lab.ready_on("hot").remove(0);
        lab.step(&format!("hot is ready on {second}; the old one drains"));
        let text = ended(&lab, &short);
        assert!(
            text.contains("[DONE]") && !text.contains("\"error\""),
            "{text}"
        );
        lab.step("a stream of 20 s has ended on its own");
        let text = ended(&lab, &long);
        assert!(
            text.contains("the time of its node slurm-") && text.contains("(N7)"),
            "{text}"
        );
        lab.step("a stream that never ends was cut with the reason");
        lab.wait_for_long(
            "the old node to be given back",
            Duration::from_secs(20),
            || lab.node(&first) == Value::Null,
        );
        lab.step("the old node has gone, before its limit");
        assert_eq!(lab.nodes().len(), 1);
        drop(ends_probe);
        let (count, refused, longest) = client.join().unwrap();
        lab.step(&format!(
            "{count} requests were sent in this time, {} were refused, the longest took {longest:.2?}",
            refused.len()
        ));
        assert!(refused.is_empty(), "{refused:?}\n{}", lab.pool.log());
        assert!(
            longest < Duration::from_secs(5),
            "hot was cold for {longest:?}"
        );
    });
    // The job ended on its own, and not by its limit.
    let id = first.trim_start_matches("slurm-");
    let job = || slurm.client("scontrol", &["show", "job", id]);
    wait_for("the job to end", || {
        !job().contains("JobState=RUNNING") && !job().contains("JobState=COMPLETING")
    });
    assert!(job().contains("JobState=COMPLETED"), "{}", job());
}

#[test]
fn n7_a_preempted_job_is_emptied_within_its_grace_time() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let lab = Lab::start(
        &slurm,
        "preempted",
        &[model("here", 3, &[]), model("hot", 2, &SLOW)],
        "  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 30m}]\n  slurm: {log_dir: FOLDER, partition: low, requeue: true}\n",
    );
    let first = home(&lab, "hot");
    lab.step(&format!("hot is ready on {first}"));
    let id = first.trim_start_matches("slurm-");
    let host = slurm.client("squeue", &["--noheader", "--job", id, "--format=%N"]);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends_probe = EndOnDrop(&ends);
        let client = scope.spawn(|| probe(&lab, "hot", &ends));
        let long = lab
            .pool
            .stream("/v1/chat/completions", &body("hot", 5000, true));
        wait_for("its end to be known", || {
            lab.node(&first)["ends_at"].is_string()
        });
        let nodes = format!("--nodelist={}", host.trim());
        let urgent = slurm.client(
            "sbatch",
            &[
                "--parsable",
                "--partition=high",
                "--gres=gpu:fake:2",
                &nodes,
                "--output=/dev/null",
                "--wrap=sleep 600",
            ],
        );
        lab.step(&format!(
            "job {} of a higher partition wants {}",
            urgent.trim(),
            host.trim()
        ));
        lab.wait_for_long(
            "the pool to know of the preemption",
            Duration::from_secs(50),
            || lab.node(&first)["state"] == "ending",
        );
        lab.step(&format!("{}", lab.node(&first)["reason"]));
        lab.wait_for_long(
            "hot to be ready on another node",
            Duration::from_secs(40),
            || lab.ready_on("hot").iter().any(|node| *node != first),
        );
        lab.step("hot is ready on another node");
        let text = ended(&lab, &long);
        assert!(
            text.contains("the time of its node slurm-") && text.contains("(N7)"),
            "{text}"
        );
        lab.step("the stream was cut with the reason");
        lab.wait_for_long("the urgent job to run", Duration::from_secs(90), || {
            let state = slurm.client(
                "squeue",
                &["--noheader", "--job", urgent.trim(), "--format=%T"],
            );
            state.trim() == "RUNNING"
        });
        lab.step("the urgent job runs");
        drop(ends_probe);
        let (count, refused, longest) = client.join().unwrap();
        lab.step(&format!(
            "{count} requests were sent in this time, {} were refused, the longest took {longest:.2?}",
            refused.len()
        ));
        assert!(refused.is_empty(), "{refused:?}\n{}", lab.pool.log());
        assert!(
            longest < Duration::from_secs(5),
            "hot was cold for {longest:?}"
        );
    });
}

#[test]
fn e1_the_evening_cleanup_returns_nodes_immediately() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let lab = Lab::start(
        &slurm,
        "evening",
        &[model("here", 3, &[]), model("hot", 2, &[])],
        "  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 30m}]\n  slurm: {log_dir: FOLDER}\n",
    );
    let first = home(&lab, "hot");
    lab.step(&format!("hot is ready on {first}"));
    let cleaned = lab.post("/llm/admin/cleanup", "{}");
    assert_eq!(cleaned.0, 200, "{cleaned:?}");
    lab.step("the cleanup is done");
    // Long before cluster.scale_down_after, which is 20 minutes.
    wait_for("the node to be given back", || lab.nodes().is_empty());
    lab.wait_for_no_job();
    lab.step("no job is left");
}
