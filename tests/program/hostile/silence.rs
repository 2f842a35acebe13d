//! Engines with an open port and good health that send no response or a wrong one.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::scene::{Scene, is_cut};
use support::service::wait_for;

fn signal(pid: u32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).expect("sent");
}

#[test]
fn an_engine_stuck_before_its_first_token_is_found_and_waiting_requests_fail_with_the_reason() {
    let scene = Scene::new(&["--stuck-after", "0"]);
    let stream = scene.stream();
    scene
        .ask()
        .is(503, "engine_crashed", &["no token for", "requests wait"]);
    is_cut(&stream.whole(), "engine_crashed", &["no token for"]);
    scene.told("crash", "unresponsive: no token for");
    scene.end();
}

#[test]
fn a_generation_stuck_mid_stream_is_found_by_the_age_of_its_last_token() {
    let scene = Scene::new(&["--stuck-after", "3"]);
    scene.load();
    let stream = scene.stream();
    let text = stream.whole();
    assert!(text.contains("hello") || text.contains("Hello"), "{text}");
    is_cut(
        &text,
        "engine_crashed",
        &["no token for", "while 1 request waits"],
    );
    scene.told("crash", "no token for");
    scene.end();
}

#[test]
fn a_request_that_is_never_answered_fails_with_the_reason() {
    let scene = Scene::with(&["--never-answer"], &[("idle_probe", "off")]);
    scene.ask().is(503, "engine_crashed", &["no token for"]);
    scene.end();
}

#[test]
fn a_stuck_idle_engine_with_an_open_port_is_found_by_a_probe_request() {
    let scene = Scene::new(&["--never-answer"]);
    scene.load();
    scene.told(
        "crash",
        "after a probe for one token while idle, though its health route answers",
    );
    assert!(scene.bad_processes().is_empty());
    scene.end();
}

#[test]
fn a_trivial_request_neither_keeps_a_model_hot_nor_counts_in_metrics() {
    let scene = Scene::with(&[], &[("keep_hot", "1500ms")]);
    scene.load();
    scene.told("drain", "(L2)");
    wait_for("the engine's end", || scene.bad_processes().is_empty());
    let counted = scene.metrics();
    assert!(
        !counted.contains("requests_total{model=\"bad\""),
        "{counted}"
    );
    scene.end();
}

#[test]
fn a_frozen_idle_engine_is_killed_and_loaded_again_on_demand() {
    let scene = Scene::with(&[], &[("idle_probe", "off")]);
    scene.load();
    signal(scene.pid(), Signal::SIGSTOP);
    scene.told("crash", "answered no health probe for");
    wait_for("the engine's end", || scene.bad_processes().is_empty());
    // It had just been loaded, so users wait for the cool-down; administrators need not.
    scene
        .ask()
        .is(503, "cooling_down", &["answered no health probe"]);
    scene.load();
    assert_eq!(scene.ask().status, 200);
    scene.end();
}

#[test]
fn a_frozen_busy_engine_ends_its_streams_with_the_reason() {
    let scene = Scene::new(&["--tokens", "5000", "--token-ms", "20"]);
    scene.load();
    let stream = scene.stream();
    wait_for("tokens", || stream.text().matches("data: ").count() > 5);
    signal(scene.pid(), Signal::SIGSTOP);
    is_cut(
        &stream.whole(),
        "engine_crashed",
        &["token", "while 1 request waits"],
    );
    scene.end();
}

#[test]
fn a_busy_engine_with_a_hanging_health_route_is_kept_while_tokens_arrive() {
    // Its health route hangs on the second request.
    let flags = [
        "--health-answers",
        "1",
        "--tokens",
        "150",
        "--token-ms",
        "20",
    ];
    let scene = Scene::with(&flags, &[("idle_probe", "off")]);
    let text = scene.stream().whole();
    assert!(
        text.contains("data: [DONE]"),
        "three seconds of tokens: {text}"
    );
    scene.told("crash", "answered no health probe");
    scene.end();
}

#[test]
fn a_client_that_does_not_read_is_not_mistaken_for_a_silent_engine() {
    let scene = Scene::with(&["--tokens", "400000"], &[("idle_probe", "off")]);
    scene.load();
    let idle = scene.unread();
    // Far longer than the stall limit; the other clients are served during this time.
    std::thread::park_timeout(Duration::from_secs(4));
    assert_eq!(scene.history("crash"), Vec::<String>::new());
    drop(idle);
    scene.end();
}

#[test]
fn an_engine_that_always_returns_500_is_passed_on_and_then_replaced() {
    let scene = Scene::with(&["--status", "500"], &[("idle_probe", "1h")]);
    scene.load();
    for _ in 0..5 {
        let response = scene.ask();
        assert_eq!(
            (response.status, response.message.as_str()),
            (500, "it is always so")
        );
    }
    scene.told("crash", "answers every request with 500");
    scene.end();
}

#[test]
fn an_engine_that_closes_connections_without_a_response_is_found_after_five() {
    let scene = Scene::with(&["--raw", "hang-up"], &[("idle_probe", "1h")]);
    scene.load();
    for _ in 0..4 {
        scene
            .ask()
            .is(502, "engine_error", &["it closed the connection early"]);
    }
    // The fifth request may already see the end.
    assert!(scene.ask().status >= 500);
    scene.told("crash", "closes the connection on every request");
    scene.end();
}

#[test]
fn broken_chunks_end_the_stream_with_an_error_and_no_done() {
    let scene = Scene::with(&["--raw", "broken-chunks"], &[("idle_probe", "off")]);
    scene.load();
    let text = scene.stream().whole();
    assert!(
        text.contains("Hel"),
        "what came in order is passed on: {text}"
    );
    is_cut(&text, "engine_error", &["failed:"]);
    scene.ask().is(502, "engine_error", &["failed:"]);
    scene.end();
}

#[test]
fn an_endless_response_head_is_not_a_response() {
    let scene = Scene::with(&["--raw", "slow-head"], &[("idle_probe", "off")]);
    scene.load();
    scene.ask().is(503, "engine_crashed", &["no token for"]);
    scene.end();
}

#[test]
fn a_client_that_disconnects_at_the_end_of_its_response_counts_as_served() {
    let scene = Scene::with(&["--raw", "open-after-done"], &[("idle_probe", "off")]);
    scene.load();
    let stream = scene.stream();
    wait_for("the end of the answer", || stream.text().contains("[DONE]"));
    drop(stream);
    let line = "model_pool_requests_total{model=\"bad\",code=\"200\"} 1";
    wait_for(line, || scene.metrics().contains(line));
    scene.end();
}

#[test]
fn no_error_follows_a_complete_response_even_if_the_engine_writes_one() {
    let scene = Scene::with(&["--raw", "error-after-done"], &[("idle_probe", "off")]);
    scene.load();
    let text = scene.stream().whole();
    assert!(text.contains("[DONE]"), "{text}");
    assert!(!text.contains("error"), "{text}");
    let line = "model_pool_requests_total{model=\"bad\",code=\"200\"} 1";
    wait_for(line, || scene.metrics().contains(line));
    scene.end();
}

#[test]
fn a_stream_ends_soon_after_done_even_if_the_engine_keeps_its_body_open() {
    let flags = ["--raw", "open-after-done"];
    // Nothing else ends it.
    let pool = [
        ("idle_probe", "off"),
        ("stall_after", "10m"),
        ("first_token_after", "10m"),
    ];
    let scene = Scene::with(&flags, &pool);
    scene.load();
    let text = scene.stream().whole();
    assert!(text.contains("[DONE]"), "{text}");
    assert!(!text.contains("error"), "{text}");
    let line = "model_pool_requests_total{model=\"bad\",code=\"200\"} 1";
    wait_for(line, || scene.metrics().contains(line));
    assert_eq!(scene.ask().status, 200, "an answer in one piece");
    scene.end();
}
