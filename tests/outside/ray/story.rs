//! The complete path on a real Ray that requires a token: a pool without room for a model gets a node, and a second node for a
//! model of higher priority; Ray's dashboard crashes in between; and idle nodes are returned.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::Value;
use support::service;

use super::server::{RayServer, is_inside, wait_for};

const NODE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\nevening: {cleanup: null, reopen: null}\n";
const TINY: &str = "inventory: {provider: fixed, devices: [{name: tiny, memory: 1MiB}]}\n";
/// A wrapper that adds the pool's address, which is only known once it listens, after the configuration has been read.
const WRAPPER: &str = "#!/bin/sh\nfolder=$(dirname \"$0\")\nshift 3\nexec PROGRAM node --controller \"http://$(cat \"$folder/address\")\" \"$@\"\n";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the times of the steps are printed"
)]
fn s2_the_pool_requests_nodes_from_ray_and_gives_them_back_when_they_are_idle() {
    if !is_inside(
        "ray::story::s2_the_pool_requests_nodes_from_ray_and_gives_them_back_when_they_are_idle",
    ) {
        return;
    }
    let mut ray = RayServer::start(Some(TOKEN));
    for _ in 0..2 {
        ray.add_machine(1, "pool=gpu");
    }
    let folder = ray.path().join("auto");
    fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    write(
        "node",
        &WRAPPER.replace("PROGRAM", env!("CARGO_BIN_EXE_model-pool")),
        0o755,
    );
    write("node.yaml", NODE, 0o644);
    write("ray-token", TOKEN, 0o600);
    let engine = support::stub::stub_engine().display().to_string();
    let model = |name: &str, priority: u8| {
        let file = format!(
            "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --model, {name}]\n  ready_path: /health\npool_config: {{memory_gib: 12, priority: {priority}}}\n"
        );
        (format!("{name}.yaml"), file)
    };
    let config = format!(
        "{TINY}cluster:
  kind: ray
  name: auto
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  scale_down_after: 1s
  node_data: {folder}/node-%j
  node_options: [--config, {folder}/node.yaml]
  shapes: [{{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}}]
  ray: {{address: \"{address}\", token_file: {folder}/ray-token}}
",
        folder = folder.display(),
        address = ray.address(),
    );
    a_wrong_token_is_refused_with_what_to_do(&config, &folder);

    let pool = service::Pool::with_devices(&[model("first", 0), model("urgent", 1)], &config);
    fs::write(folder.join("address"), pool.address()).unwrap();
    let key = pool.admin_key();
    let post = |path: &str, body: &str| {
        let (status, text, _) = pool.request("POST", path, body, Some(&key));
        let response: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, response)
    };
    let token = post("/llm/admin/nodes/tokens", "{}").1["token"].clone();
    write("token", token.as_str().unwrap(), 0o600);
    let began = Instant::now();
    let step = |what: &str| eprintln!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
    let asks = |model: &str| {
        let body = format!(
            "{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}"
        );
        let response = post("/v1/chat/completions", &body);
        assert_eq!(response.0, 200, "{model}: {response:?}\n{}", pool.log());
        step(&format!("{model} has answered"));
    };
    let nodes = || {
        let (_, text, _) = pool.request("GET", "/llm/admin/nodes", "", Some(&key));
        let listed: Value = serde_json::from_str(&text).unwrap_or_default();
        let nodes = listed["nodes"].as_array().cloned().unwrap_or_default();
        let names = nodes.iter().filter_map(|node| node["node"].as_str());
        let jobs = names.filter(|name| name.starts_with("ray-"));
        jobs.map(str::to_owned).collect::<Vec<_>>()
    };

    step("the pool runs, without a GPU");
    assert!(nodes().is_empty());
    asks("first");
    assert_eq!(nodes().len(), 1, "on a node of Ray");
    assert_eq!(ray.live_jobs().len(), 1);

    // Without its dashboard, Ray's state is unknown, and its nodes continue.
    let dashboard = ray.kill_dashboard();
    step("Ray's dashboard is killed");
    asks("first");
    ray.start_dashboard(&dashboard);
    wait_for("Ray to know its job", || ray.live_jobs().len() == 1);
    step("Ray's dashboard is back");

    // A model of higher priority gets a second machine before anything is evicted.
    asks("urgent");
    assert_eq!(nodes().len(), 2);
    let (_, events, _) = pool.request("GET", "/llm/admin/events?kind=evict", "", Some(&key));
    assert!(
        !events.contains("\"evict\""),
        "nothing was evicted: {events}"
    );
    asks("first");

    for model in ["first", "urgent"] {
        let unloaded = post("/llm/admin/unload", &format!("{{\"model\": \"{model}\"}}"));
        assert_eq!(unloaded.0, 200, "{unloaded:?}");
    }
    step("both are unloaded");
    wait_for("the idle nodes to be given back", || nodes().is_empty());
    step("the idle nodes are given back");
    wait_for("the jobs to be gone", || ray.live_jobs().is_empty());
    step("no job is left");
    let log = pool.log();
    assert!(
        !log.contains(TOKEN) && !log.contains(token.as_str().unwrap()),
        "{log}"
    );
    let jobs = ray.get("/api/jobs/").to_string();
    assert!(
        !jobs.contains(TOKEN) && !jobs.contains(token.as_str().unwrap()),
        "{jobs}"
    );
}

fn a_wrong_token_is_refused_with_what_to_do(config: &str, folder: &std::path::Path) {
    let file = folder.join("wrong.yaml");
    for (token, parts) in [
        (
            "secret-but-wrong",
            ["does not accept the token", "ray get-auth-token"],
        ),
        ("", ["the file is empty", "cluster.ray.token_file"]),
    ] {
        fs::write(folder.join("wrong"), token).unwrap();
        let text = config.replace("/ray-token", "/wrong");
        fs::write(&file, text).unwrap();
        for words in [&["cluster", "request", "one"][..], &["check", "--ray"]] {
            let call = super::calls(file.clone()).run(words);
            call.has(1, &parts);
            assert!(
                !format!("{call:?}").contains("secret-but-wrong"),
                "{call:?}"
            );
        }
    }
    let text = config.replace(&format!(", token_file: {}/ray-token", folder.display()), "");
    fs::write(&file, text).unwrap();
    super::calls(file)
        .run(&["check", "--ray"])
        .has(1, &["it wants a token", "RAY_AUTH_TOKEN"]);
}
