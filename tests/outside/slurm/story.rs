//! The complete path on a real Slurm: a pool without room for a model, a node started by hand or by the pool, the model's responses
//! from there, and the return of the node.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::Value;
use support::service::{self, wait_for};

use super::server::SlurmServer;

const NODE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\nevening: {cleanup: null, reopen: null}\n";
const BODY: &str = r#"{"model": "big", "messages": [{"role": "user", "content": "Hello"}]}"#;

#[test]
fn a_node_from_slurm_joins_serves_a_model_and_goes_when_it_is_released() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let folder = slurm.path().join("story");
    fs::create_dir(&folder).unwrap();
    let engine = support::stub::stub_engine().display().to_string();
    let model = format!(
        "engine_config:\n  model_id: big\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --model, big]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n"
    );
    let tiny = "inventory: {provider: fixed, devices: [{name: tiny, memory: 1MiB}]}\n";
    let pool = service::Pool::with_devices(&[("big.yaml".to_owned(), model)], tiny);
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
    let cluster = super::Pool {
        slurm: &slurm,
        file: folder.join("pool.yaml"),
    };
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
    assert_eq!(response.0, 200, "{response:?}; {}", cluster.log(&id));
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

/// A wrapper that adds the pool's address, which is only known once it listens, after the configuration has been read.
const WRAPPER: &str = "#!/bin/sh\nfolder=$(dirname \"$0\")\nshift 3\nexec PROGRAM node --controller \"http://$(cat \"$folder/address\")\" \"$@\"\n";

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the times of the steps are printed"
)]
fn s2_the_pool_requests_a_node_from_slurm_and_gives_it_back_when_it_is_idle() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let folder = slurm.path().join("auto");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("node");
    let wrapper = WRAPPER.replace("PROGRAM", env!("CARGO_BIN_EXE_model-pool"));
    fs::write(&program, wrapper).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(folder.join("node.yaml"), NODE).unwrap();
    let engine = support::stub::stub_engine().display().to_string();
    let model = |name: &str, priority: u8| {
        let file = format!(
            "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --model, {name}]\n  ready_path: /health\npool_config: {{memory_gib: 12, priority: {priority}}}\n"
        );
        (format!("{name}.yaml"), file)
    };
    let config = format!(
        "cluster:
  kind: slurm
  name: auto
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  scale_down_after: 1s
  node_data: {folder}/node-%j
  node_options: [--config, {folder}/node.yaml]
  shapes: [{{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}}]
  slurm: {{log_dir: {folder}}}
",
        folder = folder.display(),
    );
    let files = [model("here", 0), model("there", 0), model("urgent", 1)];
    let conf = slurm.conf().display().to_string();
    let pool = service::Pool::with_env(&files, &config, &[("SLURM_CONF", &conf)]);
    fs::write(folder.join("address"), pool.address()).unwrap();
    let key = pool.admin_key();
    let post = |path: &str, body: &str| {
        let (status, text, _) = pool.request("POST", path, body, Some(&key));
        let response: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, response)
    };
    let token = post("/llm/admin/nodes/tokens", "{}").1["token"].clone();
    fs::write(folder.join("token"), token.as_str().unwrap()).unwrap();
    fs::set_permissions(folder.join("token"), PermissionsExt::from_mode(0o600)).unwrap();
    let began = Instant::now();
    let step = |what: &str| eprintln!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
    let asks = |model: &str| {
        let response = post("/v1/chat/completions", &BODY.replace("big", model));
        assert_eq!(response.0, 200, "{model}: {response:?}\n{}", pool.log());
        step(&format!("{model} has answered"));
    };
    let nodes = || {
        let (_, text, _) = pool.request("GET", "/llm/admin/nodes", "", Some(&key));
        let listed: Value = serde_json::from_str(&text).unwrap_or_default();
        let nodes = listed["nodes"].as_array().cloned().unwrap_or_default();
        let names = nodes.iter().filter_map(|node| node["node"].as_str());
        let jobs = names.filter(|name| name.starts_with("slurm-"));
        jobs.map(str::to_owned).collect::<Vec<_>>()
    };

    asks("here");
    assert!(nodes().is_empty());
    asks("there");
    assert_eq!(nodes().len(), 1, "on a node of Slurm");
    asks("here");
    let (_, events, _) = pool.request("GET", "/llm/admin/events?kind=evict", "", Some(&key));
    assert!(
        !events.contains("\"evict\""),
        "nothing was evicted: {events}"
    );
    // A third model gets the second machine of the cluster before anything is evicted.
    asks("urgent");
    assert_eq!(nodes().len(), 2);
    for model in ["there", "urgent"] {
        let unloaded = post("/llm/admin/unload", &format!("{{\"model\": \"{model}\"}}"));
        assert_eq!(unloaded.0, 200, "{unloaded:?}");
    }
    step("both are unloaded");
    wait_for("the idle nodes to be given back", || nodes().is_empty());
    wait_for("the jobs to be gone", || {
        let jobs = slurm.client(
            "squeue",
            &["--noheader", "--states=RUNNING,COMPLETING,PENDING"],
        );
        jobs.trim().is_empty()
    });
    step("no job is left");
    asks("here");
}
