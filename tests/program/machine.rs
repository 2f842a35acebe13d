//! The real program on a machine with eight fake GPUs.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::child::ChildGuard;
use support::machine::{GIB, Machine};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

/// A model with the stub as engine, which uses this much of its GPU.
fn model(machine: &Machine, name: &str, gib: u64, flags: &[&str]) -> (String, String) {
    let (state, bytes) = (machine.state_file(), (gib * GIB).to_string());
    let state = state.display().to_string();
    let mut words = vec!["--fake-gpu-state", &state, "--fake-gpu-bytes", &bytes];
    words.extend(flags);
    support::stub::model(name, &words, &format!("memory_gib: {gib}"))
}

fn devices(pool: &Pool) -> Vec<Value> {
    let key = pool.admin_key();
    let (status, text, _) = pool.request("GET", "/llm/admin/devices", "", Some(&key));
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).unwrap();
    let list = response
        .as_array()
        .or_else(|| response["devices"].as_array());
    list.unwrap_or_else(|| panic!("{text}")).clone()
}

#[test]
fn a_model_on_one_of_eight_gpus_is_measured_there() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path())
        .gpus(8, "NVIDIA H100 80GB HBM3", 80 * GIB)
        .nvlink_pairs();
    let files = [
        model(&machine, "modest", 30, &[]),
        model(&machine, "greedy", 40, &["--oom-above", "200000000000"]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(devices(&pool).len(), 8);
    let ask = |model| {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"Hi"}}]}}"#);
        pool.post("/v1/chat/completions", &body)
    };
    let (status, response) = ask("modest");
    assert_eq!(status, 200, "{response}");
    let taken: Vec<usize> = (0..8).filter(|gpu| machine.used(*gpu) > 0).collect();
    let [gpu] = taken[..] else {
        panic!("one GPU: {taken:?}")
    };
    let held = machine.held(gpu);
    assert_eq!(held, [(pool.engine_pids()[0], 30 * GIB)]);
    wait_for("the reading of the engine's bytes", || {
        devices(&pool)[gpu]
            .to_string()
            .contains(&(30 * GIB).to_string())
    });
    machine.foreign((gpu + 1) % 8, 4242, 17 * GIB);
    wait_for("the reading of foreign bytes", || {
        let device = &devices(&pool)[(gpu + 1) % 8];
        device.to_string().contains(&(17 * GIB).to_string())
    });
    let (status, response) = ask("greedy");
    assert_eq!(status, 503, "{response}");
    assert!(response.contains("CUDA out of memory"), "{response}");
}

/// The stub on GPU 1 of two, without a pool.
fn engine(machine: &Machine, flags: &[&str]) -> ChildGuard {
    let engine = Command::new(stub_engine())
        .args(["--fake-gpu-bytes", &(10 * GIB).to_string()])
        .args(flags)
        .env("MODEL_POOL_FAKE_NVML", machine.state_file())
        .env("CUDA_VISIBLE_DEVICES", machine.state().uuid(1))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    ChildGuard(engine.unwrap())
}

#[test]
fn an_engine_grows_and_exits_with_cudas_error_when_memory_runs_out() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path()).gpus(2, "NVIDIA L4", 24 * GIB);
    let more = (20 * GIB).to_string();
    let first = engine(&machine, &["--grow-to", &more, "--grow-after", "50"]);
    wait_for("it to grow", || machine.used(1) == 20 * GIB);
    assert_eq!(machine.held(1), [(first.id(), 20 * GIB)]);
    assert_eq!(machine.used(0), 0);
    let mut second = engine(&machine, &[]);
    assert_eq!(second.wait().unwrap().code(), Some(1));
    let mut words = String::new();
    let said = second.stderr.take().unwrap().read_to_string(&mut words);
    assert!(
        said.is_ok() && words.contains("CUDA out of memory"),
        "{words}"
    );
    assert!(words.contains("4.00 GiB is free"), "{words}");
}

#[test]
fn a_child_process_keeps_its_gpu_memory_when_its_engine_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path()).gpus(2, "NVIDIA L4", 24 * GIB);
    let parent = engine(&machine, &["--child-allocates", "--release-late", "300"]);
    wait_for("the child to take it", || machine.used(1) == 10 * GIB);
    let [(child, _)] = machine.held(1)[..] else {
        panic!("one process")
    };
    assert_ne!(child, parent.id());
    drop(parent);
    assert_eq!(machine.used(1), 10 * GIB);
    let killed = Command::new("kill")
        .args(["-KILL", &child.to_string()])
        .status();
    assert!(killed.unwrap().success());
    wait_for("its memory to come back", || machine.used(1) == 0);
}
