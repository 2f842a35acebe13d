//! Grafana's dashboard in `deploy/grafana`. Grafana itself is in no package registry, so the dashboard is checked against the types
//! of Grafana's SDK (`.ci/dashboard` installs them) and against a real Prometheus (`.ci/prometheus`) that scrapes a pool and runs
//! every query of every panel.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::child::ChildGuard;
use support::external_programs::{is_for_later, skipped};
use support::service::{Pool, wait_for};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn file() -> PathBuf {
    Path::new(ROOT).join("deploy/grafana/model-pool.json")
}

#[test]
fn the_dashboard_matches_grafanas_types() {
    let folder = Path::new(ROOT).join("target/dashboard");
    if !folder
        .join("node_modules/ts-json-schema-generator")
        .exists()
    {
        let why = "Grafana's types are missing. Install them with `bash .ci/dashboard`, and run `cargo test --test outside grafana::`";
        return skipped("dashboard", why);
    }
    // Modules are resolved relative to the script.
    let script = folder.join("grafana.mjs");
    fs::copy(Path::new(ROOT).join("tests/dashboard/grafana.mjs"), &script).unwrap();
    let check = |file: &Path| {
        let output = Command::new("node")
            .arg(&script)
            .arg(file)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text)
    };
    let (is_right, text) = check(&file());
    assert!(is_right, "{text}");
    // The check detects errors.
    let mut wrong: Value = serde_json::from_str(&fs::read_to_string(file()).unwrap()).unwrap();
    wrong["panels"][1]["options"]["colorMode"] = json!("colourful");
    wrong["panels"][2]["gridPosition"] = json!(1);
    let other = tempfile::NamedTempFile::new().unwrap();
    fs::write(other.path(), wrong.to_string()).unwrap();
    let (is_right, text) = check(other.path());
    assert!(
        !is_right && text.contains("colorMode") && text.contains("gridPosition"),
        "{text}"
    );
}

/// A Prometheus that ends with the test.
struct Prometheus {
    _child: ChildGuard,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(pool: &Pool) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let target = pool.address();
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: model-pool\n    static_configs: [{{targets: [\"{target}\"]}}]\n"
        );
        fs::write(&config, text).unwrap();
        let start = || {
            // A port that is currently free: Prometheus cannot report a port chosen by the system.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            drop(listener);
            let child = Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!(
                    "--storage.tsdb.path={}",
                    folder.path().join("data").display()
                ))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            (ChildGuard(child), address)
        };
        let (mut child, mut address) = start();
        wait_for("Prometheus to be ready", || {
            // Another test can take the port first. Prometheus ends then.
            if child.0.try_wait().unwrap().is_some() {
                (child, address) = start();
            }
            let ready = format!("http://{address}/-/ready");
            let curl = Command::new("curl")
                .args(["-sf", "-o", "/dev/null", &ready])
                .status();
            curl.unwrap().success()
        });
        Prometheus {
            _child: child,
            address,
            _folder: folder,
        }
    }

    /// Prometheus's result for a query; an error is a string.
    fn query(&self, text: &str) -> Result<Vec<Value>, String> {
        let output = Command::new("curl")
            .args(["-s", "--data-urlencode", &format!("query={text}")])
            .arg(format!("http://{}/api/v1/query", self.address))
            .output()
            .unwrap();
        let response: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match response["data"]["result"].as_array() {
            Some(found) => Ok(found.clone()),
            None => Err(response["error"]
                .as_str()
                .unwrap_or("no response")
                .to_owned()),
        }
    }
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A query as Grafana sends it: for all models, over a short time.
fn sent(expression: &str) -> String {
    expression
        .replace("$model", ".*")
        .replace("$__rate_interval", "5m")
}

#[test]
fn prometheus_answers_every_query_of_the_dashboard() {
    if is_for_later() || !has("prometheus") || !has("curl") {
        let why = "prometheus or curl is missing. Install prometheus with `bash .ci/prometheus`, and run `cargo test --test outside grafana::`";
        return skipped("promtool", why);
    }
    let pool = Pool::demo();
    let prometheus = Prometheus::start(&pool);
    wait_for("the first reading", || {
        prometheus
            .query("model_pool_store_writable")
            .is_ok_and(|series| !series.is_empty())
    });
    // Loads, responses, an eviction, and a failed request.
    let key = pool.admin_key();
    let ask = |model: &str| {
        let body = json!({"model": model, "stream": true, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
        pool.post("/v1/chat/completions", &body.to_string())
    };
    let names = ["tiny-guide", "tiny-chat", "tiny-helper"];
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file()).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut silent = vec!["nothing was tried".to_owned()];
    wait_for("every query to have an answer", || {
        // The models stay loaded during the queries: a reading between two loads shows no ready replica.
        for model in names {
            let unload = json!({"model": model, "now": true}).to_string();
            pool.request("POST", "/llm/admin/unload", &unload, Some(&key));
            assert_eq!(ask(model).0, 200, "{model}");
        }
        silent.clear();
        for panel in panels {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                let found = prometheus.query(&sent(expression));
                let found = found.unwrap_or_else(|why| panic!("{expression}: {why}"));
                if found.is_empty() {
                    silent.push(expression.to_owned());
                }
            }
        }
        // These need an evicted replica and a failed request.
        silent.retain(|query| !query.contains("eviction") && !query.contains("5..|429"));
        silent.is_empty()
    });
    let variable = &dashboard["templating"]["list"][1]["query"];
    assert_eq!(variable, "label_values(model_pool_replicas, model)");
    let models = prometheus
        .query("count by (model) (model_pool_replicas)")
        .unwrap();
    assert!(models.len() >= names.len(), "{models:?}");
}
