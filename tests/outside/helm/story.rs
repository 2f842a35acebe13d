//! The complete path with the chart's output: its configuration runs a controller, and the commands of its Deployments are the
//! pods' programs. The API server is a double.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::kubernetes::{Kubernetes, NAMESPACE};
use support::service::{Pool, wait_for};

use super::Rendered;

const NAME: &str = "pool-model-pool";
const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_controller_and_nodes_of_the_chart_work_together() {
    let device = json!({"name": "gpu0", "memory": "4GiB"});
    let values = json!({
        "config": {"cluster": {"scale_down_after": "1s"}},
        "nodes": {
            "joinToken": {"existingSecret": "join"},
            "config": {"inventory": {"provider": "fixed", "devices": [device]}},
            "shapes": [{"name": "one", "gpus": 1, "memory": "4GiB", "count": 1}],
        },
    });
    let Some(rendered) = Rendered::good(&values) else {
        return;
    };
    let deployment = rendered.one("Deployment").clone();
    let name = deployment["metadata"]["name"].as_str().unwrap().to_owned();
    let kubernetes = Kubernetes::start(NAME, 1);
    kubernetes.deploy(&name, 1);

    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("join-token");
    fs::write(&token, SECRET).unwrap();
    fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let files = &rendered.0["configuration"];
    fs::write(
        folder.path().join("node.yaml"),
        files["node.yaml"].to_string(),
    )
    .unwrap();
    let config = &files["model-pool.yaml"];
    let mut cluster = config["cluster"].clone();
    cluster["kubernetes"]["server"] = json!(kubernetes.url());
    cluster["kubernetes"]["namespace"] = json!(NAMESPACE);
    let mut node = config["node"].clone();
    assert_eq!(
        node["join_token_file"],
        "/etc/model-pool-secrets/join-token"
    );
    node["join_token_file"] = json!(token);
    let config = format!(
        "inventory: {{provider: fixed, devices: [{{name: small, memory: 1MiB}}]}}\ncluster: {cluster}\nnode: {node}\n"
    );
    let engine = support::stub::stub_engine().display().to_string();
    let model = format!(
        "engine_config:\n  model_id: a\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --model, a]\n  ready_path: /health\npool_config: {{memory_gib: 3}}\n"
    );
    let pool = Pool::with_devices(&[("a.yaml".to_owned(), model)], &config);

    let place = folder.path().to_owned();
    let url = format!("http://{}", pool.address());
    let container = deployment["spec"]["template"]["spec"]["containers"][0].clone();
    let arguments = move |pod: &str| -> Vec<String> {
        let all = container["args"].as_array().unwrap().iter();
        let here = |argument: &Value| {
            let text = argument.as_str().unwrap().replace("$(POD_NAME)", pod);
            let (option, _) = text.split_once('=').unwrap_or((text.as_str(), ""));
            let file = |name: &str| format!("{option}={}", place.join(name).display());
            match option {
                "--controller" => format!("--controller={url}"),
                "--token-file" => file("join-token"),
                "--config" => file("node.yaml"),
                "--data" => file(pod),
                "--listen" => "--listen=127.0.0.1:0".to_owned(),
                _ => text,
            }
        };
        all.map(here).collect()
    };
    kubernetes.runs(move |pod| {
        Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(arguments(pod))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    let body = r#"{"model": "a", "messages": [{"role": "user", "content": "Hello"}]}"#;
    let (status, text) = pool.post("/v1/chat/completions", body);
    assert_eq!(status, 200, "{text}\n{}", pool.log());
    assert_eq!(kubernetes.replicas(&name), 1);
    let key = pool.admin_key();
    let unloaded = pool.request("POST", "/llm/admin/unload", r#"{"model": "a"}"#, Some(&key));
    assert_eq!(unloaded.0, 200, "{}", unloaded.1);
    wait_for("the idle pod to be gone", || {
        kubernetes.pods(&name).is_empty()
    });
    assert_eq!(kubernetes.replicas(&name), 0);
}
