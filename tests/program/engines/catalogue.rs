//! Model files for the engines of the table, as the catalogue reads them: refusals with file and field, warnings, seats, and the
//! same estimates as for hand-written commands.

use model_pool::catalog::{Demand, Entry, Recipe, Reference, ServerRecipe, Sleep, Source, Warning};
use model_pool::config::Config;
use model_pool::pool::Bytes;
use serde_json::{Value, json};
use support::folder::tiny_model as model_folder;

use super::assert_has;

fn read(document: &Value) -> Result<(Entry, Vec<Warning>), String> {
    Entry::from_document(
        document,
        Source::Registered,
        &Config::default(),
        &Reference::default(),
    )
    .map_err(|error| error.to_string())
}

/// A document with these keys of `engine_config` and these additional sections.
fn document(engine: &str, keys: Value, beside: Value) -> Value {
    let mut document = json!({"engine_config": {"model_id": "org/model", "type": engine, "hf_model_id": "org/model"}});
    for (key, value) in keys.as_object().expect("keys") {
        document["engine_config"][key] = value.clone();
    }
    for (section, value) in beside.as_object().expect("sections") {
        document[section] = value.clone();
    }
    document
}

fn refusal(engine: &str, keys: Value, beside: Value) -> String {
    read(&document(engine, keys, beside))
        .map(|_| ())
        .expect_err("it is refused")
}

fn recipe(entry: &Entry) -> &ServerRecipe {
    match &entry.recipe {
        Recipe::Server(recipe) => recipe,
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_set_by_the_pool_are_refused_with_the_key_to_set_instead() {
    for (engine, kwargs, parts) in [
        (
            "VLLMEngine",
            json!({"tensor_parallel_size": 2}),
            ["engine_kwargs.tensor_parallel_size", "gpus_per_replica"],
        ),
        (
            "VLLMEngine",
            json!({"max-model-len": 2}),
            ["engine_kwargs.max-model-len", "max_total_tokens"],
        ),
        (
            "VLLMEngine",
            json!({"tool_server": "demo"}),
            ["engine_kwargs.tool_server", "run tools"],
        ),
        (
            "VLLMEngine",
            json!({"max_num_seq": 2}),
            ["engine_kwargs.max_num_seq", "did you mean `max_num_seqs`?"],
        ),
        (
            "VLLMEngine",
            json!({"gpu_memory_utilization": 90}),
            ["engine_kwargs.gpu_memory_utilization", "0.001 to 1"],
        ),
        (
            "LlamaCppEngine",
            json!({"parallel": 2}),
            ["engine_kwargs.parallel", "max_ongoing_requests"],
        ),
        (
            "SGLangEngine",
            json!({"trust_remote_code": "yes"}),
            ["engine_kwargs.trust_remote_code", "true or false"],
        ),
        (
            "TextGenerationInferenceEngine",
            json!({"num_shard": 2}),
            ["num_shard", "gpus_per_replica"],
        ),
        (
            "EmbeddingEngine",
            json!({"port": 2}),
            ["engine_kwargs.port", "chosen by the pool"],
        ),
        (
            "TRTLLMEngine",
            json!({"max_seq_len": 2}),
            ["engine_kwargs.max_seq_len", "max_total_tokens"],
        ),
    ] {
        let text = refusal(engine, json!({"engine_kwargs": kwargs}), json!({}));
        assert_has(&text, &["the model document", "engine_config"]);
        assert_has(&text, &parts);
    }
}

#[test]
fn keys_of_other_engines_are_refused() {
    let none = json!({});
    let text = refusal("VLLMEngine", json!({"command": ["vllm"]}), none.clone());
    assert_has(&text, &["engine_config.command", "CommandEngine only"]);
    let text = refusal("SGLangEngine", json!({"listen": "socket"}), none.clone());
    assert_has(&text, &["engine_config.listen", "port only"]);
    let text = refusal("CandleEngine", json!({"program": "x"}), none.clone());
    assert_has(&text, &["engine_config.program", "remove it"]);
    let text = refusal(
        "VLLMEngine",
        json!({"command_prefix": ["docker", "run", "image"]}),
        none.clone(),
    );
    assert_has(&text, &["engine_config.command_prefix", "{{ container }}"]);
    let text = refusal(
        "VLLMEngine",
        json!({"command_prefix": ["nice", "{{ colour }}"]}),
        none.clone(),
    );
    assert_has(
        &text,
        &["engine_config.command_prefix[1]", "a template may use"],
    );
    let text = refusal(
        "EmbeddingEngine",
        none.clone(),
        json!({"pool_config": {"gpus_per_replica": 2}}),
    );
    assert_has(&text, &["gpus_per_replica", "at most 1 GPUs"]);
    let text = refusal(
        "VLLMEngine",
        json!({"hf_model_id": "--tool-server=demo"}),
        none.clone(),
    );
    assert_has(
        &text,
        &["engine_config.hf_model_id", "is not a name on the hub"],
    );
    let text = refusal("VLLMEngine", json!({"revision": ""}), none.clone());
    assert_has(&text, &["engine_config.revision", "is empty"]);
    let text = refusal(
        "VLLMEngine",
        json!({"env": {"A": "{{ colour }}"}}),
        none.clone(),
    );
    assert_has(&text, &["engine_config.env.A", "a template may use"]);
    let text = refusal("AviaryEngine", none.clone(), none);
    assert_has(
        &text,
        &["engine_config.type", "AviaryEngine", "is not an engine"],
    );
}

#[test]
fn variables_that_the_pool_sets_are_refused_when_the_file_is_read() {
    for (engine, name, part) in [
        ("VLLMEngine", "CUDA_VISIBLE_DEVICES", "pool_config.devices"),
        ("VLLMEngine", "VLLM_SERVER_DEV_MODE", "pool_config.sleep"),
        ("EmbeddingEngine", "PROMETHEUS_PORT", "chosen by the pool"),
    ] {
        let mut env = json!({});
        env[name] = json!("0");
        let text = refusal(engine, json!({"env": env}), json!({}));
        assert_has(&text, &["engine_config.env", name, part]);
    }
    let env = json!({"env": {"PROMETHEUS_PORT": "1"}});
    assert!(read(&document("VLLMEngine", env, json!({}))).is_ok());
}

#[test]
fn in_host_memory_only_engines_with_a_memory_budget_are_allowed() {
    let mut config = Config::default();
    config.inventory.provider = model_pool::config::Provider::Host;
    let read = |engine: &str, beside: Value| {
        let document = document(engine, json!({}), beside);
        Entry::from_document(
            &document,
            Source::Registered,
            &config,
            &Reference::default(),
        )
        .map(|_| ())
        .map_err(|error| error.to_string())
    };
    for engine in [
        "SGLangEngine",
        "TextGenerationInferenceEngine",
        "TRTLLMEngine",
    ] {
        let text = read(engine, json!({})).expect_err("it needs GPUs");
        assert_has(
            &text,
            &["engine_config.type", engine, "inventory.provider is host"],
        );
    }
    for engine in ["VLLMEngine", "LlamaCppEngine", "EmbeddingEngine"] {
        assert_eq!(read(engine, json!({})), Ok(()));
    }
    let text =
        read("VLLMEngine", json!({"pool_config": {"sleep": "weights"}})).expect_err("no sleep");
    assert_has(&text, &["pool_config.sleep", "only sleeps on GPUs"]);
}

#[test]
fn sleep_is_refused_for_engines_without_it_and_otherwise_uses_a_socket_if_possible() {
    let sleep = |depth: &str| json!({"pool_config": {"sleep": depth}});
    let text = refusal("LlamaCppEngine", json!({}), sleep("weights"));
    assert_has(
        &text,
        &[
            "pool_config.sleep",
            "llama.cpp",
            "VLLMEngine (weights and discard)",
            "SGLangEngine (weights)",
        ],
    );
    assert_has(
        &refusal("SGLangEngine", json!({}), sleep("discard")),
        &["pool_config.sleep", "discard"],
    );
    assert_has(&refusal("VLLMEngine", json!({}), sleep("deep")), &["deep"]);
    let (entry, _) = read(&document("VLLMEngine", json!({}), sleep("discard"))).expect("taken");
    assert_eq!(recipe(&entry).sleep, Sleep::Discard);
    assert_eq!(recipe(&entry).listen, model_pool::catalog::Listen::Socket);
    let parking = entry.parking.expect("it parks");
    assert_eq!(
        (parking.sleep.path, parking.weights_on_host),
        ("/sleep?level=2", false)
    );
    let (entry, _) = read(&document("VLLMEngine", json!({}), json!({}))).expect("taken");
    assert!(entry.parking.is_none());
}

#[test]
fn dangerous_options_are_accepted_with_a_warning() {
    let kwargs = json!({"engine_kwargs": {"trust_remote_code": true}});
    let (_, warnings) = read(&document("VLLMEngine", kwargs, json!({}))).expect("taken");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_has(
        &warnings[0].to_string(),
        &["trust_remote_code", "Python code", "revision"],
    );
    let kwargs = json!({"engine_kwargs": {"trust_remote_code": false}});
    let (_, warnings) = read(&document("VLLMEngine", kwargs, json!({}))).expect("taken");
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn seats_are_taken_from_the_deployment_the_engines_limit_or_its_default() {
    let seats = |engine: &str, kwargs: Value, deployment: Value| {
        let keys = json!({"engine_kwargs": kwargs});
        let beside = json!({"deployment_config": deployment});
        let (entry, _) = read(&document(engine, keys, beside)).expect("taken");
        assert_eq!(entry.seats_per_replica, recipe(&entry).seats);
        entry.seats_per_replica
    };
    assert_eq!(seats("VLLMEngine", json!({}), json!({})), 20);
    assert_eq!(
        seats("VLLMEngine", json!({"max_num_seqs": 7}), json!({})),
        7
    );
    assert_eq!(
        seats(
            "VLLMEngine",
            json!({"max_num_seqs": 7}),
            json!({"max_ongoing_requests": 9})
        ),
        9
    );
    assert_eq!(seats("LlamaCppEngine", json!({}), json!({})), 4);
}

/// The demand of the engine and of a command written by hand.
fn demands(engine: &str, keys: Value, command: &[&str]) -> (Demand, Demand) {
    let folder = model_folder();
    let path = folder.path().display().to_string();
    let beside = json!({"deployment_config": {"max_ongoing_requests": 8}});
    let mut keys = keys;
    keys["model_path"] = json!(path);
    let (own, _) = read(&document(engine, keys.clone(), beside.clone())).expect("taken");
    let by_hand = json!({"model_path": path, "command": command, "max_total_tokens": keys["max_total_tokens"]});
    let (hand, _) = read(&document("CommandEngine", by_hand, beside)).expect("taken");
    let demand = |entry: &Entry| entry.demand(2, None).expect("a figure").0;
    (demand(&own), demand(&hand))
}

#[test]
fn estimates_equal_those_of_the_same_hand_written_command() {
    let (own, hand) = demands(
        "VLLMEngine",
        json!({"max_total_tokens": 500, "engine_kwargs": {"kv_cache_dtype": "fp8"}}),
        &[
            "vllm",
            "serve",
            "{{ model_path }}",
            "--port",
            "{{ port }}",
            "--max-model-len",
            "500",
            "--max-num-seqs",
            "8",
            "--kv-cache-dtype",
            "fp8",
            "--gpu-memory-utilization",
            "{{ memory_bytes }}",
            "-tp",
            "{{ device_count }}",
        ],
    );
    // The pool's own command never requests the optional memory that a hand-written command takes by default.
    let wanted = match hand {
        Demand::Share(share) => share.wanted.expect("a figure"),
        Demand::Bytes(bytes) => bytes,
    };
    assert_eq!(own, Demand::Bytes(wanted));

    let (own, hand) = demands(
        "VLLMEngine",
        json!({"engine_kwargs": {"gpu_memory_utilization": 0.5}}),
        &[
            "vllm",
            "serve",
            "{{ model_path }}",
            "--port",
            "{{ port }}",
            "--gpu-memory-utilization",
            "0.5",
        ],
    );
    assert_eq!(own, hand);
}

#[test]
fn llama_cpps_total_context_covers_all_slots_in_the_estimate() {
    let recipe = |kwargs: Value| {
        let mut keys = json!({"model_path": "/nowhere/m.gguf", "max_total_tokens": 500});
        keys["engine_kwargs"] = kwargs;
        let beside = json!({"deployment_config": {"max_ongoing_requests": 8}, "pool_config": {"memory_gib": 4}});
        let (entry, _) = read(&document("LlamaCppEngine", keys, beside)).expect("taken");
        recipe(&entry).engine_options(2)
    };
    let options = recipe(json!({"cache_type_k": "q8_0", "swa_full": true}));
    assert_eq!((options.context, options.sequences), (Some(4000), Some(8)));
    assert!(options.keeps_old_tokens && options.keys != options.values);
    assert_eq!((options.share_per_mille, options.cache), (None, None));
}

#[test]
fn an_embedding_engine_has_no_cache() {
    let folder = model_folder();
    let keys = json!({"model_path": folder.path().display().to_string()});
    let (entry, _) = read(&document("EmbeddingEngine", keys, json!({}))).expect("taken");
    let (demand, _) = entry.demand(1, None).expect("a figure");
    assert_eq!(demand, Demand::Bytes(Bytes((1 << 20) + Bytes::GIB)));
}

#[test]
fn a_document_round_trips_through_its_entry() {
    let keys = json!({"engine_kwargs": {"max-num-seqs": 7, "hf_overrides": {"a": [1]}}, "revision": "abc"});
    let written = document(
        "VLLMEngine",
        keys,
        json!({"pool_config": {"sleep": "weights"}}),
    );
    let (entry, _) = read(&written).expect("taken");
    let (again, _) = read(&entry.to_document()).expect("taken again");
    assert_eq!(entry, again);
    assert_eq!(
        entry.to_document()["engine_config"]["engine_kwargs"],
        written["engine_config"]["engine_kwargs"]
    );
}
