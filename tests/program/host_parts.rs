//! Models with a part in the machine's memory and a sleeping engine share one ledger: with the real program, on a fake GPU and a
//! machine of 64 GiB.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::assert_has;
use support::device_tree::DeviceTree;
use support::gguf_file::File;
use support::machine::{GIB, Machine};
use support::service::{Pool, wait_for};

/// The machine's memory, its available part while the pool is empty, and the memory of the sleeping engine, in GiB.
const MACHINE: u64 = 64;
const AVAILABLE: u64 = 60;
const ASLEEP: u64 = 20;
const CONFIG: &str = "parking: {host_memory: 32GiB, reserve: 4GiB}\n";

/// A mixture of experts whose experts have about `gib` GiB in F16, in a file that takes no space on the disk.
fn write_model(path: &Path, gib: u64) {
    let (hidden, wide) = (1024, 1024);
    // An expert has three matrices of 2 MiB in each of four layers.
    let experts = gib * 1024 / 24;
    let matrix = hidden * wide * 2 * experts;
    let mut file = File::default()
        .word("general.architecture", "qwen3moe")
        .number("qwen3moe.block_count", 4)
        .number("qwen3moe.context_length", 4096)
        .number("qwen3moe.embedding_length", hidden as u32)
        .number("qwen3moe.vocab_size", 128)
        .number("qwen3moe.attention.head_count", 8)
        .number("qwen3moe.attention.head_count_kv", 8)
        .number("qwen3moe.expert_count", experts as u32)
        .number("qwen3moe.expert_used_count", 2)
        .number("qwen3moe.expert_feed_forward_length", wide as u32)
        .tensor("token_embd.weight", &[hidden, 128], 1, hidden * 128 * 2)
        .tensor("output.weight", &[hidden, 128], 1, hidden * 128 * 2);
    for layer in 0..4 {
        for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            let name = format!("blk.{layer}.{name}.weight");
            file = file.tensor(&name, &[hidden, hidden], 1, hidden * hidden * 2);
        }
        for name in ["gate", "up", "down"] {
            let name = format!("blk.{layer}.ffn_{name}_exps.weight");
            file = file.tensor(&name, &[hidden, wide, experts], 1, matrix);
        }
    }
    file.write_sparse(path);
}

/// A machine, its memory, and the models `sleeper`, `experts` (30 GiB on the host), `others` (20 GiB), `large` (100 GiB, read into
/// memory) and `mapped` (100 GiB, mapped).
struct Scene {
    memory: DeviceTree,
    files: Vec<(String, String)>,
    env: Vec<(&'static str, String)>,
    machine: Machine,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = Machine::new(folder.path()).gpus(2, "NVIDIA RTX 4090", 24 * GIB);
        let memory = DeviceTree::new(folder.path());
        memory.memory(MACHINE, AVAILABLE);
        let stub = support::stub::stub_engine().display().to_string();
        let state = machine.state_file().display().to_string();
        // Takes only the port of llama-server's options.
        let program = folder.path().join("llama-server");
        let script = format!(
            "#!/bin/sh\nexport MODEL_POOL_FAKE_NVML={state}\nexec {stub} --port \"$2\" --fake-gpu-bytes {GIB}\n"
        );
        fs::write(&program, script).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        let divided = |name: &str, gib: u64, options: &[&str]| {
            let weights = folder.path().join(format!("{name}.gguf"));
            write_model(&weights, gib);
            let (program, weights) = (program.display().to_string(), weights.display().to_string());
            let mut words = vec![program.as_str(), "--port", "{{ port }}", "-m", &weights];
            words.extend(["-c", "4096", "-np", "1", "--cpu-moe"]);
            words.extend(options);
            support::stub::command_model(name, &words, "min_resident: 0s, keep_hot: until_needed")
        };
        let sleeper = format!(
            "engine_config:\n  model_id: sleeper\n  type: CommandEngine\n  command: [{stub:?}, --port, \"{{{{ port }}}}\", --fake-gpu-bytes, \"{GIB}\"]\n  env: {{MODEL_POOL_FAKE_NVML: {state:?}}}\n  sleep_command: [\"true\"]\n  wake_command: [\"true\"]\npool_config: {{memory_gib: {ASLEEP}, keep_hot: 500ms, min_resident: 0s}}\n"
        );
        let files = vec![
            ("sleeper.yaml".to_owned(), sleeper),
            divided("experts", 30, &[]),
            divided("others", 20, &[]),
            divided("large", 100, &["--load-mode", "none"]),
            divided("mapped", 100, &[]),
        ];
        let env = vec![
            (
                "MODEL_POOL_NVML_LIBRARY",
                machine.library().display().to_string(),
            ),
            (
                "MODEL_POOL_DEVICE_ROOT",
                memory.folder().display().to_string(),
            ),
        ];
        Scene {
            memory,
            files,
            env,
            machine,
            _folder: folder,
        }
    }

    fn pool(&self) -> Pool {
        let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        let env = self.env.iter().map(owned).collect();
        let config = format!("inventory: {{provider: nvml}}\n{CONFIG}");
        Pool::with_devices_and_env(&self.files, &config, env)
    }

    /// The output of `check` with the pool's configuration.
    fn check(&self, pool: &Pool) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(["check", "--config", "config.yaml"])
            .current_dir(pool.folder())
            .envs(self.env.iter().map(|(name, value)| (*name, value.as_str())))
            .output()
            .expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
    }
}

fn ask(pool: &Pool, model: &str) -> (u16, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    pool.post("/v1/chat/completions", &body.to_string())
}

fn serves(pool: &Pool, model: &str) {
    let (status, response) = ask(pool, model);
    assert_eq!(status, 200, "{model}: {response}");
}

fn get(pool: &Pool, path: &str) -> Value {
    let (status, response) = pool.admin("GET", path, &Value::Null);
    assert_eq!(status, 200, "{response}");
    response
}

/// The GiB of the host that sleepers hold, that loaded models hold, and that are available, rounded down.
fn host(pool: &Pool) -> [u64; 3] {
    let host = get(pool, "/llm/admin/devices")["hosts"][0].clone();
    ["held_bytes", "parts_bytes", "available_bytes"].map(|key| {
        let bytes = host[key].as_u64();
        bytes.unwrap_or_else(|| panic!("{key} in {host}")) / GIB
    })
}

fn is_asleep(pool: &Pool, model: &str) -> bool {
    let lists = get(pool, "/llm/hot-models");
    let asleep = lists["asleep_models"].as_array().expect("a list");
    asleep.iter().any(|entry| entry["model_name"] == model)
}

fn falls_asleep(scene: &Scene, pool: &Pool) {
    serves(pool, "sleeper");
    wait_for("the sleeper to fall asleep", || is_asleep(pool, "sleeper"));
    scene.memory.memory(MACHINE, AVAILABLE - ASLEEP);
    wait_for("the host to show it", || {
        host(pool) == [ASLEEP, 0, AVAILABLE - ASLEEP]
    });
}

#[test]
fn parts_of_models_and_sleepers_share_the_machines_memory_and_count_once() {
    let scene = Scene::new();
    let pool = scene.pool();
    falls_asleep(&scene, &pool);
    serves(&pool, "experts");
    // Mapped weights count as available for the system, and not for the pool.
    wait_for("the host to show the part of the loaded model", || {
        host(&pool) == [ASLEEP, 30, 9]
    });
    assert!(is_asleep(&pool, "sleeper"), "both fit");
    let metrics = get(&pool, "/metrics");
    let metrics = metrics.as_str().expect("text");
    let gib = |kind: &str| {
        let line = metrics.lines().find(|line| {
            line.starts_with("model_pool_host_memory_bytes")
                && line.contains(&format!("kind=\"{kind}\""))
        });
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{kind} in {metrics}")) as u64 / GIB
    };
    assert_eq!(["held", "parts", "available"].map(gib), [ASLEEP, 30, 9]);
    // The GPU holds the rest of the model, without its experts.
    let devices = get(&pool, "/llm/admin/devices");
    let reserved: u64 = devices["devices"]
        .as_array()
        .expect("devices")
        .iter()
        .flat_map(|device| device["owners"].as_array().expect("owners"))
        .filter(|owner| owner["model"] == "experts")
        .map(|owner| owner["bytes"].as_u64().expect("bytes"))
        .sum();
    assert!(reserved > 0 && reserved < 4 * GIB, "{devices}");
    // Another part of 20 GiB fits when the sleeper has ended; the plan says so before the load does it. A part that a reading may not
    // show yet counts until it does.
    wait_for("a plan that ends only the sleeper", || {
        let (_, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "others"}));
        let victims = plan["victims"].as_array().expect("victims");
        let names: Vec<&Value> = victims.iter().map(|victim| &victim["model"]).collect();
        names == [&json!("sleeper")]
    });
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| ask(&pool, "others"));
        wait_for("the sleeper to end", || !is_asleep(&pool, "sleeper"));
        scene.memory.memory(MACHINE, AVAILABLE);
        load.join().expect("a response")
    });
    assert_eq!(load.0, 200, "{}", load.1);
    wait_for("the host to show both parts", || host(&pool) == [0, 50, 9]);
}

#[test]
fn a_part_larger_than_the_machine_is_refused_unless_it_is_mapped() {
    let scene = Scene::new();
    let pool = scene.pool();
    let (status, response) = ask(&pool, "large");
    assert!(status >= 400, "{response}");
    assert_has(
        &response,
        &[
            "of the machine's memory in addition to its devices",
            "60.0 GiB",
        ],
    );
    let check = scene.check(&pool);
    assert_has(
        &check,
        &[
            "large.yaml",
            "does not fit",
            "mapped.yaml",
            "its mapped weights exceed the machine's memory",
            "60.0 GiB",
        ],
    );
    // It takes all memory that other programs leave: the sleeper ends.
    falls_asleep(&scene, &pool);
    let (status, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "mapped"}));
    assert_eq!(status, 200, "{plan}");
    assert_has(&plan.to_string(), &["sleeper"]);
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| ask(&pool, "mapped"));
        wait_for("the sleeper to end", || !is_asleep(&pool, "sleeper"));
        scene.memory.memory(MACHINE, AVAILABLE);
        load.join().expect("a response")
    });
    assert_eq!(load.0, 200, "{}", load.1);
    wait_for("the host to be full", || host(&pool)[2] == 0);
    assert_eq!(scene.machine.held(0).len() + scene.machine.held(1).len(), 1);
}
