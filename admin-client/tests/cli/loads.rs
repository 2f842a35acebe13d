//! `load` and `plan`: requests, progress and refusals.

use serde_json::{Value, json};

use super::server::{Reply, Server};
use super::{in_order, one};

const LOAD: &str = "POST /llm/admin/load";
const PLAN: &str = "POST /llm/admin/plan";
const LOOK: &str = "GET /llm/admin/models?model=org%2Fm";

fn plan() -> Value {
    json!({"model": "org/m", "priority": 1, "feasible": true, "already_loaded": false, "reason": "one eviction",
        "victims": [{"replica": "r1", "model": "old", "priority": 0, "busy": false, "bytes": 1u64 << 30,
            "reload_ms": 900, "reason": "idle"}]})
}

fn refusal() -> Value {
    json!({"error": {"message": "no room for org/m", "type": "conflict", "param": null, "code": "no_room"},
        "plan": {"model": "org/m", "feasible": false, "reason": "every device is held",
            "candidates": [{"place": "gpu0", "verdict": "r2 is always-hot"}]}})
}

fn loaded() -> Value {
    json!({"model": "org/m", "status": "ready", "wanted_replicas": 1, "took_ms": 1200, "order": "o5", "shortfall": null,
        "ready_replicas": [{"replica": "r3", "devices": [{"device": "gpu0", "bytes": 1u64 << 30}]}],
        "evicted": [{"replica": "r1", "model": "old", "priority": 0, "bytes": 1u64 << 30, "reason": "idle"}]})
}

fn look(stage: &str) -> Reply {
    Reply::json(
        200,
        json!({"models": [{"model": "org/m", "state": "loading", "wished_replicas": 1,
            "replicas": [{"replica": "r3", "state": "launching", "stage": stage, "percent": 10}]}]}),
    )
}

#[test]
fn a_load_shows_the_plan_then_the_stages_then_the_outcome() {
    let server = Server::start(vec![
        (PLAN, vec![Reply::json(200, plan())]),
        (
            LOOK,
            vec![look("fetching"), look("starting"), look("loading")],
        ),
        (LOAD, vec![Reply::json(200, loaded()).after(LOOK, 4)]),
    ]);
    let run = server.client("load org/m --priority 1 --keep-hot 10m");
    assert_eq!(run.status, 0, "{run:?}");
    in_order(
        &run.stdout,
        &[
            "can be loaded",
            "evict   r1 of old",
            ": idle",
            "org/m is ready, after 1.2 s",
            "r3  gpu0 1.0 GiB",
            "evicted r1",
        ],
    );
    in_order(
        &run.stderr,
        &["org/m: fetching", "org/m: starting", "org/m: loading"],
    );
    let asked = json!({"model": "org/m", "priority": 1, "keep_hot": "10m"});
    assert_eq!(server.request(PLAN).json(), asked);
    assert_eq!(server.request(LOAD).json(), asked);
}

#[test]
fn a_load_that_waits_for_room_shows_its_reason_once() {
    let mut soon = refusal()["plan"].clone();
    soon["reason"] = "not now, but soon and automatically: r2 is busy".into();
    let waiting = json!({"models": [{"model": "org/m", "state": "waiting", "replicas": []}]});
    let server = Server::start(vec![
        (PLAN, vec![Reply::json(200, soon)]),
        (LOOK, vec![Reply::json(200, waiting), look("loading")]),
        (LOAD, vec![Reply::json(200, loaded()).after(LOOK, 3)]),
    ]);
    let run = server.client("load org/m");
    assert_eq!(run.status, 0, "{run:?}");
    in_order(
        &run.stderr,
        &[
            "org/m waits for room: not now, but soon and automatically: r2 is busy",
            "org/m: loading",
        ],
    );
    assert_eq!(run.stderr.matches("waits for room").count(), 1, "{run:?}");
    in_order(&run.stdout, &["org/m is ready"]);
}

#[test]
fn a_load_in_json_prints_only_the_servers_response() {
    // Spaces, an unknown field and the order of the fields must survive.
    let body = "{ \"status\":\"ready\",\n  \"model\" : \"org/m\", \"novel\": 1.50 }";
    let server = Server::start(vec![(LOAD, vec![Reply::json(200, body)])]);
    let run = server.client("load org/m --json");
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (0, &*format!("{body}\n"), "")
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn no_wait_returns_as_soon_as_the_load_has_started() {
    let server = Server::start(vec![
        (PLAN, vec![Reply::json(200, plan())]),
        (
            LOAD,
            vec![Reply::json(
                202,
                json!({"model": "org/m", "status": "started", "order": "o5"}),
            )],
        ),
    ]);
    let run = server.client("load org/m --no-wait");
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.contains("admin-client show org/m"), "{run:?}");
    assert_eq!(server.request(LOAD).json()["wait"], json!(false));
}

#[test]
fn a_refused_load_prints_the_obstacles_and_exits_with_1() {
    let infeasible = refusal()["plan"].clone();
    let server = Server::start(vec![
        (PLAN, vec![Reply::json(200, infeasible)]),
        (LOAD, vec![Reply::json(409, refusal())]),
    ]);
    let run = server.client("load org/m");
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    in_order(
        &run.stderr,
        &[
            "error: no room for org/m",
            "cannot be loaded now",
            "every device is held",
            "gpu0  r2 is always-hot",
        ],
    );
    let json = server.client("load org/m --json");
    assert_eq!((json.status, json.stdout), (1, format!("{}\n", refusal())));
}

#[test]
fn a_dry_run_prints_the_plan_and_loads_nothing() {
    let server = one(PLAN, 200, plan());
    let (planned, dry) = (
        server.client("plan org/m --gpus 2"),
        server.client("load org/m --gpus 2 --dry-run"),
    );
    assert_eq!((planned.status, dry.status), (0, 0));
    assert_eq!(planned.stdout, dry.stdout);
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.line == PLAN && request.json()["gpus"] == json!(2))
    );
}

#[test]
fn a_plan_that_cannot_be_carried_out_exits_with_1() {
    let run = one(PLAN, 200, refusal()["plan"].clone()).client("plan org/m");
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stdout.contains("r2 is always-hot"), "{run:?}");
}

#[test]
fn a_model_unknown_to_the_plan_route_is_loaded_without_a_plan() {
    let unknown = json!({"error": {"message": "no model is called org/m", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}});
    let server = Server::start(vec![
        (PLAN, vec![Reply::json(404, unknown.clone())]),
        (LOOK, vec![look("fetching")]),
        (LOAD, vec![Reply::json(200, loaded())]),
    ]);
    let run = server.client("load org/m");
    assert_eq!(run.status, 0, "{run:?}");
    in_order(&run.stdout, &["org/m is ready"]);
    // A name that the hub cannot have is refused immediately.
    let server = Server::start(vec![(PLAN, vec![Reply::json(404, unknown)])]);
    let run = server.client("load m");
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stderr.contains("no model is called"), "{run:?}");
}
