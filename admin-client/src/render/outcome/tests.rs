//! Tests of `outcome.rs`: what commands print about what they have changed.

use super::*;
use crate::render::quantity::tests::noon;
use serde_json::json;

#[test]
fn a_cleanup_shows_when_always_hot_models_return() {
    let off = "`admin-client load MODEL`, because evening.reopen is off";
    for (reopen_at, until) in [
        (json!("2026-11-22T06:00:00Z"), "Sun 06:00"),
        (json!("2026-11-27T11:59:00Z"), "Fri 11:59"),
        // `Sat` could be this day.
        (json!("2026-11-28T06:00:00Z"), "2026-11-28 06:00:00"),
        (Value::Null, off),
    ] {
        let response = json!({"unloaded": ["r3"], "reopen_at": reopen_at});
        let response: CleanupResponse = serde_json::from_value(response).expect("a response");
        let shown =
            format!("unloaded r3; always-hot models are loaded on request only until {until}\n");
        assert_eq!(cleanup(&response, noon(), Style::PLAIN), shown);
    }
}

#[test]
fn a_load_shows_its_devices_and_victims() {
    let response: LoadResponse = serde_json::from_value(json!({
        "model": "m", "status": "partial", "wanted_replicas": 2,
        "ready_replicas": [{"replica": "r3", "devices": [{"device": "gpu0", "bytes": 1u64 << 30}]}],
        "evicted": [{"replica": "r1", "model": "old", "priority": 0, "bytes": 2u64 << 30, "reason": "idle, same priority"}],
        "shortfall": "needs 1.0 GiB on 1 device", "fits_when_empty": 1, "order": "o5", "took_ms": 2100}))
    .expect("a response");
    assert_eq!(
        load(&response, Style::PLAIN),
        "m is partly ready: 1 of 2 replicas, after 2.1 s\n\
         \x20 r3  gpu0 1.0 GiB\n\
         \x20 evicted r1 of old (priority 0, 2.0 GiB): idle, same priority\n\
         \x20 missing 1 replica: needs 1.0 GiB on 1 device. The devices hold at most 1 replica if no other model is loaded\n"
    );
}

#[test]
fn a_load_that_was_only_started_names_the_command_to_watch_it() {
    let response: LoadResponse =
        serde_json::from_value(json!({"model": "m", "status": "started", "order": "o5"}))
            .expect("a response");
    assert_eq!(
        load(&response, Style::PLAIN),
        "m is loading (order o5)\n  `admin-client show m` shows its progress\n"
    );
}

#[test]
fn an_unload_names_the_replicas() {
    let response: UnloadResponse =
        serde_json::from_value(json!({"model": "m", "unloaded": ["r1", "r2"], "took_ms": 40}))
            .expect("a response");
    assert_eq!(
        unload(&response, Style::PLAIN),
        "m: unloaded r1, r2, after 40 ms\n"
    );
}

#[test]
fn a_reload_lists_the_changes_or_reports_none() {
    assert_eq!(
        reload(&ReloadResponse::default(), Style::PLAIN),
        "no changes\n"
    );
    let response: ReloadResponse =
        serde_json::from_value(json!({"added": ["a"], "removed": ["b", "c"], "warnings": ["w"]}))
            .expect("a response");
    assert_eq!(
        reload(&response, Style::PLAIN),
        "added: a\nremoved: b, c\nwarning: w\n"
    );
    let response: ReloadResponse = serde_json::from_value(json!({
        "applied": [
            {"key": "pool.keep_hot", "from": "10m", "to": "30m"},
            {"key": "pool.heartbeat", "from": "5s", "to": "9s", "note": "new engines"}
        ],
        "needs_restart": [{"key": "inventory.devices", "from": [], "to": [{"name": "a"}]}],
        "unchanged": 77
    }))
    .expect("a response");
    let text = reload(&response, Style::PLAIN);
    for line in [
        "pool.keep_hot: 10m -> 30m\n",
        "pool.heartbeat: 5s -> 9s; new engines\n",
        "inventory.devices: [] -> [{\"name\":\"a\"}]: restart the service to apply it",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn keys_are_listed_by_prefix_and_a_new_key_is_printed_on_its_own_last_line() {
    let list: KeyList = serde_json::from_value(json!({"keys": [{"id": "k1", "name": "ann", "role": "user",
        "prefix": "mp-ab", "created_at": "2026-11-21T11:00:00Z", "last_used_at": null, "expires_at": null}]}))
    .expect("keys");
    let text = keys(&list, noon(), Style::PLAIN);
    assert!(
        text.contains(
            "k1  ann   user  mp-ab…  2026-11-21 11:00:00  never      never    everything\n"
        ),
        "{text}"
    );
    let list: KeyList = serde_json::from_value(
        json!({"keys": [{"id": "k2", "group": "lab", "models": ["tiny-*"]}]}),
    )
    .expect("keys");
    let text = keys(&list, noon(), Style::PLAIN);
    assert!(text.contains("group lab, tiny-*"), "{text}");
    let new: NewKey =
        serde_json::from_value(json!({"id": 4, "name": "ann", "role": "user", "key": "mp-secret"}))
            .expect("a key");
    assert_eq!(new_key(&new).lines().last(), Some("mp-secret"));
}
