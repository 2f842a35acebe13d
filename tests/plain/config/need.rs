//! Memory needs of models, from real `config.json` and safetensors files, complete and broken; and an administrator's or a measured
//! figure instead.
//! One file because every test writes one folder of weights and compares one figure.

use std::path::Path;

use model_pool::catalog::{
    CANDLE_CPU_OVERHEAD, Entry, GPU_OVERHEAD, MeasuredNeed, NeedSource, Recipe, Reference, Source,
    weights_of,
};
use model_pool::config::{Config, KeepHot, Length};
use model_pool::pool::{Bytes, KeepHotBounds, KeepHotScope, ModelSpec, Span, UNTIL_NEEDED};
use serde_json::{Value, json};

use super::{assert_has, documents};

/// Writes a safetensors file with this header and `data` bytes of data.
fn safetensors(path: &Path, header: &Value, data: usize) {
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(vec![0; data]);
    std::fs::write(path, file).unwrap();
}

/// 100 elements in half precision and 10 integers.
fn small_header() -> Value {
    json!({
        "__metadata__": {"format": "pt"},
        "weight": {"dtype": "F16", "shape": [10, 10], "data_offsets": [0, 200]},
        "ids": {"dtype": "I64", "shape": [10], "data_offsets": [200, 280]},
    })
}

const SHAPE: &str = r#"{"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64, "max_position_embeddings": 512, "vocab_size": 99}"#;
/// Keys and values: 2 × 2 layers × 4 heads × 8 wide.
const CACHE_PER_TOKEN: u64 = 2 * 2 * 4 * 8;

fn model_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    safetensors(
        &folder.path().join("model.safetensors"),
        &small_header(),
        280,
    );
    std::fs::write(folder.path().join("config.json"), SHAPE).unwrap();
    folder
}

fn entry(engine: &str, folder: Option<&Path>, pool: Value) -> Entry {
    let mut document = json!({
        "engine_config": {"model_id": "m", "type": engine, "max_total_tokens": 256},
        "pool_config": pool,
    });
    if let Some(folder) = folder {
        document["engine_config"]["model_path"] = json!(folder);
    }
    if engine == "CommandEngine" {
        document["engine_config"]["command"] = json!(["serve", "{{ port }}"]);
    }
    let read = documents::read(&document);
    read.unwrap().0
}

fn need(entry: &Entry, measured: Option<u64>) -> (u64, NeedSource) {
    let measured = measured.map(|bytes| MeasuredNeed {
        bytes_per_device: Bytes(bytes),
        reload_ms: 5,
    });
    let (spec, source) = entry.spec(&Config::default(), measured).unwrap();
    (spec.bytes_per_device.0, source)
}

/// Per row 4 × hidden, and 3 × (feed-forward and queries), plus the logits of sixteen rows, all twice.
const ACTIVATIONS: u64 = (512 * (4 * 64 + 3 * 256 + 3 * 64) + 2 * 16 * 99) * 4;

#[test]
fn the_embedded_engine_needs_its_weights_a_four_byte_cache_and_overhead() {
    let folder = model_folder();
    let cache = CACHE_PER_TOKEN * 256 * 4 * 4;
    let expected = 280 + cache + ACTIVATIONS + CANDLE_CPU_OVERHEAD.0;
    let model = entry("CandleEngine", Some(folder.path()), json!({}));
    assert_eq!(need(&model, None), (expected, NeedSource::Estimate));
    std::fs::write(folder.path().join("tokenizer.json"), vec![b' '; 1000]).unwrap();
    assert_eq!(need(&model, None).0, expected + 8 * 1000);
}

fn candle(folder: &Path, kwargs: Value, context: u32) -> Entry {
    let document = json!({"engine_config": {"model_id": "m", "type": "CandleEngine", "model_path": folder,
        "max_total_tokens": context, "engine_kwargs": kwargs}});
    let (config, reference) = (Config::default(), Reference::default());
    let read = Entry::from_document(&document, Source::Registered, &config, &reference);
    read.unwrap().0
}

#[test]
fn the_embedded_engines_cache_is_rounded_to_pages_and_limited_by_its_budget() {
    let folder = model_folder();
    let need = |kwargs, context| need(&candle(folder.path(), kwargs, context), None).0;
    let one_page = CACHE_PER_TOKEN * 16 * 4;
    let whole = need(json!({"concurrency": 1}), 64);
    let one_row = (4 * 64 + 3 * 256 + 3 * 64) * 4;
    assert_eq!(
        need(json!({"concurrency": 1}), 65) - whole,
        one_page + one_row
    );
    let bounded = json!({"concurrency": 4, "max_batch_total_tokens": 100});
    let free = need(json!({"concurrency": 4}), 96);
    assert_eq!(free - need(bounded, 96), (4 * 6 - 7) * one_page);
}

#[test]
fn keys_and_values_of_two_bytes_need_half_the_cache_on_the_cpu() {
    let folder = model_folder();
    let need = |kwargs| need(&candle(folder.path(), kwargs, 256), None).0;
    let whole = need(json!({"concurrency": 1}));
    let of = |name: &str| need(json!({"concurrency": 1, "kv_cache_dtype": name}));
    assert_eq!((of("auto"), of("float32")), (whole, whole));
    for name in ["float16", "bfloat16"] {
        assert_eq!(whole - of(name), CACHE_PER_TOKEN * 256 * 2, "{name}");
    }
}

#[test]
fn weights_converted_at_load_count_with_their_converted_size() {
    let folder = model_folder();
    // Two matrices and a vector of two-byte numbers: rows of complete blocks of 256, only of 32, and neither.
    let header = json!({
        "a": {"dtype": "BF16", "shape": [100, 256], "data_offsets": [0, 51_200]},
        "b": {"dtype": "BF16", "shape": [100, 96], "data_offsets": [51_200, 70_400]},
        "c": {"dtype": "BF16", "shape": [256], "data_offsets": [70_400, 70_912]},
    });
    safetensors(&folder.path().join("model.safetensors"), &header, 70_912);
    let need = |kwargs| need(&candle(folder.path(), kwargs, 256), None).0;
    let beside = need(json!({})) - 70_912;
    let of = |form: &str| need(json!({"quantization": form})) - beside;
    assert_eq!(of("q8_0"), (25_600 + 9_600) / 32 * 34 + 512);
    assert_eq!(of("q4_k"), 100 * 144 + 9_600 / 32 * 34 + 512);
}

#[test]
fn the_embedded_engine_stores_latent_attention_expanded_per_head() {
    let folder = model_folder();
    let shape = r#"{"model_type": "deepseek_v2", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 64, "max_position_embeddings": 512,
        "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6, "intermediate_size": 256}"#;
    std::fs::write(folder.path().join("config.json"), shape).unwrap();
    let need = |context| {
        need(
            &candle(folder.path(), json!({"concurrency": 2}), context),
            None,
        )
        .0
    };
    // 8 heads of keys of 12 and values of 6, in two layers. 256 tokens of two sequences fill a step's rows.
    assert_eq!(need(512) - need(256), 2 * 8 * 18 * 4 * 256 * 2);
}

#[test]
fn an_encoder_needs_four_byte_weights_and_no_cache() {
    let folder = model_folder();
    let shape = r#"{"architectures": ["BertModel"], "model_type": "bert", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 64, "intermediate_size": 256,
        "max_position_embeddings": 512, "vocab_size": 99}"#;
    std::fs::write(folder.path().join("config.json"), shape).unwrap();
    let model = candle(folder.path(), json!({}), 256);
    // A batch of 1,024 rows with cosines and sines, and pages of four times as many tokens, whose values are complete vectors.
    let rows = 1024 * (4 * 64 + 4 * 256 + 3 * 64 + 4 * 8);
    let activations = (rows + 4 * 1024 * 8 * (8 + 16)) * 4;
    let expected = 100 * 4 + 80 + activations + CANDLE_CPU_OVERHEAD.0;
    assert_eq!(need(&model, None).0, expected);
}

#[test]
fn a_command_engine_is_estimated_with_stored_weights_a_two_byte_cache_and_gpu_overhead() {
    let folder = model_folder();
    let expected = 280 + CACHE_PER_TOKEN * 256 * 20 * 2 + GPU_OVERHEAD.0;
    let model = entry("CommandEngine", Some(folder.path()), json!({}));
    assert_eq!(need(&model, None), (expected, NeedSource::Estimate));
}

#[test]
fn the_needed_memory_is_divided_over_the_devices_and_rounded_up() {
    let folder = model_folder();
    let need = |gpus| {
        let pool = json!({"gpus_per_replica": gpus});
        need(&entry("CommandEngine", Some(folder.path()), pool), None).0
    };
    let cache = CACHE_PER_TOKEN * 256 * 20 * 2;
    assert_eq!(need(1), 280 + cache + GPU_OVERHEAD.0);
    // Three devices have two of the four heads each.
    assert_eq!(need(3), 280_u64.div_ceil(3) + cache / 2 + GPU_OVERHEAD.0);
}

#[test]
fn the_context_defaults_to_that_of_the_model() {
    let folder = model_folder();
    let document = json!({"engine_config": {"model_id": "m", "type": "CandleEngine", "model_path": folder.path()}});
    let (model, _) = documents::read(&document).unwrap();
    let with_256 = entry("CandleEngine", Some(folder.path()), json!({}));
    let more = CACHE_PER_TOKEN * 256 * 4 * 4;
    assert_eq!(need(&model, None).0, need(&with_256, None).0 + more);
    let Recipe::Candle(recipe) = &model.recipe else {
        panic!("{:?}", model.recipe)
    };
    assert_eq!(recipe.context_tokens().unwrap(), 512);
}

#[test]
fn the_sizes_of_a_multimodal_model_are_read_from_its_text_section() {
    let folder = model_folder();
    let flat = need(&entry("CandleEngine", Some(folder.path()), json!({})), None);
    let nested = format!(r#"{{"text_config": {SHAPE}, "vision_config": {{"hidden_size": 7}}}}"#);
    std::fs::write(folder.path().join("config.json"), nested).unwrap();
    assert_eq!(
        need(&entry("CandleEngine", Some(folder.path()), json!({})), None),
        flat
    );
}

#[test]
fn each_shard_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.safetensors", "b.safetensors"] {
        safetensors(&folder.path().join(name), &small_header(), 280);
    }
    let index =
        json!({"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}});
    std::fs::write(
        folder.path().join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    let weights = weights_of(folder.path()).unwrap();
    assert_eq!((weights.stored_bytes, weights.held_in(4)), (560, 960));
}

#[test]
fn a_broken_weight_file_is_refused_with_its_name_and_reason() {
    let cases: [(&str, Value, usize); 8] = [
        (
            "cut off",
            json!({"w": {"dtype": "F16", "shape": [100], "data_offsets": [0, 200]}}),
            199,
        ),
        (
            "overlap",
            json!({"a": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}, "b": {"dtype": "U8", "shape": [9], "data_offsets": [8, 17]}}),
            17,
        ),
        (
            "does not match",
            json!({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}),
            8,
        ),
        (
            "impossible shape",
            json!({"w": {"dtype": "F32", "shape": [u64::MAX, 2], "data_offsets": [0, 8]}}),
            8,
        ),
        (
            "cut off",
            json!({"w": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}),
            8,
        ),
        (
            "header is broken",
            json!({"w": {"dtype": "F32", "shape": [1]}}),
            8,
        ),
        ("is not a tensor", json!({"w": {"a": "b"}}), 8),
        ("header is broken", json!([1, 2]), 8),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    for (reason, header, data) in cases {
        safetensors(&file, &header, data);
        assert_has(
            &weights_of(folder.path()).unwrap_err().to_string(),
            &["model.safetensors", reason],
        );
    }
    for (reason, bytes) in [
        ("too short", b"abc".to_vec()),
        ("truncated", 1000_u64.to_le_bytes().to_vec()),
        ("at most", u64::MAX.to_le_bytes().repeat(2)),
    ] {
        std::fs::write(&file, bytes).unwrap();
        assert_has(
            &weights_of(folder.path()).unwrap_err().to_string(),
            &["model.safetensors", reason],
        );
    }
}

#[test]
fn a_weight_index_may_not_leave_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    for name in ["../other.safetensors", "/etc/passwd", "x.bin"] {
        std::fs::write(&index, json!({"weight_map": {"a": name}}).to_string()).unwrap();
        assert_has(
            &weights_of(folder.path()).unwrap_err().to_string(),
            &["index.json", name],
        );
    }
    std::fs::write(&index, r#"{"weight_map": {"a": "gone.safetensors"}}"#).unwrap();
    assert_has(
        &weights_of(folder.path()).unwrap_err().to_string(),
        &["gone.safetensors", "missing", "1 of the 1"],
    );
}

#[test]
fn a_model_that_cannot_be_estimated_gets_a_fallback_figure_and_a_warning() {
    let folder = model_folder();
    let weights = folder.path().join("model.safetensors");
    std::fs::write(&weights, vec![0xff; 5000]).unwrap();
    let (bytes, source) = need(&entry("CandleEngine", Some(folder.path()), json!({})), None);
    assert_eq!(
        (bytes, source.name()),
        (5000 + CANDLE_CPU_OVERHEAD.0, "estimate")
    );
    assert_has(
        source.warning().unwrap(),
        &[
            "model.safetensors",
            "sizes of its files",
            "pool_config.memory_gib",
        ],
    );

    let (bytes, source) = need(
        &entry("CandleEngine", Some(Path::new("/nowhere/m")), json!({})),
        None,
    );
    assert_eq!(bytes, CANDLE_CPU_OVERHEAD.0);
    assert_has(source.warning().unwrap(), &["/nowhere/m"]);
}

#[test]
fn a_broken_config_json_is_named() {
    let folder = model_folder();
    for (text, reason) in [
        ("{", "line 1"),
        ("{}", "`num_attention_heads` is missing"),
        (r#"{"num_attention_heads": 0}"#, "is missing or 0"),
    ] {
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        let (_, source) = need(&entry("CandleEngine", Some(folder.path()), json!({})), None);
        assert_has(source.warning().unwrap(), &["config.json", reason]);
    }
}

#[test]
fn a_command_with_unknown_memory_is_refused_with_the_key_to_set() {
    for folder in [None, Some(Path::new("/nowhere/m"))] {
        let model = entry("CommandEngine", folder, json!({}));
        let error = model
            .spec(&Config::default(), None)
            .unwrap_err()
            .to_string();
        assert_has(
            &error,
            &["the memory of m is unknown", "pool_config.memory_gib"],
        );
        assert_eq!(need(&model, Some(77)), (77, NeedSource::Measured));
    }
}

#[test]
fn an_administrators_figure_takes_precedence_over_every_other() {
    let folder = model_folder();
    for (engine, devices) in [("CandleEngine", 1), ("CommandEngine", 2)] {
        let pool = json!({"memory_gib": 3, "gpus_per_replica": devices});
        let model = entry(engine, Some(folder.path()), pool);
        assert_eq!(
            need(&model, Some(u64::MAX)),
            (3 * Bytes::GIB / devices, NeedSource::File)
        );
    }
}

#[test]
fn a_measurement_replaces_a_commands_estimate_and_can_only_raise_the_embedded_engines() {
    let folder = model_folder();
    let command = entry("CommandEngine", Some(folder.path()), json!({}));
    assert_eq!(need(&command, Some(1000)), (1000, NeedSource::Measured));
    let candle = entry("CandleEngine", Some(folder.path()), json!({}));
    let (estimate, _) = need(&candle, None);
    assert_eq!(need(&candle, Some(1000)), (estimate, NeedSource::Estimate));
    assert_eq!(
        need(&candle, Some(estimate + 1)),
        (estimate + 1, NeedSource::Measured)
    );
}

#[test]
fn load_times_are_derived_from_the_size_unless_configured() {
    let spec = |pool: Value, measured: Option<MeasuredNeed>| -> ModelSpec {
        entry("CommandEngine", None, pool)
            .spec(&Config::default(), measured)
            .unwrap()
            .0
    };
    let derived = spec(json!({"memory_gib": 10, "gpus_per_replica": 4}), None);
    assert_eq!(derived.load_deadline, Span::from_secs(300 + 200));
    assert_eq!(derived.reload, Span(2000 + 10 * Bytes::GIB / 1_000_000));
    let explicit = json!({"memory_gib": 10, "load_deadline": "7s", "stop_grace": "3s"});
    let measured = MeasuredNeed {
        bytes_per_device: Bytes(1),
        reload_ms: 1234,
    };
    let given = spec(explicit, Some(measured));
    assert_eq!(
        (given.load_deadline, given.reload, given.stop_grace),
        (Span::from_secs(7), Span(1234), Span::from_secs(3))
    );
}

#[test]
fn values_missing_in_the_model_file_default_to_those_of_the_pool() {
    let folder = model_folder();
    let mut config = Config::default();
    config.pool.keep_hot = KeepHot::For(Length::from_secs(1));
    config.pool.queue_limit = 3;
    let model = entry(
        "CandleEngine",
        Some(folder.path()),
        json!({"queue_limit": 9}),
    );
    let (spec, _) = model.spec(&config, None).unwrap();
    assert_eq!(
        (spec.keep_hot, spec.queue_limit, spec.max_turn),
        (Span::from_secs(1), 9, None)
    );
    assert_eq!(
        (
            spec.name.as_str(),
            spec.seats_per_replica,
            spec.devices_per_replica
        ),
        ("m", 4, 1)
    );
}

#[test]
fn adaptive_keep_hot_and_automatic_min_resident_use_the_pools_settings() {
    let folder = model_folder();
    let mut config = Config::default();
    let spec = |config: &Config, extra: serde_json::Value| {
        let model = entry("CandleEngine", Some(folder.path()), extra);
        model.spec(config, None).unwrap().0
    };
    let usual = spec(&config, json!({}));
    assert_eq!((usual.min_resident, usual.adaptive_keep_hot), (None, None));
    config.pool.keep_hot_least = Length::from_secs(5);
    config.pool.keep_hot_most = Length::from_secs(50);
    let own = json!({"keep_hot": "adaptive", "min_resident": "3s"});
    let adaptive = spec(&config, own);
    let bounds = KeepHotBounds {
        least: Span::from_secs(5),
        most: Span::from_secs(50),
    };
    assert_eq!(adaptive.adaptive_keep_hot, Some(bounds));
    assert_eq!(
        adaptive.keep_hot,
        Span::from_secs(50),
        "until its use is known"
    );
    assert_eq!(adaptive.min_resident, Some(Span::from_secs(3)));
    config.pool.keep_hot = KeepHot::Adaptive;
    assert_eq!(spec(&config, json!({})).adaptive_keep_hot, Some(bounds));
    let fixed = spec(&config, json!({"keep_hot": "10m"}));
    assert_eq!(fixed.adaptive_keep_hot, None);
    let kept = spec(&config, json!({"keep_hot": "until_needed"}));
    assert_eq!(kept.keep_hot, UNTIL_NEEDED);
    config.pool.keep_hot_scope = model_pool::config::KeepHotScope::Device;
    let by_device = spec(&config, json!({})).keep_hot_scope;
    assert_eq!(by_device, KeepHotScope::Device);
    let own_time = spec(&config, json!({"keep_hot": "10m"})).keep_hot_scope;
    assert_eq!(
        own_time,
        KeepHotScope::Model,
        "a time in the model's file means exactly that"
    );
}
