//! Model documents: permitted keys, errors and warnings.
//! One file because every test changes one document and compares what is read.

use model_pool::catalog::{
    CatalogError, ComputeDevice, Entry, Listen, Recipe, Reference, Source, Warning,
};
use model_pool::config::{Config, KeepHot, Length, MaxTurn, MinResident, Provider};
use model_pool::pool::{Bytes, Span};
use serde_json::{Value, json};

use super::{assert_has, repository};

fn read_with(document: &Value, config: &Config) -> Result<(Entry, Vec<Warning>), CatalogError> {
    Entry::from_document(document, Source::Registered, config, &Reference::default())
}

pub fn read(document: &Value) -> Result<(Entry, Vec<Warning>), CatalogError> {
    read_with(document, &Config::default())
}

/// A valid document, with additional values set by JSON pointer.
pub fn document(base: Value, changes: &[(&str, Value)]) -> Value {
    let mut document = base;
    for (pointer, value) in changes {
        let (section, key) = pointer.rsplit_once('.').unwrap_or(("", pointer));
        let mut place = &mut document;
        for part in section.split('.').filter(|part| !part.is_empty()) {
            place = &mut place[part];
        }
        place[key] = value.clone();
    }
    document
}

pub fn candle(changes: &[(&str, Value)]) -> Value {
    let base = json!({"engine_config": {"model_id": "org/model", "type": "CandleEngine", "model_path": "/"}});
    document(base, changes)
}

pub fn command(changes: &[(&str, Value)]) -> Value {
    let base = json!({"engine_config": {
        "model_id": "org/model", "type": "CommandEngine",
        "command": ["serve", "--port", "{{ port }}"],
    }});
    document(base, changes)
}

pub fn refusal(document: &Value) -> String {
    read(document)
        .expect_err("the document is refused")
        .to_string()
}

fn warnings(document: &Value) -> String {
    let (_, warnings) = read(document).unwrap();
    warnings
        .iter()
        .map(Warning::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn every_field_of_a_full_document_is_read() {
    let text = std::fs::read_to_string(repository("tests/fixtures/catalog/full.json")).unwrap();
    let (entry, warnings) = read(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!((entry.name.as_str(), entry.priority.0), ("org/large", 7));
    assert_eq!(entry.aliases, ["large", "gpt-4"]);
    assert_eq!(
        (entry.devices_per_replica, entry.seats_per_replica),
        (4, 64)
    );
    assert_eq!(entry.memory, Some(Bytes(288 * Bytes::GIB)));
    assert_eq!(
        (entry.keep_hot, entry.min_resident),
        (
            Some(KeepHot::For(Length::from_secs(1800))),
            Some(MinResident::For(Length::from_secs(60)))
        )
    );
    assert_eq!(
        (entry.max_turn, entry.queue_limit),
        (Some(MaxTurn::Auto), Some(16))
    );
    assert_eq!(
        (entry.queue_timeout, entry.load_deadline),
        (Some(Span::from_secs(600)), Some(Span::from_secs(1200)))
    );
    assert_eq!(entry.stop_grace, Some(Span::from_secs(30)));
    let Recipe::Command(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    assert_eq!(
        (recipe.listen, recipe.ready_path.as_str()),
        (Listen::Port, "/v1/models")
    );
    assert_eq!(entry.recipe.served_model_name(), Some("large"));
}

#[test]
fn a_catalog_entry_survives_a_round_trip_through_its_document() {
    let text = std::fs::read_to_string(repository("tests/fixtures/catalog/full.json")).unwrap();
    let full: Value = serde_json::from_str(&text).unwrap();
    for document in [
        full,
        candle(&[]),
        command(&[("engine_config.env", json!({"A": "b"}))]),
    ] {
        let (entry, _) = read(&document).unwrap();
        let (again, _) = read(&entry.to_document()).unwrap();
        assert_eq!(again, entry);
        assert_eq!(entry.to_document(), again.to_document());
    }
}

#[test]
fn the_embedded_engine_has_documented_defaults() {
    let (entry, _) = read(&candle(&[])).unwrap();
    let Recipe::Candle(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    assert_eq!(
        (recipe.concurrency, recipe.threads, recipe.device),
        (4, None, ComputeDevice::Cpu)
    );
    assert_eq!((entry.seats_per_replica, entry.devices_per_replica), (4, 1));
    assert_eq!(entry.recipe.engine(), "candle");
}

#[test]
fn relative_paths_count_from_the_current_directory() {
    let (entry, _) = read(&candle(&[(
        "engine_config.model_path",
        json!("demo/models/x"),
    )]))
    .unwrap();
    let Recipe::Candle(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    assert_eq!(
        recipe.model_path,
        std::env::current_dir().unwrap().join("demo/models/x")
    );
}

#[test]
fn a_number_out_of_range_is_refused_with_its_key_and_the_allowed_range() {
    let cases = [
        ("pool_config.priority", json!(-1), "0 to 1000000"),
        ("pool_config.priority", json!(1_000_001), "0 to 1000000"),
        ("pool_config.gpus_per_replica", json!(0), "1 to 64"),
        ("pool_config.memory_gib", json!(0), "more than 0"),
        ("pool_config.memory_gib", json!(-2.5), "more than 0"),
        ("pool_config.queue_limit", json!(0), "1 to 1000000"),
        ("pool_config.queue_timeout", json!("0s"), "1ms and more"),
        ("pool_config.load_deadline", json!("0s"), "1ms and more"),
        (
            "pool_config.validation.max_characters",
            json!(0),
            "1 to 100000000",
        ),
        ("scaling_config.num_workers", json!(-1), "1 to 64"),
        (
            "scaling_config.num_gpus_per_worker",
            json!(1.5),
            "whole GPUs",
        ),
        (
            "scaling_config.num_gpus_per_worker",
            json!(1e300),
            "1 to 64",
        ),
        (
            "deployment_config.max_ongoing_requests",
            json!(0),
            "1 to 100000",
        ),
        (
            "engine_config.max_total_tokens",
            json!(15),
            "16 to 100000000",
        ),
        (
            "engine_config.engine_kwargs.concurrency",
            json!(0),
            "1 to 1024",
        ),
        (
            "engine_config.engine_kwargs.threads",
            json!(-3),
            "1 to 1024",
        ),
        (
            "engine_config.engine_kwargs.tokenizer_workers",
            json!(0),
            "1 to 1024",
        ),
    ];
    for (key, value, allowed) in cases {
        let text = refusal(&candle(&[(key, value)]));
        assert_has(&text, &[key, allowed, "the model document"]);
    }
    let product = [
        ("scaling_config.num_workers", json!(64)),
        ("scaling_config.num_gpus_per_worker", json!(2)),
    ];
    assert_has(
        &refusal(&candle(&product)),
        &["num_workers × num_gpus_per_worker", "128"],
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_key() {
    assert_has(
        &refusal(&candle(&[("pool_config.priority", json!("high"))])),
        &["pool_config.priority", "high", "whole number"],
    );
    assert_has(
        &refusal(&candle(&[("pool_config.keep_hot", json!(600))])),
        &["pool_config.keep_hot", "10m"],
    );
    assert_has(&refusal(&json!({})), &["`engine_config` is missing"]);
    assert_has(
        &refusal(&json!([1])),
        &["the document", "an object of keys"],
    );
}

#[test]
fn a_misspelled_model_key_is_refused_with_a_suggestion() {
    assert_has(
        &refusal(&candle(&[("pool_config.keep_hto", json!("1m"))])),
        &["`keep_hto`", "did you mean `keep_hot`?"],
    );
    let misspelt = [("pool_config.validation.max_charcters", json!(3))];
    assert_has(
        &refusal(&candle(&misspelt)),
        &["did you mean `max_characters`?"],
    );
    let misspelt = [("pool_config.validation.on_violation", json!("clear"))];
    assert_has(&refusal(&candle(&misspelt)), &["`clean`"]);
    assert_has(
        &refusal(&candle(&[(
            "engine_config.engine_kwargs.device",
            json!("gpu"),
        )])),
        &["`gpu`", "`cuda`"],
    );
}

#[test]
fn an_invalid_model_name_is_refused() {
    for name in [
        "",
        "/",
        "a/",
        "/a",
        "a/b/c",
        "-a",
        "a b",
        "a/.b",
        "ä",
        "a\n",
        &"x".repeat(201),
    ] {
        let text = refusal(&candle(&[("engine_config.model_id", json!(name))]));
        assert_has(&text, &["engine_config.model_id"]);
    }
    for name in ["a", "A9", "org/a", "org.x/Llama-3.1_8B", &"x".repeat(200)] {
        read(&candle(&[("engine_config.model_id", json!(name))])).unwrap();
    }
    assert_has(
        &refusal(&candle(&[("pool_config.aliases", json!(["ok", "not ok"]))])),
        &["aliases[1]"],
    );
    assert_has(
        &refusal(&candle(&[("pool_config.aliases", json!(["x", "x"]))])),
        &["aliases[1]", "twice"],
    );
}

#[test]
fn an_unsupported_engine_is_refused_with_the_supported_ones() {
    for engine in ["AviaryEngine", "RayEngine", "CandelEngine"] {
        let text = refusal(&candle(&[("engine_config.type", json!(engine))]));
        assert_has(
            &text,
            &[engine, "CandleEngine", "CommandEngine", "any program"],
        );
    }
    assert_has(
        &refusal(&candle(&[("engine_config.type", Value::Null)])),
        &["engine_config.type", "missing"],
    );
}

#[test]
fn a_document_of_an_unsupported_engine_is_refused_for_its_engine_whatever_its_keys() {
    let vllm = candle(&[
        ("engine_config.type", json!("AviaryEngine")),
        (
            "engine_config.engine_kwargs",
            json!({"quantization": "awq"}),
        ),
    ]);
    assert_has(
        &refusal(&vllm),
        &["engine_config.type", "AviaryEngine", "CommandEngine"],
    );
    let old = json!({"model_config": {"model_id": "a"}});
    assert_has(&refusal(&old), &["model_config.initialization", "LlamaCpp"]);
    assert_has(
        &refusal(&candle(&[("enabled", json!(false))])),
        &["enabled", "leave the model out"],
    );
}

#[test]
fn keys_of_another_engine_type_are_refused() {
    assert_has(
        &refusal(&candle(&[("engine_config.command", json!(["x"]))])),
        &["engine_config.command", "CommandEngine"],
    );
    assert_has(
        &refusal(&command(&[(
            "engine_config.engine_kwargs.threads",
            json!(2),
        )])),
        &["engine_kwargs", "CandleEngine"],
    );
}

#[test]
fn a_device_that_is_not_available_is_refused() {
    let mut config = Config::default();
    config.inventory.provider = Provider::Host;
    for device in ["cuda", "metal"] {
        let on = candle(&[("engine_config.engine_kwargs.device", json!(device))]);
        if cfg!(feature = "metal") && device == "metal" {
            read_with(&on, &config).unwrap();
        } else {
            assert_has(
                &read_with(&on, &config).unwrap_err().to_string(),
                &["engine_kwargs.device", device, "write cpu"],
            );
        }
    }
    config.inventory.provider = Provider::Nvml;
    let (_, warnings) = read_with(&candle(&[]), &config).unwrap();
    assert_has(&warnings[0].to_string(), &["engine_kwargs.device", "nvml"]);
}

#[test]
fn keys_without_effect_load_with_a_warning_that_names_the_replacement() {
    let text = std::fs::read_to_string(repository("tests/fixtures/catalog/rayllm.json")).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let ours = [
        ("type", json!("CommandEngine")),
        ("command", json!(["serve", "{{ port }}"])),
    ];
    for (key, value) in ours {
        document["engine_config"][key] = value;
    }
    let text = warnings(&document);
    for key in [
        "engine_config.generation.stopping_sequences",
        "engine_config.model_description",
        "scaling_config.placement_strategy",
        "deployment_config.ray_actor_options",
        "autoscaling_config.min_replicas",
        "priority 2 or more",
        "autoscaling_config.metrics_interval_s: has no effect",
    ] {
        assert_has(&text, &[key]);
    }
    let (entry, _) = read(&document).unwrap();
    assert_eq!(
        (entry.devices_per_replica, entry.seats_per_replica),
        (2, 64)
    );
    assert_has(
        &warnings(&candle(&[("pool_config.preload", json!(true))])),
        &["pool_config.preload", "priority 2 or more"],
    );
    assert_has(
        &warnings(&candle(&[("pool_config.labels", json!({"a": "b"}))])),
        &["pool_config.labels"],
    );
    assert_eq!(
        warnings(&candle(&[("pool_config.preload", json!(false))])),
        ""
    );
}

#[test]
fn a_missing_model_folder_is_a_warning_with_its_path() {
    let text = warnings(&candle(&[(
        "engine_config.model_path",
        json!("/nowhere/model"),
    )]));
    assert_has(
        &text,
        &[
            "engine_config.model_path",
            "/nowhere/model",
            "loads will fail",
        ],
    );
}

#[test]
fn two_contradicting_keys_for_one_value_are_reported() {
    let both = [
        ("pool_config.gpus_per_replica", json!(2)),
        ("scaling_config.num_workers", json!(4)),
    ];
    assert_has(
        &warnings(&command(&both)),
        &["num_workers", "says 2 GPUs", "says 4"],
    );
    let both = [
        ("deployment_config.max_ongoing_requests", json!(2)),
        ("deployment_config.max_concurrent_queries", json!(4)),
    ];
    assert_has(
        &warnings(&command(&both)),
        &["max_concurrent_queries", "old name"],
    );
    let (entry, _) = read(&command(&both)).unwrap();
    assert_eq!(entry.seats_per_replica, 2, "the new name counts");
}
