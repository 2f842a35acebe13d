//! Prometheus' own checks of the alerts and of the exposition: `promtool`, in Debian's package `prometheus`. Without it these tests
//! report that they were skipped.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use support::external_programs::{is_for_later, skipped};
use support::service::Pool;

/// The program, if it is installed.
fn promtool() -> Option<Command> {
    let program = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let there = Command::new(&program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if is_for_later() || !there.is_ok_and(|status| status.success()) {
        skipped(
            "promtool",
            "promtool is missing. Install Debian's package prometheus, or set PROMTOOL, and run `cargo test --test outside promtool::`",
        );
        return None;
    }
    Some(Command::new(program))
}

fn succeeds(mut command: Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn the_alert_rules_are_valid_and_fire_when_expected() {
    let Some(mut check) = promtool() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
    check
        .args(["check", "rules", "rules.yml"])
        .current_dir(&folder);
    succeeds(check);
    let mut test = promtool().expect("it was there");
    test.args(["test", "rules", "rules.test.yml"])
        .current_dir(&folder);
    succeeds(test);
}

#[test]
fn the_metrics_pass_promtools_check() {
    let Some(mut check) = promtool() else { return };
    let pool = Pool::demo();
    let (status, text, _) = pool.request("GET", "/metrics", "", None);
    assert_eq!(status, 200);
    let mut child = check
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Status 3 is advice on names.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    assert!(!said.contains("error while linting"), "{said}");
}
