//! A controller without free file descriptors: engines fail to start with the reason in the error, without panics or hangs. The
//! test runs itself in a process with a low limit.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use crate::replica::{RunningReplica, launch};
use crate::shell;

const ROLE: &str = "TEST_STARVED";
/// More descriptors than a start needs.
const SPARE_MAX: usize = 16;

/// A helper, not a test: the other test runs it under `ulimit -n`.
#[tokio::test]
async fn controller_without_descriptors_entry_point() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut refused = 0;
    let mut started = 0;
    for spare in 0..=SPARE_MAX {
        let home = tempfile::tempdir().unwrap();
        let program = shell("exec sleep 600");
        let mut engine = RunningReplica::prepare(launch(program, home.path()), home);
        let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        hoard.truncate(hoard.len().saturating_sub(spare));
        engine.go();
        if engine.has_started().await {
            engine.stop(Duration::ZERO).await;
            started += 1;
        } else {
            let exit = engine.exited().await;
            assert_eq!(exit.status, "not started");
            assert!(
                exit.last_output.contains("Too many open files"),
                "with {spare} spare: {}",
                exit.last_output
            );
            refused += 1;
        }
        drop(hoard);
    }
    assert!(refused > 0 && started > 0, "{refused} {started}");
}

#[tokio::test]
async fn without_file_descriptors_an_engine_is_not_started_and_the_reason_is_reported() {
    let script = r#"ulimit -n 96; exec "$0" --exact descriptor_limit::controller_without_descriptors_entry_point"#;
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, "yes")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}
