//! The measurements for machines with a GPU, `benches/gpu/run`, on a machine without one: with the fake NVML and a stand-in for the
//! CUDA program. This keeps them working for the rare times with a real GPU.

use std::process::Command;

use support::cuda_stand_in::CudaStandIn;
use support::external_programs;
use support::machine::{GIB, Machine};

/// The parts of the script, with their expected rows on the CPU.
const ROWS: &[(&str, &[&str])] = &[
    ("GPU", &["NVIDIA L4"]),
    ("used + free + reserved", &["0.00 GiB"]),
    // The stand-in uses no GPU memory.
    (
        "the engine's own process",
        &["no; the list has 0 processes"],
    ),
    ("used memory is back", &["ms after the process was gone"]),
    (
        "correctness vectors",
        &["0.0000 on average", "the median for"],
    ),
    ("tiny, 1 at once", &["tokens/s"]),
    ("tiny falls asleep", &["GB/s of weights"]),
    ("tiny wakes up", &["GB/s of weights"]),
    ("swap, engines that are stopped", &["first load", "ms"]),
    ("swap, engines that sleep", &["first load", "ms"]),
];

#[test]
fn the_gpu_measurements_run_on_the_fakes() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        return external_programs::skipped("python3", "python3 is missing for benches/gpu/run");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA L4", 24 * GIB);
    let stand_in = CudaStandIn::new(folder.path(), env!("CARGO_PKG_VERSION"));
    let output = Command::new("python3")
        .arg("-B")
        .arg(support::root().join("benches/gpu/run"))
        .arg("--program")
        .arg(support::program())
        .arg("--cuda")
        .arg(stand_in.program())
        .args(["--shape", "tiny", "--at-once", "1", "--minutes", "3"])
        .args(["--families", "llama,gpt2"])
        .env("MODEL_POOL_NVML_LIBRARY", machine.library())
        .output()
        .expect("python3 runs");
    let table = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}\n{errors}");
    for (beginning, parts) in ROWS {
        let mut lines = table.lines();
        let row = lines.find(|line| line.starts_with(&format!("| {beginning}")));
        let row = row.unwrap_or_else(|| panic!("no row {beginning}:\n{table}\n{errors}"));
        for part in *parts {
            assert!(row.contains(part), "{part}: {row}\n{errors}");
        }
    }
}
