//! Finds the stub engine, and writes the files of its models. It is built on demand, because `cargo test` of one package
//! builds no programs of other workspace members; `cargo test --workspace` has built it already.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The path of the `stub-engine` program, no older than its sources in `tests/support/stub-engine`.
pub fn stub_engine() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(find_or_build).clone()
}

/// The file of a model that runs the stub with these flags. `pool` contains the keys of its `pool_config`.
pub fn model(name: &str, flags: &[&str], pool: &str) -> (String, String) {
    let program = stub_engine().display().to_string();
    let mut words = vec![program.as_str(), "--port", "{{ port }}"];
    words.extend(flags);
    command_model(name, &words, pool)
}

/// The file of a model whose engine has another command.
pub fn command_model(name: &str, words: &[&str], pool: &str) -> (String, String) {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{}]\npool_config: {{{pool}}}\n",
        words.join(", ")
    );
    (format!("{name}.yaml"), file)
}

/// Tests are in `<target>/<profile>/deps`, programs in `<target>/<profile>`.
fn find_or_build() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let profile_dir = own.ancestors().nth(2).expect("a directory above deps");
    let target_dir = profile_dir.parent().expect("the target directory");
    let is_release = profile_dir.ends_with("release");
    let program = target_dir.join(if is_release { "release" } else { "debug" });
    let program = program.join("stub-engine");
    let support = crate::root().join("tests/support");
    let sources = [support.join("stub-engine/src"), support.join("fake-nvml")];
    let newest = sources.iter().map(|folder| newest_below(folder)).max();
    let is_fresh = changed(&program) >= newest;
    if !is_fresh {
        build(target_dir, is_release);
        // Cargo does not rebuild a program whose sources were touched without changes.
        assert!(program.exists(), "{} was not built", program.display());
    }
    program
}

/// Builds with the features of the main program to share its dependencies.
fn build(target_dir: &Path, is_release: bool) {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--bin", "stub-engine"])
        .args(["--package", "model-pool", "--package", "stub-engine"])
        .args(is_release.then_some("--release"))
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(crate::root())
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "cannot build the stub engine: run `cargo build -p stub-engine`"
    );
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

fn newest_below(directory: &Path) -> SystemTime {
    let entries = std::fs::read_dir(directory).expect("the sources of the stub engine");
    let times = entries.flatten().map(|entry| match entry.path() {
        path if path.is_dir() => newest_below(&path),
        path => changed(&path).unwrap_or(SystemTime::UNIX_EPOCH),
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}
