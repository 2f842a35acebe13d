//! `pool_config.nodes`: the number of nodes of a replica, from the file or from a number of GPUs that one node may not have (M8).

use std::path::Path;

use model_pool::catalog::{Entry, Reference, Source};
use model_pool::config::Config;
use model_pool::pool::NodeSpan;
use serde_json::{Value, json};

fn read(document: &Value) -> Result<Entry, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("model_reference.json");
    let (reference, _) = Reference::load(&file).unwrap();
    let config = Config::default();
    let read = Entry::from_document(document, Source::Registered, &config, &reference);
    read.map(|(entry, _)| entry)
        .map_err(|error| error.to_string())
}

fn entry_of(name: &str, engine: &str, pool: Value) -> Result<Entry, String> {
    read(&json!({
        "engine_config": {"model_id": name, "type": engine, "model_path": "/srv/m"},
        "pool_config": pool,
    }))
}

#[test]
fn m8_the_sixteen_gpu_models_of_the_reference_may_span_nodes() {
    for name in [
        "meta-llama/Llama-3.1-405B-Instruct",
        "deepseek-ai/DeepSeek-V3",
        "moonshotai/Kimi-K2-Instruct",
    ] {
        for engine in ["VLLMEngine", "SGLangEngine"] {
            let entry = entry_of(name, engine, json!({"memory_gib": 1000})).unwrap();
            let found = (entry.devices_per_replica, entry.nodes);
            assert_eq!(found, (16, NodeSpan::AsNeeded), "{name} {engine}");
        }
    }
}

#[test]
fn m8_nodes_are_read_from_the_file_and_checked_against_engine_gpus_and_sleep() {
    let nodes = |engine: &str, pool: Value| {
        let entry = entry_of("lab/m", engine, pool)?;
        Ok((entry.devices_per_replica, entry.nodes))
    };
    for (engine, pool, expected) in [
        (
            "VLLMEngine",
            json!({"nodes": 2, "gpus_per_replica": 16}),
            Ok((16, NodeSpan::Exactly(2))),
        ),
        (
            "VLLMEngine",
            json!({"nodes": 3}),
            Ok((3, NodeSpan::Exactly(3))),
        ),
        (
            "VLLMEngine",
            json!({"nodes": 1, "gpus_per_replica": 16}),
            Ok((16, NodeSpan::One)),
        ),
        (
            "VLLMEngine",
            json!({"gpus_per_replica": 1}),
            Ok((1, NodeSpan::One)),
        ),
        ("VLLMEngine", json!({}), Ok((1, NodeSpan::One))),
        (
            "VLLMEngine",
            json!({"gpus_per_replica": 16, "sleep": "weights"}),
            Ok((16, NodeSpan::One)),
        ),
        (
            "TextGenerationInferenceEngine",
            json!({"gpus_per_replica": 8}),
            Ok((8, NodeSpan::One)),
        ),
        (
            "VLLMEngine",
            json!({"nodes": 3, "gpus_per_replica": 16}),
            Err("does not divide the 16 GPUs"),
        ),
        ("VLLMEngine", json!({"nodes": 0}), Err("allowed: 1 to 16")),
        ("VLLMEngine", json!({"nodes": 17}), Err("allowed: 1 to 16")),
        (
            "VLLMEngine",
            json!({"nodes": 2, "sleep": "weights"}),
            Err("cannot sleep"),
        ),
        (
            "TextGenerationInferenceEngine",
            json!({"nodes": 2}),
            Err("runs on one node"),
        ),
        (
            "LlamaCppEngine",
            json!({"nodes": 2}),
            Err("runs on one node"),
        ),
    ] {
        let found: Result<_, String> = nodes(engine, pool.clone());
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(*found, expected, "{engine} {pool}"),
            (Err(text), Err(expected)) => {
                assert!(
                    text.contains("pool_config.nodes") && text.contains(expected),
                    "{engine} {pool}: {text}"
                );
            }
            _ => panic!("{engine} {pool}: {found:?}"),
        }
    }
}

#[test]
fn m8_only_a_command_on_several_nodes_has_a_leaders_address() {
    let command = |pool: Value| {
        read(&json!({
            "engine_config": {
                "model_id": "lab/c", "type": "CommandEngine", "listen": "port",
                "command": ["serve", "{{ port }}", "{{ node_rank }}", "{{ nodes }}", "{{ leader_address }}:{{ leader_port }}"],
            },
            "pool_config": pool,
        }))
    };
    let entry = command(json!({"memory_gib": 4, "nodes": 2})).unwrap();
    assert_eq!(entry.nodes, NodeSpan::Exactly(2));
    let error = command(json!({"memory_gib": 4})).unwrap_err();
    assert!(
        error.contains("leader_address") && error.contains("pool_config.nodes"),
        "{error}"
    );
}

#[test]
fn m8_a_change_of_the_nodes_restarts_a_replica() {
    let entry = |nodes: u32| {
        let pool = json!({"nodes": nodes, "gpus_per_replica": 4});
        entry_of("lab/m", "VLLMEngine", pool).unwrap()
    };
    assert_ne!(entry(2).started_with(), entry(4).started_with());
    assert_eq!(entry(2).arguments(), entry(4).arguments());
}
