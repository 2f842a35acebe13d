//! Every screen with contents that a hostile name or an engine could send: no line is wider than the
//! terminal, nothing controls it, and without a terminal nothing is cut.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::render::quantity::Clock;
use crate::render::quantity::tests::noon;
use crate::render::{
    audit, bars, batches, cordon, events, groups, leaderboard, models, nodes, outcome, plan, queue,
    report, usage, what_if, why,
};
use crate::responses::{EventView, QueueView};
use crate::style::{Style, width};

/// Ends with a mark by which it is found.
fn contents() -> Vec<String> {
    vec![
        "x".repeat(5_000) + "END",
        "模型".repeat(2_000) + "END",
        "a\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\r\n\tb\u{202e}c\u{2028}END".to_owned(),
        format!("e{}END", "\u{301}".repeat(5_000)),
        "one two three ".repeat(300) + "END",
        "END".to_owned(),
    ]
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a response")
}

fn model(text: &str) -> Value {
    json!({
        "model": text, "aliases": [text], "engine": text, "source": text, "state": "ready", "priority": 3,
        "priority_from": text, "always_hot": true, "keep_hot_ms": 600_000, "waiting": 2,
        "override": {"priority": 3, "expires_at": "2026-11-21T14:00:00Z"}, "wished_replicas": 2,
        "needs": {"devices": 2, "bytes_per_device": 1u64 << 30, "source": text},
        "last_used_at": "2026-11-21T11:58:30Z", "last_failure": text, "failures": 3, "warnings": [text],
        "replicas": [{"replica": "r12", "state": "launching", "stage": text, "percent": 40,
            "devices": [{"device": text, "bytes": 10u64 << 30}], "ready_at": "2026-11-21T11:00:00Z",
            "measured_bytes": 9u64 << 30, "pid": 123_456, "reason": text}]})
}

fn planned(text: &str) -> Value {
    json!({
        "model": text, "priority": 1, "feasible": true, "reason": text,
        "needs": {"devices": 1, "bytes_per_device": 1u64 << 30, "source": text},
        "placement": [{"device": text, "bytes": 1}], "waits_for": [text], "expected_seconds": 3.0,
        "victims": [{"replica": "r1", "model": text, "priority": 0, "bytes": 1, "reason": text}],
        "cost": {"highest_victim_priority": 0, "busy_victims": 1, "evicted_bytes": 1},
        "candidates": [{"place": text, "verdict": text}, {"place": "gpu0", "verdict": "free"}]})
}

/// All screens, by their names.
fn screens(text: &str, clock: Clock, style: Style) -> Vec<(&'static str, String)> {
    let device = json!({
        "device": text, "name": text, "node": text, "total_bytes": 100u64 << 30, "used_bytes": 61u64 << 30,
        "headroom_bytes": 1u64 << 30, "foreign_bytes": 1u64 << 30, "temperature_celsius": 60,
        "owners": [{"replica": "r1", "model": text, "bytes": 40u64 << 30, "state": text}],
        "cordon": {"reason": text}, "stale": text});
    let devices = read(json!({"devices": [device]}));
    let groups_list = read(
        json!({"month": text, "month_ends_at": text, "groups": [{"group": text, "path": text, "class_max": text,
        "quota": {"tokens": u64::MAX, "at_end": text, "used_ratio": 1e300}}]}),
    );
    let group_set = read(json!({"group": text, "warnings": [text]}));
    let used = json!({"period": text, "gpu_hours": 1e300, "cost": 1e300, "cost_max": 1e300});
    let batch = json!({"id": text, "holder": text, "models": [{"model": text}, {"model": text}], "status": text,
        "request_counts": {"total": u64::MAX, "completed": u64::MAX, "failed": u64::MAX}, "rank": i64::MIN,
        "expires_at": u64::MAX, "model_pool": {"expected_seconds": u64::MAX, "will_hold": false}});
    let one_batch = read(batch.clone());
    let batch_list = read(json!({"batches": [batch], "next_after": text}));
    let nodes_list = read(json!({
        "nodes": [{"node": text, "state": text, "since": text, "reason": text, "devices": [text],
            "replicas": [text], "ends_at": text}],
        "requested": [{"shape": text, "model": text, "set": 1, "since": text, "reason": text, "starts_at": text}],
        "shapes": [{"shape": text, "gpus": 8, "unavailable": text, "retry_at": text}], "spent": [used],
        "tokens": [{"id": text, "prefix": text, "state": "valid", "expires_at": text}]}));
    let drained = read(json!({"node": text, "left": [text], "draining": [text]}));
    let reported = read(
        json!({"from": text, "to": text, "nodes": {text: 1}, "node_use": [used],
        "models": [{"model": text, "requests": 1, "evictions": {text: 1}, "refusals": {text: 1}}],
        "groups": [{"group": text, "requests": 1, "refusals": {text: 1}}]}),
    );
    let used_time = read(json!({"month": text, "time_zone": text,
        "rows": [{"model": text, "group": text, "key": text, "name": text, "cost": 1e300}],
        "devices": [{"device": text, "wall_seconds": 1e300, "energy_joules": 1e300}]}));
    let votes = read(json!({"models": [{"rank": 1, "model": text, "voted_at": text}]}));
    let decision = read(
        json!({"event": 7, "at": text, "model": text, "what": text, "reason": text,
        "asked_by": text, "group": text, "words": [text], "memory": [{"device": text}],
        "candidates": [{"replica": text, "model": text, "device": text, "words": text}]}),
    );
    let assumed = read(json!({
        "leaving": [{"replica": text, "model": text, "reason": text, "in_flight": 2,
            "devices": [{"device": text, "bytes": 1}]}],
        "loads": [{"model": text, "reason": text}], "next": [planned(text)]}));
    let queued: QueueView = read(json!({
        "waiting": [{"ticket": "t7", "model": text, "key": text, "position": 1, "waited_ms": 1500, "stage": text}],
        "orders": [{"order": "o2", "what": "load", "model": text, "since_ms": 61_000}]}));
    let event: EventView = read(json!({
        "id": 7, "at": "2026-11-21T11:59:00Z", "kind": "evict", "model": text, "replica": "r3", "order": "o5",
        "reason": text, "took_ms": 3200, "memory": [{"device": text, "before_bytes": 1, "after_bytes": 0}]}));
    let audited = read(json!({"entries": [{
        "at": "2026-11-21T11:59:00Z", "key": "k3", "name": text, "client": text, "method": "POST",
        "path": text, "what": {"model": text}, "status": 403}]}));
    let keys = read(json!({"keys": [{
        "id": "k1", "name": text, "role": "user", "prefix": text, "created_at": "2026-11-21T11:00:00Z",
        "models": [text], "limits": {"tokens_per_day": 7}}]}));
    let loaded = read(json!({
        "model": text, "status": "partial", "wanted_replicas": 50, "shortfall": text, "fits_when_empty": 2,
        "ready_replicas": [{"replica": "r3", "devices": [{"device": text, "bytes": 1}]}],
        "evicted": [{"replica": "r1", "model": text, "bytes": 2, "reason": text}], "took_ms": 2100}));
    let cleaned =
        read(json!({"replicas": [{"replica": "r1", "model": text, "priority": 0, "bytes": 5}]}));
    let emptied = read(json!({"unloaded": [text, text]}));
    let unloaded = read(json!({"model": text, "unloaded": [text, text], "took_ms": 40}));
    let reloaded = read(json!({"added": [text], "changed": [text], "warnings": [text]}));
    let cordoned = read(json!({
        "device": text, "cordon": {"reason": text}, "left": [text], "cut_at": "2026-11-21T12:10:00Z",
        "draining": [{"replica": "r3", "model": text, "state": "draining", "bytes": 1}]}));
    let refused = json!({"feasible": false, "model": text, "reason": text, "waits_for": [text],
        "candidates": [{"place": text, "verdict": text}]});
    vec![
        ("models", models::models(&[read(model(text))], clock, style)),
        ("show", models::model(&read(model(text)), clock, style)),
        ("devices", bars::devices(&devices, clock, style)),
        ("devices as numbers", bars::numbers(&devices, clock, style)),
        ("queue", queue::queue(&queued, style)),
        ("groups", groups::groups(&groups_list, clock, style)),
        ("group set", groups::changed(&group_set, "set", style)),
        ("batches", batches::batches(&batch_list, clock, style)),
        ("batch", batches::batch(&one_batch, clock, style)),
        ("nodes", nodes::nodes(&nodes_list, clock, style)),
        ("drain", nodes::drained(&drained, style)),
        ("report", report::report(&reported, style)),
        ("usage", usage::usage(&used_time, style)),
        (
            "leaderboard",
            leaderboard::leaderboard(&votes, clock, style),
        ),
        ("why", why::why(&decision, clock, style)),
        ("what if", what_if::what_if(&assumed, text, style)),
        ("events", events::event(&event, clock, style) + "\n"),
        ("audit", audit::audit(&audited, clock, style)),
        ("keys", outcome::keys(&keys, clock, style)),
        ("load", outcome::load(&loaded, style)),
        ("unload", outcome::unload(&unloaded, style)),
        ("reset", outcome::reset(&unloaded, style)),
        ("cleanup", outcome::cleanup(&emptied, clock, style)),
        (
            "cleanup preview",
            outcome::cleanup_preview(&cleaned, clock, style),
        ),
        ("reload", outcome::reload(&reloaded, style)),
        ("cordon", cordon::cordoned(&cordoned, clock, style)),
        ("plan", plan::plan(&read(planned(text)), style)),
        ("refused plan", plan::plan(&read(refused), style)),
    ]
}

#[test]
fn no_line_is_wider_than_the_terminal_for_any_content() {
    for text in contents() {
        for columns in [40, 80, 120] {
            for (name, screen) in screens(&text, noon(), Style::terminal(columns)) {
                let start: String = text.chars().take(12).collect();
                for line in screen.lines() {
                    let wide = width(line);
                    assert!(
                        wide <= columns,
                        "{name} of {start:?} at {columns}: {wide}: {line}"
                    );
                }
                assert!(
                    screen.lines().count() < 1_000,
                    "{name} of {start:?}: too many lines"
                );
            }
        }
    }
}

#[test]
fn nothing_in_a_name_controls_the_terminal() {
    for text in contents() {
        for style in [Style::terminal(80), Style::PLAIN] {
            for (name, screen) in screens(&text, noon(), style) {
                let is_plain = |c: char| c == '\n' || (c == '\t' && !style.terminal);
                let harmful = |c: char| {
                    (c.is_control() && !is_plain(c)) || matches!(c, '\u{2028}'..='\u{202e}')
                };
                assert!(!screen.contains(harmful), "{name}: {screen:?}");
            }
        }
    }
}

#[test]
fn without_a_terminal_and_with_wide_nothing_is_cut() {
    let wide = Style {
        wide: true,
        ..Style::terminal(40)
    };
    for text in contents() {
        for style in [Style::PLAIN, wide] {
            for (name, screen) in screens(&text, noon(), style) {
                assert!(screen.contains("END"), "{name}");
                let has_prefixes = ["keys", "nodes"].contains(&name);
                assert!(!screen.contains('…') || has_prefixes, "{name} is cut");
            }
        }
    }
}

#[test]
fn usual_rows_take_one_line_each_at_80_columns() {
    let hot = json!({
        "model": "meta-llama/Llama-3.1-70B-Instruct", "state": "quarantined", "priority": 2, "always_hot": true,
        "waiting": 12, "needs": {"devices": 4, "bytes_per_device": 40u64 << 30},
        "last_used_at": "2026-11-21T11:58:30Z"});
    let text = models::models(&[read(hot)], noon(), Style::terminal(80));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(
        text.contains("meta-llama") && text.contains("quarantined"),
        "{text}"
    );
    assert!(
        text.contains("KEEP-HOT LEFT") && text.contains("2 always-hot"),
        "{text}"
    );
}
