//! Engines that become ready too early, too late, or never.

use super::scene::Scene;
use support::service::wait_for;

#[test]
fn a_load_of_ten_minutes_is_ended_at_its_deadline_with_its_last_stage() {
    let scene = Scene::with(&["--ready-after-ms", "600000"], &[("load_deadline", "3s")]);
    let words = [
        "did not become ready within 3.0 s (L3)",
        "never ready",
        "load_deadline",
    ];
    scene.ask().is(503, "load_failed", &words);
    scene.told("load_failed", "never ready");
    scene.counted("never_ready");
    let metrics = scene.metrics();
    assert!(
        metrics.contains("model_pool_load_path_stuck 0"),
        "{metrics}"
    );
    scene.end();
}

#[test]
fn accepting_connections_without_responding_is_not_readiness() {
    let scene = Scene::with(&["--raw", "mute"], &[("load_deadline", "800ms")]);
    scene.ask().is(503, "load_failed", &["timed out", "(L3)"]);
    wait_for("the engine's end", || scene.bad_processes().is_empty());
    scene.end();
}

#[test]
fn an_engine_that_listens_late_is_awaited() {
    let scene = Scene::new(&["--listen-after-ms", "900"]);
    assert_eq!(scene.ask().status, 200);
    scene.end();
}

#[test]
fn a_port_taken_by_another_program_is_retried_immediately_with_another_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("taken").display().to_string();
    let scene = Scene::new(&["--squat", &file, "--squat-ms", "3000"]);
    assert_eq!(scene.ask().status, 200);
    scene.told("load_failed", "port taken");
    scene.told("load_failed", "another port is tried");
    assert_eq!(scene.history("load_failed").len(), 1);
    scene.end();
}
