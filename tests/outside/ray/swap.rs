//! A Ray without an autoscaler whose only GPU the pool holds: a model of higher priority takes it as fast as on a single machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::service::{self, Pool};

use super::server::{RayServer, is_inside, wait_for};

const DEVICE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\n";
const TINY: &str = "inventory: {provider: fixed, devices: [{name: tiny, memory: 1MiB}]}\n";
const WRAPPER: &str = "#!/bin/sh\nfolder=$(dirname \"$0\")\nshift 3\nexec PROGRAM node --controller \"http://$(cat \"$folder/address\")\" \"$@\"\n";
/// The duration of a load, in milliseconds.
const LOAD_MS: &str = "4000";

fn model(name: &str, priority: u8) -> (String, String) {
    let engine = support::stub::stub_engine().display().to_string();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --model, {name}, --ready-after-ms, \"{LOAD_MS}\"]\n  ready_path: /health\npool_config: {{memory_gib: 12, priority: {priority}}}\n"
    );
    (format!("{name}.yaml"), file)
}

/// The time until the model has responded.
#[expect(clippy::disallowed_methods, reason = "the times are compared")]
fn asks(pool: &Pool, key: &str, model: &str) -> Duration {
    let began = Instant::now();
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text, _) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), Some(key));
    assert_eq!(status, 200, "{model}: {text}\n{}", pool.log());
    began.elapsed()
}

#[test]
fn s2_on_a_ray_that_cannot_grow_a_swap_takes_as_long_as_on_one_machine() {
    if !is_inside("ray::swap::s2_on_a_ray_that_cannot_grow_a_swap_takes_as_long_as_on_one_machine")
    {
        return;
    }
    let models = [model("first", 0), model("urgent", 1)];
    let local = Pool::with_devices(&models, DEVICE);
    let key = local.admin_key();
    asks(&local, &key, "first");
    let on_one_machine = asks(&local, &key, "urgent");
    drop(local);

    let mut ray = RayServer::start(None);
    ray.add_machine(1, "pool=gpu");
    let folder = ray.path().join("swap");
    fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    let wrapper = WRAPPER.replace("PROGRAM", env!("CARGO_BIN_EXE_model-pool"));
    write("node", &wrapper, 0o755);
    let evening = "evening: {cleanup: null, reopen: null}\n";
    write("node.yaml", &format!("{DEVICE}{evening}"), 0o644);
    let config = format!(
        "{TINY}cluster:
  kind: ray
  name: swap
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  node_data: {folder}/node-%j
  node_options: [--config, {folder}/node.yaml]
  shapes: [{{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}}]
  ray: {{address: \"{address}\"}}
",
        folder = folder.display(),
        address = ray.address(),
    );
    let pool = service::Pool::with_devices(&models, &config);
    write("address", pool.address(), 0o644);
    let key = pool.admin_key();
    let (_, token, _) = pool.request("POST", "/llm/admin/nodes/tokens", "{}", Some(&key));
    let token: Value = serde_json::from_str(&token).unwrap();
    write("token", token["token"].as_str().unwrap(), 0o600);
    asks(&pool, &key, "first");
    let unavailable = || {
        let (_, list, _) = pool.request("GET", "/llm/admin/nodes", "", Some(&key));
        let list: Value = serde_json::from_str(&list).unwrap_or_default();
        list["shapes"][0]["unavailable"].clone()
    };
    wait_for("the pool to know that Ray has no GPU left", || {
        unavailable()
            .as_str()
            .is_some_and(|why| why.contains("no autoscaler"))
    });
    let (_, plan, _) = pool.request(
        "POST",
        "/llm/admin/plan",
        r#"{"model": "urgent"}"#,
        Some(&key),
    );
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["node"], Value::Null, "{plan}");
    assert_eq!(plan["victims"][0]["model"], "first", "{plan}");
    let on_ray = asks(&pool, &key, "urgent");
    eprintln!("a swap on one machine took {on_one_machine:.2?}, on Ray {on_ray:.2?}");
    assert!(
        on_ray <= on_one_machine.mul_f64(1.2),
        "{on_ray:?} against {on_one_machine:?}"
    );
    assert_eq!(ray.live_jobs().len(), 1, "nothing was requested");
}
