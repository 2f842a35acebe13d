//! Engines that do not stop on request, or leave processes behind.

use super::scene::Scene;
use support::service::wait_for;

#[test]
fn an_engine_that_ignores_sigterm_is_killed_after_its_grace_period() {
    let scene = Scene::new(&["--ignore-term"]);
    assert_eq!(scene.ask().status, 200);
    scene.unload();
    wait_for("the engine's end", || scene.bad_processes().is_empty());
    scene.end();
}

#[test]
fn descendants_in_separate_sessions_are_killed_with_the_engine() {
    let scene = Scene::new(&["--grandchildren"]);
    assert_eq!(scene.ask().status, 200);
    assert_eq!(scene.bad_processes().len(), 4, "one and three descendants");
    scene.unload();
    wait_for("the end of all", || scene.bad_processes().is_empty());
    scene.end();
}

#[test]
fn descendants_of_a_crashed_engine_are_killed_too() {
    let scene = Scene::new(&["--grandchildren", "--crash-mid-stream", "2"]);
    scene.ask().is(503, "engine_crashed", &["signal 6"]);
    wait_for("the end of all", || scene.bad_processes().is_empty());
    scene.end();
}

#[test]
fn an_engine_that_closes_its_output_serves_and_stops_like_any_other() {
    let scene = Scene::new(&["--close-output"]);
    assert_eq!(scene.ask().status, 200);
    scene.unload();
    wait_for("the engine's end", || scene.bad_processes().is_empty());
    scene.end();
}

#[test]
fn a_flood_of_output_is_bounded_and_does_not_block_the_engine() {
    let mib = std::env::var("HOSTILE_FLOOD_MIB").unwrap_or("64".to_owned());
    let scene = Scene::new(&["--print-mib", &mib]);
    assert_eq!(scene.ask().status, 200);
    wait_for("all of it to be read", || {
        let path = "/llm/admin/logs?model=bad&tail=1";
        let (_, log) = scene.admin("GET", path, &serde_json::Value::Null);
        assert_eq!(scene.ask().status, 200);
        log.to_string().contains("printed it all")
    });
    let files = std::fs::read_dir(scene.log_folder())
        .expect("logs")
        .flatten();
    let of_bad = files.filter(|file| file.file_name().to_string_lossy().starts_with("bad-"));
    let bytes: u64 = of_bad
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum();
    assert!(bytes <= 33 << 20, "{bytes} bytes of log");
    scene.end();
}
