//! Engines that exit unexpectedly, or take resources of others.

use serde_json::Value;

use super::scene::{HELD_GIB, Scene, is_cut};
use support::machine::GIB;
use support::service::wait_for;

#[test]
fn an_engine_that_crashes_mid_stream_ends_it_with_an_error_and_no_done() {
    let scene = Scene::new(&["--crash-mid-stream", "3"]);
    let text = scene.stream().whole();
    assert!(text.contains("Hello"), "what it had said: {text}");
    is_cut(&text, "engine_crashed", &["signal 6"]);
    scene.told("crash", "signal 6");
    scene.end();
}

#[test]
fn an_engine_that_exits_with_0_right_after_it_was_ready_has_crashed() {
    let scene = Scene::new(&["--exit-when-ready"]);
    // It may still send its response before it exits.
    let response = scene.ask();
    let fits = response.status == 200 || response.code == "engine_crashed";
    assert!(fits, "{response:?}");
    scene.told("crash", "exit status 0");
    scene.ask().is(503, "cooling_down", &["exit status 0"]);
    scene.end();
}

#[test]
fn an_engine_that_takes_twice_its_memory_is_counted_with_it_and_others_are_kept() {
    let twice = (2 * HELD_GIB * GIB).to_string();
    let flags = ["--grow-to", &twice, "--grow-after", "100"];
    let scene = Scene::new(&flags);
    assert_eq!(scene.ask().status, 200);
    let excess = || -> u64 {
        let (_, devices) = scene.admin("GET", "/llm/admin/devices", &Value::Null);
        let devices = devices["devices"].as_array().cloned().unwrap_or_default();
        let of = devices
            .iter()
            .filter_map(|device| device["excess_bytes"].as_u64());
        of.sum()
    };
    wait_for("the excess to be seen", || excess() == HELD_GIB * GIB);
    assert_eq!(scene.ask().status, 200);
    scene.end();
}

#[test]
fn a_leak_of_10_mb_per_request_is_measured_and_freed_with_the_engine() {
    let leak = (10 << 20).to_string();
    let scene = Scene::with(&["--leak-per-request", &leak], &[("idle_probe", "off")]);
    for _ in 0..20 {
        assert_eq!(scene.ask().status, 200);
    }
    let all =
        |machine: &support::machine::Machine| -> u64 { (0..8).map(|gpu| machine.used(gpu)).sum() };
    let of_three = 3 * HELD_GIB * GIB;
    // The other two may still be loading.
    let leaked = of_three + 20 * (10 << 20);
    wait_for("the leak to be seen", || all(scene.machine()) == leaked);
    scene.unload();
    wait_for("the memory", || {
        all(scene.machine()) == of_three - HELD_GIB * GIB
    });
    scene.end();
}
