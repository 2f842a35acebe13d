//! Stories on machines whose devices are not separate NVIDIA GPUs, from `model-pool check` to an eviction by priority, with the real
//! program: unified memory as on a DGX Spark, a node of MI300X, and an A100 cut into MIG slices.

use std::process::Command;

use serde_json::{Value, json};
use support::device_tree::{AmdCard, DeviceTree, Kernel};
use support::machine::{GIB, Machine};
use support::service::{Pool, wait_for};

/// A model whose engine holds `gib` on its device, with this variable for the stub.
fn model(name: &str, gib: u64, pool: &str, variable: &str) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let bytes = (gib * GIB).to_string();
    let words = [
        "/usr/bin/env",
        variable,
        &program,
        "--port",
        "{{ port }}",
        "--fake-gpu-bytes",
        &bytes,
    ];
    support::stub::command_model(name, &words, &format!("memory_gib: {gib}, {pool}"))
}

/// A pool with the devices that `auto` finds.
fn start(files: &[(String, String)], env: &[(&str, String)]) -> Pool {
    let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
    let env = env.iter().map(owned).collect();
    Pool::with_devices_and_env(files, "inventory: {provider: auto}\n", env)
}

/// The output of `check` with the pool's configuration and environment.
fn check(pool: &Pool, env: &[(&str, String)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check", "--config", "config.yaml"])
        .current_dir(pool.folder())
        .envs(env.iter().map(|(name, value)| (*name, value.as_str())))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

fn ask(pool: &Pool, model: &str) -> (u16, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    pool.post("/v1/chat/completions", &body.to_string())
}

fn serves(pool: &Pool, model: &str) {
    let (status, response) = ask(pool, model);
    assert_eq!(status, 200, "{model}: {response}");
}

fn devices(pool: &Pool) -> Vec<Value> {
    let (status, response) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
    assert_eq!(status, 200, "{response}");
    response["devices"].as_array().expect("devices").clone()
}

/// The models on each device.
fn owners(pool: &Pool) -> Vec<Vec<String>> {
    let names = |device: &Value| {
        let owners = device["owners"].as_array().expect("owners");
        let names = owners.iter().map(|owner| owner["model"].as_str());
        names.map(|name| name.expect("a name").to_owned()).collect()
    };
    devices(pool).iter().map(names).collect()
}

#[test]
fn a_gpu_with_the_machines_memory_is_shared_with_other_programs_and_by_priority() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA GB10", 120 * GIB);
    for call in ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"] {
        machine.fail(call, None, 3);
    }
    let tree = DeviceTree::new(folder.path());
    tree.memory(120, 114);
    let state = format!("MODEL_POOL_FAKE_NVML={}", machine.state_file().display());
    let files = [
        model("modest", 60, "priority: 0", &state),
        model("urgent", 60, "priority: 1", &state),
    ];
    let env = [
        (
            "MODEL_POOL_NVML_LIBRARY",
            machine.library().display().to_string(),
        ),
        (
            "MODEL_POOL_DEVICE_ROOT",
            tree.folder().display().to_string(),
        ),
    ];
    // Other programs hold 6 GiB, and the engines what the driver has for them.
    let (seen, memory) = (machine.state_file(), tree.clone());
    let _kernel = Kernel::new(move || {
        if let Ok(state) = support::machine::state::State::read(&seen) {
            memory.memory(120, 114 - state.used(0) / GIB);
        }
    });
    let pool = start(&files, &env);
    support::assert_has(
        &check(&pool, &env),
        &["gpu0 120.0 GiB, shared with the machine (NVIDIA GB10)"],
    );
    serves(&pool, "modest");
    wait_for("the engine's memory to be read as its own", || {
        let device = &devices(&pool)[0];
        let measured = device["owners"][0]["measured_bytes"].as_u64().unwrap_or(0);
        measured >= 60 * GIB && device["foreign_bytes"].as_u64().unwrap_or(0) < 7 * GIB
    });
    serves(&pool, "urgent");
    assert_eq!(owners(&pool), [["urgent"]]);
    wait_for("the memory of the victim", || machine.used(0) == 60 * GIB);
}

#[test]
fn engines_on_amd_gpus_get_hips_indices_and_leave_by_priority() {
    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.memory(512, 400);
    let cards = ["0000:c1:00.0", "0000:c6:00.0", "0000:c8:00.0"];
    let nodes: Vec<u64> = cards
        .iter()
        .map(|pci| tree.amd(AmdCard::mi300(pci, 1))[0])
        .collect();
    let variable = format!("MODEL_POOL_FAKE_KFD={}", tree.folder().display());
    let files = [
        model("one", 150, "priority: 0, accelerator: amd", &variable),
        model("two", 150, "priority: 0", &variable),
        model("urgent", 150, "priority: 1, accelerator: amd", &variable),
        model("elsewhere", 1, "accelerator: nvidia", &variable),
    ];
    let env = [
        (
            "MODEL_POOL_DEVICE_ROOT",
            tree.folder().display().to_string(),
        ),
        ("HIP_VISIBLE_DEVICES", "1,2".to_owned()),
    ];
    let kernel_tree = tree.clone();
    let _kernel = Kernel::new(move || kernel_tree.settle());
    let pool = start(&files, &env);
    support::assert_has(
        &check(&pool, &env),
        &[
            "amd1 192.0 GiB (AMD Instinct MI300X OAM), amd2 192.0 GiB",
            "inventory.provider amd",
            "HIP_VISIBLE_DEVICES leaves out the GPUs of index 0",
            "pool_config.accelerator: no device is of the kind nvidia",
        ],
    );
    pool.wait_for_log("HIP_VISIBLE_DEVICES leaves out the GPUs of index 0");
    serves(&pool, "one");
    serves(&pool, "two");
    let held = |card: &str| {
        let file = format!("sys/bus/pci/devices/{card}/mem_info_vram_used");
        tree.number(&file).unwrap_or(0) / GIB
    };
    wait_for("both engines on their GPUs", || {
        cards.map(held) == [0, 150, 150]
    });
    wait_for("their memory to be read as theirs", || {
        let measured = |device: &Value| device["owners"][0]["measured_bytes"].as_u64();
        let all = devices(&pool);
        all.iter().all(|device| measured(device) == Some(150 * GIB))
    });
    serves(&pool, "urgent");
    let mut models = owners(&pool).concat();
    models.sort_unstable();
    assert!(models.contains(&"urgent".to_owned()), "{models:?}");
    assert_eq!(models.len(), 2, "one of the others left: {models:?}");
    wait_for("the memory of the victim", || {
        cards.map(held) == [0, 150, 150] && nodes.len() == 3
    });
    let (status, response) = ask(&pool, "elsewhere");
    assert_eq!(status, 503, "{response}");
    assert!(response.contains("pool_config.accelerator"), "{response}");
}

#[test]
fn engines_on_mig_slices_get_their_uuids_and_leave_by_priority() {
    const CARD: &str = "NVIDIA_A100-SXM4-40GB";
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path());
    let slice = |size: u64, name: &str, uuid: &str| {
        let bytes = size * GIB;
        format!("gpu total={bytes} reserved=0 mig_of=0 name={CARD}_MIG_{name} uuid={uuid}\n")
    };
    machine.set(&format!(
        "gpu total={} reserved=0 name={CARD} uuid=GPU-a mig\n{}{}",
        40 * GIB,
        slice(20, "3g.20gb", "MIG-1"),
        slice(20, "3g.20gb", "MIG-2"),
    ));
    let state = format!("MODEL_POOL_FAKE_NVML={}", machine.state_file().display());
    let files = [
        model("one", 15, "priority: 0", &state),
        model("two", 15, "priority: 0", &state),
        model("urgent", 15, "priority: 1", &state),
        model("wide", 20, "gpus_per_replica: 2", &state),
    ];
    let env = [(
        "MODEL_POOL_NVML_LIBRARY",
        machine.library().display().to_string(),
    )];
    let pool = start(&files, &env);
    serves(&pool, "one");
    serves(&pool, "two");
    let held = |line: usize| machine.used(line) / GIB;
    assert_eq!([0, 1, 2].map(held), [0, 15, 15], "each on its own slice");
    let names: Vec<Value> = devices(&pool)
        .iter()
        .map(|device| device["device"].clone())
        .collect();
    assert_eq!(names, ["gpu0-mig0", "gpu0-mig1"]);
    serves(&pool, "urgent");
    let models = owners(&pool).concat();
    assert!(models.contains(&"urgent".to_owned()), "{models:?}");
    assert_eq!(models.len(), 2, "{models:?}");
    wait_for("the memory of the victim", || {
        [0, 1, 2].map(held) == [0, 15, 15]
    });
    // CUDA uses one slice in a process.
    let (status, response) = ask(&pool, "wide");
    assert_eq!(status, 503, "{response}");
    assert!(response.contains("may use none"), "{response}");
    support::assert_has(
        &check(&pool, &env),
        &[
            "gpu0-mig0 20.0 GiB (NVIDIA A100-SXM4-40GB MIG 3g.20gb)",
            "pool_config.gpus_per_replica 2, for which CUDA uses no MIG slice",
        ],
    );
}
