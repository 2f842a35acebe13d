//! The page of nodes with a lease, its sizes, a size that the cluster refuses, and a set whose requests wait.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::child::ChildGuard;
use support::service::{Pool, wait_for};

use super::{LEASES, brought, drive, model};

const DEVICE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\n";
/// Refuses the size `full`, and lets other requests wait.
const SCALE_UP: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
input=$(cat)
demand=$(echo "$input" | sed 's/.*"demand":\([0-9]*\).*/\1/')
shape=$(echo "$input" | sed 's/.*"shape":{[^}]*"name":"\([^"]*\)".*/\1/')
[ "$shape" = full ] && { echo "the group of the QOS has reached its limit of GPUs; wait, or release a lease (QOSGrpGRES)" >&2; exit 1; }
id="vm-$(($(ls leases | wc -l) + 1))"
echo "{\"id\": \"$id\", \"shape\": \"$shape\", \"state\": \"pending\", \"reason\": \"all nodes of this shape are in use; the job starts when one becomes free (Resources)\", \"demand\": $demand}" > "leases/$id"
echo "{\"id\": \"$id\"}"
"#;
const STATUS: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
cat > /dev/null
echo "{\"leases\": [$(cat leases/* | paste -sd, -)]}"
"#;

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn post(pool: &Pool, path: &str, body: &Value) -> Value {
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", path, &body.to_string(), Some(&key));
    assert!(status < 300, "{path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

fn nodes(pool: &Pool) -> Value {
    let (_, text, _) = pool.request("GET", "/llm/admin/nodes", "", Some(&pool.admin_key()));
    serde_json::from_str(&text).unwrap_or_default()
}

/// Starts the node of the lease `vm-1`, from before the pool's start.
fn node(pool: &Pool, folder: &Path) -> ChildGuard {
    let token = post(pool, "/llm/admin/nodes/tokens", &json!({}))["token"].clone();
    write(&folder.join("token"), token.as_str().unwrap(), 0o600);
    fs::write(folder.join("node.yaml"), DEVICE).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["node", "--name", "vm-1", "--demand", "1", "--controller"])
        .arg(format!("http://{}", pool.address()))
        .arg("--token-file")
        .arg(folder.join("token"))
        .arg("--config")
        .arg(folder.join("node.yaml"))
        .arg("--data")
        .arg(folder.join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    ChildGuard(child.unwrap())
}

#[test]
fn leases_sizes_refusals_and_a_set_are_shown_in_a_browser() {
    if brought("venv/bin/python").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("leases")).unwrap();
    write(&path.join("up"), SCALE_UP, 0o755);
    write(&path.join("down"), "#!/bin/sh\ncat > /dev/null\n", 0o755);
    write(&path.join("status"), STATUS, 0o755);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let begun = now.unwrap() - Duration::from_secs(5000);
    let lease = json!({
        "id": "vm-1", "shape": "a100x1", "state": "running", "host": "rack-7", "demand": 1,
        "starts_unix": begun.as_secs(), "time_limit_seconds": 28_800,
    });
    fs::write(path.join("leases/vm-1"), format!("{lease}\n")).unwrap();
    let (file, text) = model("lab/deepseek-v3-of-two-machines", 60, 0, "");
    let wide = (file, text.replace("memory_gib:", "nodes: 2, memory_gib:"));
    let huge = model("lab/huge", 300, 0, "");
    let config = format!(
        "inventory: {{provider: fixed, devices: [{{name: small, memory: 8GiB}}]}}
auth: {{inference: key}}
cluster:
  kind: command
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  patience: 10m
  scale_down_after: 1h
  max_nodes: 12
  budget: {{gpu_hours_per_day: 48, cost_per_month: 500}}
  shapes:
    - {{name: a100x1, gpus: 1, memory: 40GiB, time_limit: 8h, cost_per_hour: 1.60, max_nodes: 4}}
    - {{name: full, gpus: 1, memory: 400GiB, time_limit: 8h, cost_per_hour: 25}}
  command: {{scale_up: [{folder}/up], scale_down: [{folder}/down], status: [{folder}/status]}}
",
        folder = path.display()
    );
    let pool = Pool::with_devices(&[wide, huge], &config);
    let _node = node(&pool, path);
    wait_for("the lease to be known", || {
        let list = nodes(&pool);
        let mut listed = list["nodes"].as_array().into_iter().flatten();
        listed.any(|one| one["node"] == "vm-1" && one["ends_at"].is_string())
    });
    for name in ["lab/huge", "lab/deepseek-v3-of-two-machines"] {
        let body = json!({"model": name, "wait": false});
        let key = pool.admin_key();
        pool.request("POST", "/llm/admin/load", &body.to_string(), Some(&key));
    }
    wait_for("a refusal and the reasons of the requests", || {
        let list = nodes(&pool);
        let requested = list["requested"].as_array().cloned().unwrap_or_default();
        let reports = |one: &Value| one["reason"].as_str().is_some_and(|why| !why.is_empty());
        let is_refused = list["shapes"][1]["unavailable"].is_string();
        is_refused && !requested.is_empty() && requested.iter().all(reports)
    });
    drive(&pool, LEASES);
}
