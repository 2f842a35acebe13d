//! `model-pool check` with the model files of every release of RayLLM, Aviary and Anyscale's templates in the fixtures: none is
//! refused, and none is called impossible before its weights are downloaded.

use std::path::{Path, PathBuf};
use std::process::Command;

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of fixtures") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, files)
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path)
        }
    }
}

#[test]
fn every_model_file_of_the_old_systems_passes_the_check() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files = Vec::new();
    for origin in ["rayllm", "anyscale"] {
        files_below(&fixtures.join(origin), &mut files);
    }
    files.sort();
    let folder = tempfile::tempdir().expect("a folder");
    let device = |nth: u32, gpu: &str| format!("{{name: gpu{nth}, memory: 80GiB, type: {gpu}}}");
    let devices = (0..4).map(|nth| device(nth, "NVIDIA A100-SXM4-40GB"));
    let devices: Vec<String> = devices
        .chain((4..8).map(|nth| device(nth, "NVIDIA A10G")))
        .collect();
    let config = folder.path().join("config.yaml");
    let text = format!(
        "inventory: {{provider: fixed, devices: [{}]}}\nstate: {{dir: {:?}}}\n",
        devices.join(", "),
        folder.path().join("data"),
    );
    std::fs::write(&config, text).expect("written");
    let mut refused = Vec::new();
    for file in &files {
        let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(["check", "--config"])
            .arg(&config)
            .arg(file)
            .output()
            .expect("it runs");
        let shown = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let warnings = shown.matches("warning:").count() + errors.matches("warning:").count();
        let name = file.strip_prefix(&fixtures).expect("a fixture").display();
        println!("{name}: {}, {warnings} warnings", output.status);
        if !output.status.success() {
            refused.push(format!("{name}:\n{shown}{errors}"));
        }
    }
    assert!(files.len() >= 18, "{files:?}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
