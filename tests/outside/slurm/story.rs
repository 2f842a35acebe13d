//! The complete path on a real Slurm: a pool without room for a model, a node started by hand or by the pool, the model's responses
//! from there, and the return of the node.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use support::service::{self, wait_for};

use super::lab::{Lab, NODE, model};
use super::server::SlurmServer;

const BODY: &str = r#"{"model": "big", "messages": [{"role": "user", "content": "Hello"}]}"#;

#[test]
fn a_slurm_node_joins_serves_a_model_and_leaves_when_released() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let folder = slurm.path().join("story");
    fs::create_dir(&folder).unwrap();
    let files = [model("big", 0, &[])];
    let tiny = "inventory: {provider: fixed, devices: [{name: tiny, memory: 1MiB}]}\n";
    let pool = service::Pool::with_devices(&files, tiny);
    let key = pool.admin_key();
    let post = |path: &str, body: &str| {
        let (status, text, _) = pool.request("POST", path, body, Some(&key));
        let response: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, response)
    };
    let refused = post("/v1/chat/completions", BODY);
    assert_eq!(refused.1["error"]["code"], "never_fits", "{refused:?}");

    let token = post("/llm/admin/nodes/tokens", "{}").1["token"].clone();
    let token_file = folder.join("token");
    fs::write(&token_file, token.as_str().unwrap()).unwrap();
    fs::set_permissions(&token_file, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(folder.join("node.yaml"), NODE).unwrap();
    let config = format!(
        "cluster:
  kind: slurm
  name: story
  controller: http://{address}
  token_file: {folder}/token
  program: {program}
  node_data: {folder}/node-%j
  node_options: [--config, {folder}/node.yaml]
  shapes: [{{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}}]
  slurm: {{log_dir: {folder}}}
",
        address = pool.address(),
        program = env!("CARGO_BIN_EXE_model-pool"),
        folder = folder.display(),
    );
    fs::write(folder.join("pool.yaml"), config).unwrap();
    let cluster = super::calls(&slurm, folder.join("pool.yaml"));
    let id = cluster.request("one");
    let name = format!("slurm-{id}");
    let state = || {
        let (_, text, _) = pool.request("GET", "/llm/admin/nodes", "", Some(&key));
        let listed: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut nodes = listed["nodes"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter();
        let own = nodes.find(|node| node["node"] == *name);
        own.map(|node| node["state"].as_str().unwrap_or_default().to_owned())
    };
    wait_for("the node to join", || state().as_deref() == Some("joined"));
    let response = post("/v1/chat/completions", BODY);
    assert_eq!(
        response.0,
        200,
        "{response:?}; {}",
        super::log_of(&cluster, &id)
    );
    let (_, devices, _) = pool.request("GET", "/llm/admin/devices", "", Some(&key));
    assert!(devices.contains(&format!("{name}/gpu0")), "{devices}");

    cluster
        .run(&["cluster", "release", &id])
        .has(0, &["is being released"]);
    cluster.wait_for(&id, "ended");
    wait_for("the pool to know that the node is gone", || {
        state().is_none()
    });
    assert_eq!(
        post("/v1/chat/completions", BODY).1["error"]["code"],
        "never_fits"
    );
    wait_for("the job to be gone", || {
        let jobs = slurm.client("squeue", &["--noheader", "--states=RUNNING,COMPLETING"]);
        jobs.trim().is_empty()
    });
}

#[test]
fn s2_the_pool_requests_a_node_from_slurm_and_gives_it_back_when_it_is_idle() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let lab = Lab::start(
        &slurm,
        "auto",
        &[
            model("here", 0, &[]),
            model("there", 0, &[]),
            model("urgent", 1, &[]),
        ],
        "  scale_down_after: 1s\n  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}]\n  slurm: {log_dir: FOLDER}\n",
    );
    let asks = |model: &str| {
        let response = lab.asks(model, 1);
        assert_eq!(response.0, 200, "{model}: {response:?}\n{}", lab.pool.log());
        lab.step(&format!("{model} has answered"));
    };
    asks("here");
    assert!(lab.nodes().is_empty());
    asks("there");
    assert_eq!(lab.nodes().len(), 1, "on a node of Slurm");
    asks("here");
    let events = lab
        .pool
        .request("GET", "/llm/admin/events?kind=evict", "", Some(&lab.key));
    assert!(!events.1.contains("\"evict\""), "evicted: {}", events.1);
    // A third model gets the second machine of the cluster before anything is evicted.
    asks("urgent");
    assert_eq!(lab.nodes().len(), 2);
    for model in ["there", "urgent"] {
        let unloaded = lab.post("/llm/admin/unload", &format!("{{\"model\": \"{model}\"}}"));
        assert_eq!(unloaded.0, 200, "{unloaded:?}");
    }
    lab.step("both are unloaded");
    wait_for("the idle nodes to be given back", || lab.nodes().is_empty());
    lab.wait_for_no_job();
    lab.step("no job is left");
    let left = fs::read_dir(slurm.path().join("auto")).unwrap();
    let mut left = left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let folder = left.find(|name| name.starts_with("node-"));
    assert_eq!(folder, None, "each job removes the folder of its node");
    asks("here");
}
