//! The embedded engine on a fake GPU: the program it starts, and the pool's responses and log if that program is missing or cannot
//! start.

use std::path::Path;
use std::process::Command;

use support::cuda_stand_in::CudaStandIn;
use support::machine::{GIB, Machine};
use support::service::Pool;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const KEY: &str = "MODEL_POOL__INVENTORY__CUDA_PROGRAM";

/// A tiny model on this device.
fn model(name: &str, device: &str) -> (String, String) {
    let weights = support::root().join("demo/models/tiny-chat");
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {:?}\n  max_total_tokens: 128\n  engine_kwargs: {{device: {device}, concurrency: 1}}\npool_config: {{memory_gib: 2}}\n",
        weights.display().to_string()
    );
    (format!("{name}.yaml"), file)
}

fn both() -> [(String, String); 2] {
    [model("on-gpu", "cuda"), model("on-cpu", "cpu")]
}

fn machine(folder: &Path) -> Machine {
    Machine::new(folder).gpus(1, "NVIDIA L4", 24 * GIB)
}

fn pool(machine: &Machine, program: &Path) -> Pool {
    let program = program.display().to_string();
    Pool::on_gpus_with_env(&both(), &machine.library(), "", &[(KEY, &program)])
}

fn ask(pool: &Pool, model: &str) -> (u16, String) {
    let body = format!(
        r#"{{"model":"{model}","max_tokens":4,"messages":[{{"role":"user","content":"Hi"}}]}}"#
    );
    pool.post("/v1/chat/completions", &body)
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}

#[test]
fn only_an_engine_on_a_gpu_is_started_with_the_cuda_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let stand_in = CudaStandIn::new(folder.path(), VERSION);
    let pool = pool(&machine, &stand_in.program());
    has(
        &pool.log(),
        &["embedded engine on GPUs:", "built for CUDA 13.0", "1 GPU;"],
    );
    for model in ["on-gpu", "on-cpu"] {
        let (status, response) = ask(&pool, model);
        assert_eq!(status, 200, "{model}: {response}");
    }
    let libraries = stand_in.libraries().canonicalize().expect("a folder");
    let libraries = format!("libraries={}", libraries.display());
    let calls = stand_in.calls();
    let [probe, engine] = &calls[..] else {
        panic!("one look at the start and one engine: {calls:?}")
    };
    has(probe, &["cuda-probe ", &libraries]);
    has(
        engine,
        &[
            "engine ",
            "--model-name on-gpu",
            "--device cuda:0",
            &libraries,
        ],
    );
}

#[test]
fn without_the_cuda_program_cpu_models_are_served_and_others_give_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let pool = pool(&machine, &folder.path().join("nowhere"));
    has(
        &pool.log(),
        &["these models cannot be loaded (on-gpu)", "nowhere"],
    );
    let (status, response) = ask(&pool, "on-gpu");
    assert_ne!(status, 200, "{response}");
    has(
        &response,
        &[
            "nowhere",
            "inventory.cuda_program",
            "docs/guides/gpu.md",
            "device: cpu",
        ],
    );
    let (status, response) = ask(&pool, "on-cpu");
    assert_eq!(status, 200, "{response}");
}

#[test]
fn a_cuda_program_with_missing_libraries_is_reported_with_the_package_to_install() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let loader = "echo \"$0: error while loading shared libraries: libcublas.so.13: cannot open shared object file: No such file or directory\" >&2\nexit 127";
    let stand_in = CudaStandIn::saying(folder.path(), loader);
    let pool = pool(&machine, &stand_in.program());
    let expected = ["libcublas.so.13 is missing", "nvidia-cublas"];
    has(&pool.log(), &expected);
    let (status, response) = ask(&pool, "on-gpu");
    assert_ne!(status, 200, "{response}");
    has(&response, &expected);
    assert_eq!(stand_in.calls().len(), 1, "it is tried once");

    let output = Command::new(support::program())
        .args(["check", "--config"])
        .arg(pool.folder().join("config.yaml"))
        .env("MODEL_POOL_NVML_LIBRARY", machine.library())
        .env(KEY, stand_in.program())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    has(&text, &expected);
    has(
        &text,
        &[
            "embedded engine on GPUs:",
            "would run: model-pool-cuda engine",
            "loads fail here",
        ],
    );
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_without_cuda_in_place_of_the_cuda_program_is_recognized() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let pool = pool(&machine, &support::program());
    has(&pool.log(), &["without CUDA", "--features cuda"]);
}
