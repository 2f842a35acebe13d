//! The commit that a release is built from, for `model-pool version`: `MODEL_POOL_COMMIT`, or the clone's HEAD. Test builds record
//! none, so a commit does not trigger a rebuild.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MODEL_POOL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let named = std::env::var("MODEL_POOL_COMMIT").ok();
    let commit = match named {
        Some(commit) => Some(commit),
        None if is_release => {
            // HEAD names a branch, and the log changes with every commit. Missing files are left out: they would count as changed
            // every time.
            let files = [".git/HEAD", ".git/logs/HEAD"];
            for file in files.iter().filter(|file| Path::new(file).is_file()) {
                println!("cargo::rerun-if-changed={file}");
            }
            of_clone()
        }
        None => None,
    };
    let commit = commit.unwrap_or_default();
    let commit = commit.get(..12).unwrap_or(&commit);
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_commit {
        println!("cargo::rustc-env=MODEL_POOL_BUILT_FROM={commit}");
    }
}

/// `None` in a source archive, and without git.
fn of_clone() -> Option<String> {
    // An archive may have been unpacked inside another repository.
    if !Path::new(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    Some(commit.trim().to_owned())
}
