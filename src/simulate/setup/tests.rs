//! Tests of `setup.rs`.

use super::*;
use serde_json::{Value, json};

fn configured(pool: &Value) -> Config {
    serde_json::from_value(json!({ "pool": pool })).expect("a valid section")
}

fn drawn(pool: &Value) -> ModelSpec {
    let model = models::drawn("model", &mut models::seeded(1));
    with_keys(model, &configured(pool))
}

#[test]
fn every_pool_key_reaches_generated_models_or_concerns_engines_only() {
    let models = [
        ("keep_hot", json!("7m")),
        ("min_resident", json!("9s")),
        ("max_turn", json!("9s")),
        ("queue_limit", json!(9)),
        ("queue_timeout", json!("9s")),
    ];
    for (key, value) in &models {
        assert_ne!(drawn(&json!({ *key: value })), drawn(&json!({})), "{key}");
    }
    let device = drawn(&json!({ "keep_hot": "until_needed", "keep_hot_scope": "device" }));
    assert_eq!(device.keep_hot, UNTIL_NEEDED);
    assert_eq!(device.keep_hot_scope, pool::KeepHotScope::Device);
    let limits = [
        ("idle_yields", json!("9m")),
        ("preempt_drain", json!("9s")),
        ("policy", json!("lru")),
        ("objective", json!("reload")),
        ("targets", json!({ "0": "9s" })),
    ];
    for (key, value) in &limits {
        let limits = configured(&json!({ *key: value })).limits();
        assert_ne!(limits, Config::default().limits(), "{key}");
    }
    let adaptive = json!({ "keep_hot": "adaptive", "keep_hot_least": "2m", "keep_hot_most": "2h" });
    let bounds = KeepHotBounds {
        least: Span::from_secs(120),
        most: Span::from_secs(7_200),
    };
    assert_eq!(drawn(&adaptive).adaptive_keep_hot, Some(bounds));
    // These keys watch over engines, decide what happens to them when the service ends, or concern the text of requests.
    let engines = [
        "heartbeat",
        "heartbeat_timeout",
        "heartbeat_misses",
        "stall_after",
        "first_token_after",
        "idle_probe",
        "on_restart",
        "adopt_within",
        "unknown_fields",
    ];
    let written = serde_json::to_value(Config::default()).expect("serialises");
    for key in written["pool"].as_object().expect("a section").keys() {
        let tried = models.iter().chain(&limits).any(|(known, _)| known == key);
        let known = tried || key.starts_with("keep_hot_") || engines.contains(&key.as_str());
        assert!(known, "say here what a replay does with pool.{key}");
    }
}

#[test]
fn a_key_is_set_like_through_its_environment_variable() {
    let (name, value) = variable("pool.keep_hot=30m").expect("well formed");
    assert_eq!(
        (name.as_str(), value.as_str()),
        ("MODEL_POOL__POOL__KEEP_HOT", "30m")
    );
    assert!(variable("keep_hot=30m").is_err() && variable("pool.keep_hot").is_err());
}

/// The waits in a replay of a history in which two of three models were loaded, four times within 20 s in total. No weight files are
/// found. All three are requested at the same time and have a device each.
fn waits_for_first_loads(loads_are_measured: bool) -> Vec<Span> {
    let reading = Reading {
        seed: 1,
        from: Span::ZERO,
        to: Span(u64::MAX),
        limit: u64::MAX,
        stretch: 1.0,
        crowd: MODELS_OF_CROWD,
    };
    let workload = Workload::open("zipf:requests=90,days=1,models=3", reading).expect("valid");
    let mut past = PoolHistory::default();
    for name in workload.models.iter().take(2) {
        let model = ModelPast {
            loads: 4,
            loading: Span::from_secs(20),
            ..ModelPast::default()
        };
        past.models.insert(name.clone(), model);
    }
    let mapping: Vec<Option<ModelId>> = (0..3).map(|nth| Some(ModelId(nth))).collect();
    let mut random = models::seeded(1);
    let mut specs: Vec<ModelSpec> = (0..3)
        .map(|nth| ModelSpec {
            loader: None,
            reload: Span::from_secs(5),
            ..models::drawn(&format!("m{nth}"), &mut random)
        })
        .collect();
    let mut measured = use_history(&past, &workload, &mapping, &mut specs, &mut Vec::new());
    assert_eq!(measured, BTreeSet::from([ModelId(0), ModelId(1)]));
    if !loads_are_measured {
        measured.clear();
    }
    share_disk(&mut specs, &measured);
    let devices = models::devices(3, pool::Bytes(100 << 30));
    let scenario = models::scenario(specs, devices);
    let request = |nth| sim::replay::Arrival {
        at: pool::Time(1_000),
        model: ModelId(nth),
        key: pool::KeyId(0),
        service: Span::from_secs(1),
    };
    let options = sim::replay::Options::default();
    let report = sim::replay::run(&scenario, (0..3).map(request), &options, &mut |_, _| {});
    let waits = report.by_model.values().map(|tally| tally.waits.longest);
    let mut waits: Vec<Span> = waits.collect();
    waits.sort();
    waits
}

#[test]
fn measured_models_load_concurrently_in_a_replay_and_others_share_a_disk() {
    let seconds = Span::from_secs;
    assert_eq!(waits_for_first_loads(true), [seconds(5); 3]);
    // Without measurements, each load waits for the loads before it.
    let waits = waits_for_first_loads(false);
    assert_eq!(waits, [seconds(5), seconds(10), seconds(15)]);
}
