//! The meaning of responses: jobs, machines, autoscalers and logs.

use super::super::reasons::{log_end, pending};
use super::*;

fn described(job: &Job) -> String {
    let state = in_words(job.lease_state(|_| "no room".to_owned()));
    format!("{} {:?} {} {state}", job.id, job.demand, job.shape)
}

#[test]
fn a_real_list_yields_only_this_pools_jobs_with_the_reasons_for_their_ends() {
    let jobs = jobs::of_list(&fixture("jobs-2.60.json"), "lab").expect("read");
    let all: Vec<String> = jobs.leases.iter().map(described).collect();
    let expected = [
        "model-pool.lab.16 Some(16) a2 running on 127.0.0.1",
        "model-pool.lab.17 Some(17) a2 ended: its machine failed or left Ray on 127.0.0.1",
        "model-pool.lab.18 Some(18) a2 pending: no room",
        "model-pool.lab.19 Some(19) a8 ended: the request was cancelled",
        "model-pool.lab.20 Some(20) a2 ended: its machine failed or left Ray",
        "model-pool.lab.31 Some(31) a1 ended: it failed with status 1 on 127.0.0.2; its log ends with: the token has expired",
        "model-pool.lab.32 Some(32) a1 ended: its script found no program on 127.0.0.1 (status 127); correct cluster.program, or add its folder to PATH in cluster.ray.setup; its log ends with: /bin/sh: 1: exec: /nowhere/model-pool: not found",
        "model-pool.lab.33 Some(33) a1 ended: its node was released or ended on its own",
        "model-pool.lab.34 Some(34) a1 ended: it was given back, or someone stopped the job",
        "model-pool.lab.36 Some(36) a1 ended: Ray could not set its environment up: the file package.",
        "model-pool.lab.41 Some(41)  ended: Ray says: ValueError: The quantity of resource num_gpus cannot be negative",
    ];
    let of = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
    for (found, expected) in all.iter().zip(expected) {
        // Ray itself cuts a long message.
        let is_same =
            found == expected || of(found).ends_with(".36") && found.contains("environment up");
        assert!(is_same, "{found}\n{expected}");
    }
    assert_eq!(all.len(), expected.len());
    let cancels: Vec<&str> = jobs.cancels.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(cancels, ["model-pool.lab.19.cancel"]);
    let other = jobs::of_list(&fixture("jobs-2.60.json"), "lab2").expect("read");
    assert_eq!(other.leases.len(), 1);
}

#[test]
fn foreign_jobs_may_have_any_form_but_the_response_must_be_a_list() {
    let odd = serde_json::json!([
        {"submission_id": null, "type": "DRIVER", "metadata": [1]},
        {"submission_id": "model-pool.lab.check-17-0", "status": "RUNNING"},
        {"submission_id": "model-pool.lab.7", "status": "PENDING"},
        {"submission_id": "model-pool.lab.7.cancel", "status": "FAILED"},
        {"submission_id": "model-pool.lab.p8", "status": "NEW_STATE", "driver_agent_http_address": "http://[::1]:52365"},
        {"submission_id": "model-pool.lab.9", "status": "FAILED", "metadata": {"time_limit_seconds": "600"}, "driver_exit_code": 124},
        {"submission_id": "model-pool.lab.10", "status": "FAILED", "message": "Job failed with exit code 3, last available logs:\nx\n"},
    ]);
    let jobs = jobs::of_list(&odd, "lab").expect("read");
    let all: Vec<String> = jobs.leases.iter().map(described).collect();
    assert_eq!(
        all,
        [
            "model-pool.lab.7 Some(7)  ended: the request was cancelled",
            "model-pool.lab.p8 None  running on ::1",
            "model-pool.lab.9 Some(9)  ended: its time limit of 10 min was over",
            "model-pool.lab.10 Some(10)  ended: it failed with status 3; its log ends with: x",
        ]
    );
    assert!(jobs::of_list(&serde_json::json!({}), "lab").is_err());
    let without = serde_json::json!([{"submission_id": "model-pool.lab.7"}]);
    assert!(jobs::of_list(&without, "lab").is_err());
}

fn machines(autoscaler: &str) -> Machines {
    Machines {
        held: std::collections::BTreeMap::new(),
        alive: machines::of_nodes(&fixture("nodes-2.60.json")).expect("read"),
        autoscaler: machines::of_status(&fixture(autoscaler)),
    }
}

#[test]
fn a_pending_job_names_the_missing_machine_and_its_source() {
    let section = section();
    let reason = |gpus, autoscaler: &str| {
        let shape = shape("a", gpus, 28_800);
        pending(&section, &shape, &machines(autoscaler))
    };
    assert_eq!(
        reason(2, "autoscaler-none.json"),
        "Ray has not found a node with 2 free GPUs yet: 1 node is that large; the job starts when it is free"
    );
    assert_eq!(
        reason(1, "autoscaler-none.json"),
        "Ray has not found a node with 1 free GPU yet: 2 nodes are that large; the job starts when one is free"
    );
    // The pool's own jobs hold the GPUs, so none becomes free while they run.
    for (autoscaler, is_final) in [
        ("autoscaler-none.json", true),
        ("autoscaler-v1-idle.json", false),
    ] {
        let mut machines = machines(autoscaler);
        let all = machines.alive.iter();
        machines.held = all
            .map(|machine| (machine.node_id.clone(), machine.gpus() as u32))
            .collect();
        let reason = pending(&section, &shape("a", 1, 28_800), &machines);
        let end = "; this pool holds all of them, and it has no autoscaler to bring another";
        assert_eq!(reason.ends_with(end), is_final, "{reason}");
        // A machine has room.
        machines.held.pop_first();
        machines.held.pop_first();
        let reason = pending(&section, &shape("a", 1, 28_800), &machines);
        assert!(!reason.ends_with(end), "{reason}");
    }
    let lacks =
        "Ray has not found a node with 8 free GPUs yet: no node has 8 GPUs, the largest has 2; ";
    for (autoscaler, end) in [
        (
            "autoscaler-none.json",
            "it has no autoscaler, so it starts when such a node joins Ray",
        ),
        ("autoscaler-v2.json", "its autoscaler may bring one"),
        ("autoscaler-v1-idle.json", "its autoscaler may bring one"),
        (
            "autoscaler-maxed.json",
            "its autoscaler starts 1 gpu-worker",
        ),
        (
            "autoscaler-broken.json",
            "its autoscaler fails: KeyError: 'file_mounts'",
        ),
    ] {
        assert_eq!(reason(8, autoscaler), format!("{lacks}{end}"));
    }
}

#[test]
fn m8_a_ray_without_an_autoscaler_reports_its_room_for_several_nodes() {
    let section = section();
    let room = |gpus, machines: &Machines| {
        let room = reasons::closed(&section, &shape("a", gpus, 28_800), machines);
        room.map(|room| (room.nodes, room.why))
    };
    let mut empty = machines("autoscaler-none.json");
    let cannot = |why: &str| format!("Ray cannot grow: it has no autoscaler, and {why}");
    let three = cannot("its machines have room for 3 more of this size");
    assert_eq!(room(1, &empty), Some((3, three)));
    let one = cannot("its machines have room for 1 more of this size");
    assert_eq!(room(2, &empty), Some((1, one)));
    let lacks = cannot("no node has 8 GPUs, the largest has 2");
    assert_eq!(room(8, &empty), Some((0, lacks)));
    let largest = empty.alive.iter().find(|machine| machine.gpus() > 1.0);
    let largest = largest.expect("one with two GPUs").node_id.clone();
    empty.held.insert(largest, 1);
    let full = cannot("this pool holds all nodes that are that large");
    assert_eq!(room(2, &empty), Some((0, full)));
    assert_eq!(room(1, &empty).map(|(nodes, _)| nodes), Some(2));
    assert_eq!(room(1, &machines("autoscaler-v1-idle.json")), None);
}

#[test]
fn resources_and_labels_decide_where_a_shape_fits() {
    let section = section();
    let machines = machines("autoscaler-none.json");
    let fits = |resources: &[(&str, f64)], labels: &[(&str, &str)]| {
        let mut shape = shape("a", 1, 28_800);
        shape.resources = resources
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), *amount))
            .collect();
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        shape.labels = labels.iter().map(text).collect();
        (
            machines.fitting(&section, &shape),
            machines.lacking(&section, &shape),
        )
    };
    assert_eq!(fits(&[("accel_a", 1.0)], &[]).0, 1);
    assert_eq!(
        fits(&[("accel_a", 2.0)], &[]).1,
        "no node has the resource accel_a (2)"
    );
    assert_eq!(fits(&[("accel_b", 1.0)], &[]).0, 0);
    for (label, count) in [
        ("big", 1),
        ("!big", 1),
        ("in(big, small)", 2),
        ("!in(big,small)", 0),
        ("other", 0),
    ] {
        assert_eq!(fits(&[], &[("pool", label)]).0, count, "{label}");
    }
    assert_eq!(
        fits(&[], &[("pool", "x")]).1,
        "no node has the label pool: x"
    );
}

#[test]
fn the_last_log_line_of_the_node_itself_is_reported() {
    let entry = "a\nb \"$x\"\n";
    let log = format!(
        "2026-11-25 18:36:04,207\tINFO job_manager.py:581 -- Runtime env is setting up.\n\u{1b}[31mno such token\u{1b}[0m\n\nRunning entrypoint for job j: {entry}\n"
    );
    let line = log_end(&log, "j", entry).expect("a line");
    assert!(line.contains("no such token"), "{line}");
    let empty =
        "Running entrypoint for job j: a\nb \"$x\"\nmodel-pool: the job starts at 1795631500\n\n";
    assert_eq!(log_end(empty, "j", entry), None);
}
