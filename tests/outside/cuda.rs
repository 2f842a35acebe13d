//! The program with CUDA as `.ci/cuda` builds it, on a machine without a GPU: it starts with the driver's stub alone, and the
//! plain program says of it what is missing.

use std::path::PathBuf;
use std::process::{Command, Output};

use support::required;

fn program() -> Option<PathBuf> {
    let built = support::root().join("target/cuda/model-pool-cuda");
    if built.is_file() {
        return Some(built);
    }
    required::skipped(
        "cuda",
        "there is no target/cuda/model-pool-cuda; bash .ci/cuda",
    );
    None
}

fn stub() -> PathBuf {
    support::root().join("target/cuda-compiler/stub")
}

/// What `model-pool check` says of the program.
fn check(libraries: &str) -> Option<String> {
    let program = program()?;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("models")).expect("made");
    let output = Command::new(support::program())
        .arg("check")
        .current_dir(folder.path())
        .env(
            "MODEL_POOL__CATALOG__MODELS_DIR",
            folder.path().join("models"),
        )
        .env("MODEL_POOL__INVENTORY__CUDA_PROGRAM", program)
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("embedded engine on GPUs:"));
    Some(line.unwrap_or_else(|| panic!("{text}")).to_owned())
}

fn run(word: &str) -> Option<Output> {
    let output = Command::new(program()?)
        .arg(word)
        .env("LD_LIBRARY_PATH", stub())
        .output();
    Some(output.expect("it starts"))
}

#[test]
fn it_starts_with_its_own_libraries_and_is_of_the_same_version() {
    let Some(output) = run("version") else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

#[test]
fn a_stub_is_no_driver() {
    let Some(line) = check(&stub().display().to_string()) else {
        return;
    };
    assert!(line.contains("CUDA_ERROR_STUB_LIBRARY"), "{line}");
    assert!(line.contains("remove the folder"), "{line}");
}

#[test]
fn without_a_driver_its_library_is_named_with_what_to_do() {
    let Some(line) = check("") else {
        return;
    };
    let has_driver = line.contains("built for CUDA") || line.contains("CUDA_ERROR");
    let is_named = line.contains("libcuda.so.1 is missing") && line.contains("580 or later");
    assert!(has_driver || is_named, "{line}");
}
