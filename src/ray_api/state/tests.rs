//! Recorded responses of Ray 2.60 about its applications.

use super::*;
use serde_json::{Value, json};

/// A recorded list. A recording of one application is wrapped in a list.
fn listing(name: &str) -> Listing {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ray");
    let text = std::fs::read_to_string(root.join(name)).expect("a fixture");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let text = match (value.get("applications"), value["name"].as_str()) {
        (None, Some(own)) => json!({"applications": {own: value}}).to_string(),
        _ => text,
    };
    Listing::parse(&text).expect("Ray's form")
}

fn starting(stage: &str, percent: Option<u8>) -> ApplicationState {
    ApplicationState::Starting {
        stage: stage.to_owned(),
        percent,
    }
}

#[test]
fn a_running_application_has_running_replicas() {
    let running = listing("serve-running.json");
    assert_eq!(state_of(&running, "model-a"), ApplicationState::Running);
    assert_eq!(state_of(&running, "model-b"), ApplicationState::Absent);
    assert_eq!(running.proxy_port(), 18000);
    let zero = listing("serve-scaled-to-zero.json");
    let ApplicationState::Starting { .. } = state_of(&zero, "a") else {
        panic!("RUNNING without a replica would let requests wait for ever");
    };
    let empty = listing("serve-empty.json");
    assert_eq!(state_of(&empty, "model-a"), ApplicationState::Absent);
    assert_eq!(empty.proxy_port(), 8000);
}

#[test]
fn an_unplaced_application_reports_the_resources_it_needs() {
    for (name, app, gpus) in [
        ("serve-pending.json", "model-c", "\"GPU\": 3.0"),
        ("serve-infeasible.json", "model-x", "\"GPU\": 8.0"),
    ] {
        let ApplicationState::Starting { stage, percent } = state_of(&listing(name), app) else {
            panic!("{name} is starting");
        };
        assert!(
            stage.starts_with("starting: Ray has not placed it: "),
            "{stage}"
        );
        assert!(stage.contains(gpus), "{stage}");
        assert_eq!(percent, Some(0));
    }
}

#[test]
fn stages_progress_from_build_through_placement_to_replica_start() {
    let of = |deployments: Value| {
        let list = json!({"applications": {"a": {
            "status": "DEPLOYING", "message": "", "deployments": deployments}}});
        state_of(&Listing::parse(&list.to_string()).expect("a list"), "a")
    };
    let engine = |replicas: Value| {
        json!({"engine": {"status": "UPDATING", "message": "", "target_num_replicas": 2,
            "replicas": replicas}})
    };
    assert_eq!(
        of(json!({})),
        starting("starting: Ray builds the application", None)
    );
    assert_eq!(
        of(engine(json!([{"state": "STARTING"}]))),
        starting("starting: Ray has not placed it yet", Some(0))
    );
    assert_eq!(
        of(engine(json!([{"state": "STARTING", "node_id": "n"}]))),
        starting("loading, 0 of 2 replicas of its deployments run", Some(25))
    );
    let both = json!([{"state": "RUNNING", "node_id": "n"}, {"state": "STARTING", "node_id": "n"}]);
    assert_eq!(
        of(engine(both)),
        starting("loading, 1 of 2 replicas of its deployments run", Some(75))
    );
}

#[test]
fn a_failure_is_reduced_to_its_cause_without_colours() {
    for (name, app, cause) in [
        (
            "serve-deploy-failed-import.json",
            "bad",
            "No module named 'no_such_mod'",
        ),
        (
            "serve-deploy-failed-init.json",
            "oom",
            "RuntimeError: CUDA out of memory (pretend)",
        ),
        ("serve-llm-no-vllm.json", "llm", "No module named 'pyarrow'"),
    ] {
        let ApplicationState::Failed { message } = state_of(&listing(name), app) else {
            panic!("{name} has failed");
        };
        assert!(message.contains(cause), "{message}");
        assert!(!message.contains('\u{1b}'), "{message}");
    }
    let ApplicationState::Unhealthy { message } = state_of(&listing("serve-unhealthy.json"), "a")
    else {
        panic!("it is unhealthy");
    };
    assert!(message.contains("CUDA out of memory"), "{message}");
    let dead = state_of(&listing("serve-after-node-death.json"), "onlabel");
    assert!(
        matches!(dead, ApplicationState::Unhealthy { .. }),
        "{dead:?}"
    );
}
