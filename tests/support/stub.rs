//! Where the stub engine is. It is built on demand, because `cargo test` of one package builds no
//! programs of other workspace members.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The path of the `stub-engine` program, built from `tests/support/stub-engine`.
pub fn stub_engine() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(build).clone()
}

/// Tests lie in `<target>/<profile>/deps`, programs in `<target>/<profile>`.
fn build() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let profile_dir = own.ancestors().nth(2).expect("a directory above deps");
    let target_dir = profile_dir.parent().expect("the target directory");
    let is_release = profile_dir.ends_with("release");
    let program = target_dir.join(if is_release { "release" } else { "debug" });
    let program = program.join("stub-engine");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--offline", "--package", "stub-engine"])
        .args(is_release.then_some("--release"))
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = cargo.status().is_ok_and(|status| status.success());
    assert!(
        built || program.exists(),
        "cannot build the stub engine: run `cargo build -p stub-engine`"
    );
    program
}
