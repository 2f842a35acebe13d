//! A pool with nodes from a real Slurm: the controller has one device, and jobs run `model-pool node` with one device of 16 GiB
//! each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::service::{self, wait_for};

use super::server::SlurmServer;

/// The configuration of a node with one device.
pub const NODE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\nevening: {cleanup: null, reopen: null}\n";
/// A wrapper that adds the pool's address, which is only known once it listens, after the configuration has been read.
const WRAPPER: &str = "#!/bin/sh\nfolder=$(dirname \"$0\")\nshift 3\nwhile [ ! -s \"$folder/address\" ]; do sleep 0.05; done\nexec PROGRAM node --controller \"http://$(cat \"$folder/address\")\" \"$@\"\n";

/// A model of 12 GiB whose engine takes `--token-ms` per token.
pub fn model(name: &str, priority: u8, flags: &[&str]) -> (String, String) {
    let mut words = vec![support::stub::stub_engine().display().to_string()];
    words.extend(["--port", "{{ port }}", "--model", name].map(str::to_owned));
    words.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{}]\n  ready_path: /health\npool_config: {{memory_gib: 12, priority: {priority}}}\n",
        words.join(", ")
    );
    (format!("{name}.yaml"), file)
}

pub struct Lab<'a> {
    slurm: &'a SlurmServer,
    pub pool: service::Pool,
    pub key: String,
    folder: PathBuf,
    began: Instant,
}

impl<'a> Lab<'a> {
    /// `cluster` contains additional lines of that section. The first file is a model that fills the controller's own device.
    #[expect(
        clippy::disallowed_methods,
        reason = "the times of the steps are printed"
    )]
    pub fn start(
        slurm: &'a SlurmServer,
        name: &str,
        models: &[(String, String)],
        cluster: &str,
    ) -> Lab<'a> {
        let folder = slurm.path().join(name);
        fs::create_dir(&folder).unwrap();
        let program = folder.join("node");
        let wrapper = WRAPPER.replace("PROGRAM", env!("CARGO_BIN_EXE_model-pool"));
        fs::write(&program, wrapper).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(folder.join("node.yaml"), NODE).unwrap();
        let config = format!(
            "cluster:
  kind: slurm
  name: {name}
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  node_data: {folder}/node-%j
  node_options: [--config, {folder}/node.yaml]
{cluster}",
            folder = folder.display(),
        );
        let config = config.replace("FOLDER", &folder.display().to_string());
        let began = Instant::now();
        let conf = slurm.conf().display().to_string();
        let pool = service::Pool::with_env(models, &config, &[("SLURM_CONF", &conf)]);
        let key = pool.admin_key();
        let lab = Lab {
            slurm,
            pool,
            key,
            folder,
            began,
        };
        let token = lab.post("/llm/admin/nodes/tokens", "{}").1["token"].clone();
        fs::write(lab.folder.join("token"), token.as_str().unwrap()).unwrap();
        let mode = PermissionsExt::from_mode(0o600);
        fs::set_permissions(lab.folder.join("token"), mode).unwrap();
        fs::write(lab.folder.join("address"), lab.pool.address()).unwrap();
        lab
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let (status, text, _) = self.pool.request("POST", path, body, Some(&self.key));
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a request for this many tokens.
    pub fn asks(&self, model: &str, tokens: u32) -> (u16, Value) {
        self.post("/v1/chat/completions", &body(model, tokens, false))
    }

    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub fn step(&self, what: &str) {
        eprintln!("{:6.1} s  {what}", self.seconds());
    }

    /// Nodes started by jobs.
    pub fn nodes(&self) -> Vec<Value> {
        let (_, text, _) = self
            .pool
            .request("GET", "/llm/admin/nodes", "", Some(&self.key));
        let listed: Value = serde_json::from_str(&text).unwrap_or_default();
        let nodes = listed["nodes"].as_array().cloned().unwrap_or_default();
        let is_job = |node: &Value| {
            node["node"]
                .as_str()
                .is_some_and(|name| name.starts_with("slurm-"))
        };
        nodes.into_iter().filter(is_job).collect()
    }

    pub fn node(&self, name: &str) -> Value {
        let mut nodes = self.nodes().into_iter();
        nodes.find(|node| node["node"] == name).unwrap_or_default()
    }

    /// Nodes with a ready replica of the model.
    pub fn ready_on(&self, model: &str) -> Vec<String> {
        let shown = support::family::shown(&self.pool, model);
        let replicas = shown["replicas"].as_array().cloned().unwrap_or_default();
        let ready = replicas
            .iter()
            .filter(|replica| replica["state"] == "ready");
        let devices = ready.filter_map(|replica| replica["devices"][0]["device"].as_str());
        let nodes = devices.filter_map(|device| device.split_once('/'));
        nodes.map(|(node, _)| node.to_owned()).collect()
    }

    pub fn wait_for_long(&self, what: &str, within: Duration, mut so: impl FnMut() -> bool) {
        let until = self.began.elapsed() + within;
        while !so() {
            assert!(
                self.began.elapsed() < until,
                "waited in vain for {what}\n{}",
                self.pool.log()
            );
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    pub fn jobs(&self, states: &str) -> String {
        let states = format!("--states={states}");
        self.slurm.client("squeue", &["--noheader", &states])
    }

    pub fn wait_for_no_job(&self) {
        wait_for("the jobs to be gone", || {
            self.jobs("RUNNING,COMPLETING,PENDING").trim().is_empty()
        });
    }
}

pub fn body(model: &str, tokens: u32, stream: bool) -> String {
    json!({"model": model, "stream": stream, "max_tokens": tokens,
        "messages": [{"role": "user", "content": "Hello"}]})
    .to_string()
}
