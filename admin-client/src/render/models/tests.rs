//! Tests of `models.rs`.

use super::*;
use crate::render::quantity::tests::noon;
use serde_json::{Value, json};

fn view(value: Value) -> ModelView {
    serde_json::from_value(value).expect("a model view")
}

fn hot() -> ModelView {
    view(json!({
        "model": "org/hot", "aliases": ["hot"], "engine": "command", "source": "config/models/hot.yaml",
        "state": "ready", "priority": 3, "priority_from": "override", "always_hot": true, "keep_hot_ms": 600_000,
        "override": {"priority": 3, "expires_at": "2026-11-21T14:00:00Z"}, "wished_replicas": 2,
        "replicas": [{"replica": "r3", "state": "ready", "stage": null, "percent": null,
            "devices": [{"device": "gpu0", "bytes": 10u64 << 30}], "in_flight": 0,
            "ready_at": "2026-11-21T11:00:00Z", "expires_at": null, "measured_bytes": 9u64 << 30, "pid": 123, "reason": "always-hot"},
           {"replica": "r4", "state": "launching", "stage": "loading", "percent": 40,
            "devices": [{"device": "gpu1", "bytes": 10u64 << 30}], "in_flight": 0, "reason": "asked by ann"}],
        "waiting": 2, "needs": {"devices": 1, "bytes_per_device": 10u64 << 30, "source": "measured"},
        "failures": 0, "last_failure": null, "cooling_until_at": null, "load_ms_expected": 1200,
        "requests_total": 7, "last_used_at": "2026-11-21T11:58:30Z"}))
}

#[test]
fn the_planned_memory_is_shown_with_the_error_of_the_estimate() {
    let view: ModelView = serde_json::from_value(json!({"model": "m", "state": "cold",
        "estimated_bytes_per_device": 10u64 << 30,
        "learned": [{"kind": "H100", "bytes_per_device": 12u64 << 30}, {"kind": "host", "bytes_per_device": 10u64 << 30}]}))
    .expect("a model");
    let text = model(&view, noon(), Style::PLAIN);
    let shown = "12.0 GiB on H100, +20 % of the estimated 10.0 GiB; 10.0 GiB on host, as estimated";
    let line = text
        .lines()
        .find(|line| line.starts_with("  planned with "));
    assert!(line.is_some_and(|line| line.ends_with(shown)), "{text}");
    assert!(!text.contains("measured"), "{text}");
}

#[test]
fn a_quarantined_model_shows_how_to_load_it_again() {
    let quarantined = view(
        json!({"model": "m", "state": "quarantined", "failures": 5, "last_failure": "exit 1",
        "cooling_until_at": "2026-11-21T12:00:20Z"}),
    );
    let text = model(&quarantined, noon(), Style::PLAIN);
    assert!(!text.contains("cools down"), "{text}");
    let next = "until `admin-client load m`, or until its file changes\n";
    assert!(
        text.contains("not tried again ") && text.contains(next),
        "{text}"
    );
}

#[test]
fn the_table_shows_state_priority_memory_and_time_left() {
    let cold = view(
        json!({"model": "cold", "state": "cold", "priority": 0, "needs": {"devices": 2, "bytes_per_device": 1u64 << 30}}),
    );
    let idle = view(
        json!({"model": "idle", "state": "ready", "priority": 1, "replicas": [
        {"replica": "r1", "state": "ready", "devices": [{"device": "gpu0", "bytes": 512u64 << 20}], "expires_at": "2026-11-21T12:08:00Z"}]}),
    );
    let text = models(&[hot(), cold, idle], noon(), Style::PLAIN);
    assert_eq!(
        text,
        "MODEL    STATE  PRIORITY      REPLICAS  MEMORY     WAITING  LAST USED       KEEP-HOT LEFT\n\
             org/hot  ready  3 always-hot  1/2       20.0 GiB   2        1 min 30 s ago  stays\n\
             cold     cold   0             -         (2.0 GiB)  -        -               -\n\
             idle     ready  1             1         512.0 MiB  -        -               8 min\n"
    );
}

#[test]
fn one_model_is_shown_with_its_override_and_replicas() {
    let text = model(&hot(), noon(), Style::PLAIN);
    assert!(text.starts_with("org/hot  ready\n"), "{text}");
    assert!(
        text.contains("priority                 3 always-hot (from override)\n"),
        "{text}"
    );
    assert!(
        text.contains("priority 3, leased for another 2 h\n"),
        "{text}"
    );
    assert!(
        text.contains("r4       launching (loading 40 %)  gpu1 10.0 GiB"),
        "{text}"
    );
    assert!(!text.contains("last failure"), "{text}");
}

#[test]
fn a_leased_model_shows_the_end_of_its_lease() {
    let leased = view(
        json!({"model": "m", "state": "ready", "override": {"expires_at": "2026-11-21T14:00:00Z"},
        "replicas": [{"replica": "r1", "state": "ready", "expires_at": null, "leased_until_at": "2026-11-21T14:00:00Z"}]}),
    );
    let text = model(&leased, noon(), Style::PLAIN);
    let overridden = text.lines().find(|line| line.starts_with("  set by"));
    let overridden = overridden.unwrap_or_default();
    assert!(overridden.ends_with("  leased for another 2 h"), "{text}");
    let replica = text.lines().find(|line| line.starts_with("r1 "));
    assert!(
        replica.is_some_and(|line| line.contains("  leased 2 h")),
        "{text}"
    );
    let table = models(&[leased], noon(), Style::PLAIN);
    assert!(table.ends_with("  leased 2 h\n"), "{table}");
}

#[test]
fn a_failed_model_shows_the_engines_last_output() {
    let text = model(
        &view(
            json!({"model": "m", "state": "cooling", "failures": 2, "last_failure": "exit 1\nno such file",
            "cooling_until_at": "2026-11-21T12:00:20Z"}),
        ),
        noon(),
        Style::PLAIN,
    );
    assert!(
        text.contains("last failure       exit 1\n                     no such file\n"),
        "{text}"
    );
    assert!(text.contains("cools down for     20.0 s\n"), "{text}");
}

#[test]
fn a_broken_file_is_shown_below_the_table_and_with_its_model() {
    let error = "config/models/m.yaml: line 3: engine_config.tpye: unknown key";
    let broken = view(json!({"model": "m", "state": "broken", "file_error": error}));
    let kept = view(json!({"model": "k", "state": "ready", "file_error": error}));
    let text = models(&[broken, kept], noon(), Style::PLAIN);
    assert!(text.contains(&format!("broken: m: {error}\n")), "{text}");
    assert!(
        text.contains("broken: k (its last good version is served)"),
        "{text}"
    );
    let broken = view(json!({"model": "m", "state": "broken", "file_error": error}));
    let text = model(&broken, noon(), Style::PLAIN);
    assert!(
        text.contains("problem") && text.contains("line 3"),
        "{text}"
    );
    assert!(text.contains("admin-client reload"), "{text}");
    assert!(!text.contains("requests waiting"), "{text}");
}

#[test]
fn an_empty_catalogue_gives_advice() {
    assert!(models(&[], noon(), Style::PLAIN).contains("register FILE"));
}
