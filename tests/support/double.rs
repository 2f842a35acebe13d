//! Finds the double of vLLM. It is built on demand, because `cargo test` of one package builds no programs of other
//! workspace members; `cargo test --workspace` has built it already.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The path of the `vllm-double` program, built from its current sources.
pub fn vllm_double() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(build).clone()
}

/// Builds with the features of the main program to share its dependencies. Cargo skips the build if nothing has changed.
fn build() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    // Tests are in `<target>/<profile>/deps`, programs in `<target>/<profile>`.
    let profile = own.ancestors().nth(2).expect("a directory above deps");
    let target = profile.parent().expect("the target directory");
    let is_release = profile.ends_with("release");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--bin", "vllm-double"])
        .args(["--package", "model-pool", "--package", "vllm-double"])
        .args(is_release.then_some("--release"))
        .arg("--target-dir")
        .arg(target)
        .current_dir(crate::root())
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "cannot build the double of vLLM: run `cargo build -p vllm-double`"
    );
    let folder = target.join(if is_release { "release" } else { "debug" });
    folder.join("vllm-double")
}
