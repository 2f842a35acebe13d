//! The various ways in which a `config.json` describes the state of its layers.
//! One file because every test writes a configuration and reads it.

use model_pool::catalog::{Architecture, LayerCache, LayerGroup};
use serde_json::{Value, json};

use super::assert_has;

fn read(config: &Value) -> Result<Architecture, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    Architecture::of_folder(folder.path()).map_err(|error| error.to_string())
}

/// A configuration of 12 layers with 4 heads of 16, and these additional keys.
fn form(kind: &str, keys: Value) -> Value {
    let mut config = json!({
        "model_type": kind, "num_hidden_layers": 12, "num_attention_heads": 8,
        "num_key_value_heads": 4, "hidden_size": 128, "max_position_embeddings": 4096,
    });
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// Numbers of layers with full attention, with a window, and with a state.
fn counts(config: &Value) -> (u64, u64, u64) {
    let mut counts = (0, 0, 0);
    for LayerGroup { count, cache } in read(config).unwrap().layers {
        match cache {
            LayerCache::Heads { window: None, .. } | LayerCache::Latent { .. } => counts.0 += count,
            LayerCache::Heads { .. } => counts.1 += count,
            LayerCache::State { .. } => counts.2 += count,
        }
    }
    counts
}

#[test]
fn sliding_windows_are_recognized_in_every_architecture() {
    let window = |keys: Value| {
        let mut keys = keys;
        keys["sliding_window"] = json!(512);
        keys
    };
    let types = |word: &str| {
        json!(
            (0..12)
                .map(|layer| if layer % 3 == 0 {
                    "full_attention"
                } else {
                    word
                })
                .collect::<Vec<_>>()
        )
    };
    for (kind, keys, expected) in [
        ("mistral", window(json!({})), (0, 12, 0)),
        ("mistral", json!({"sliding_window": null}), (12, 0, 0)),
        ("gemma2", window(json!({})), (6, 6, 0)),
        ("gemma3_text", window(json!({})), (2, 10, 0)),
        (
            "gemma3_text",
            window(json!({"sliding_window_pattern": 3})),
            (4, 8, 0),
        ),
        ("cohere2", window(json!({})), (3, 9, 0)),
        (
            "exaone4",
            window(json!({"sliding_window_pattern": "LLLG"})),
            (3, 9, 0),
        ),
        ("gpt_oss", window(json!({})), (6, 6, 0)),
        (
            "gpt_oss",
            window(json!({"layer_types": types("sliding_attention")})),
            (4, 8, 0),
        ),
        // Qwen has a key for a window that is off unless it is enabled.
        ("qwen2", window(json!({})), (12, 0, 0)),
        (
            "qwen2",
            window(json!({"use_sliding_window": false})),
            (12, 0, 0),
        ),
        (
            "qwen2",
            window(json!({"use_sliding_window": true, "max_window_layers": 5})),
            (5, 7, 0),
        ),
        (
            "llama4_text",
            json!({"attention_chunk_size": 8192}),
            (3, 9, 0),
        ),
        (
            "llama4_text",
            json!({"no_rope_layers": [1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0]}),
            (4, 8, 0),
        ),
        (
            "llama4_text",
            json!({"attention_chunk_size": 64, "layer_types": types("chunked_attention")}),
            (4, 8, 0),
        ),
    ] {
        assert_eq!(counts(&form(kind, keys.clone())), expected, "{kind} {keys}");
    }
}

#[test]
fn hybrid_models_keep_a_state_in_layers_without_attention() {
    let mamba = |keys: Value| {
        let mut keys = keys;
        keys["mamba_d_state"] = json!(16);
        keys
    };
    let list = |word: &str, other: &str| {
        json!(
            (0..12)
                .map(|layer| if layer % 6 == 5 { word } else { other })
                .collect::<Vec<_>>()
        )
    };
    for (kind, keys, expected) in [
        (
            "jamba",
            mamba(json!({"attn_layer_period": 8, "attn_layer_offset": 4})),
            (1, 0, 11),
        ),
        (
            "jamba",
            mamba(json!({"layers_block_type": list("attention", "mamba")})),
            (2, 0, 10),
        ),
        (
            "bamba",
            mamba(json!({"attn_layer_indices": [3, 9]})),
            (2, 0, 10),
        ),
        (
            "nemotron_h",
            mamba(json!({"hybrid_override_pattern": "M-M*M-M*M-M-"})),
            (2, 0, 6),
        ),
        ("falcon_h1", mamba(json!({})), (12, 0, 12)),
        (
            "granitemoehybrid",
            mamba(json!({"layer_types": list("attention", "mamba")})),
            (2, 0, 10),
        ),
        (
            "minimax",
            mamba(json!({"attn_type_list": [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]})),
            (2, 0, 10),
        ),
        (
            "qwen3_next",
            mamba(json!({"full_attention_interval": 4})),
            (3, 0, 9),
        ),
        (
            "lfm2",
            json!({"conv_L_cache": 3, "layer_types": list("full_attention", "conv")}),
            (2, 0, 10),
        ),
    ] {
        assert_eq!(counts(&form(kind, keys.clone())), expected, "{kind} {keys}");
    }
}

#[test]
fn a_state_of_unknown_size_is_reported() {
    let hybrid = read(&form("qwen3_next", json!({"full_attention_interval": 4}))).unwrap();
    assert_has(&hybrid.guesses.join("\n"), &["state", "upper bound"]);
    // An upper bound, never less: all layers count as attention.
    let plain = read(&form("llama", json!({}))).unwrap();
    assert_eq!(hybrid.layers, plain.layers);
}

#[test]
fn an_unknown_architecture_is_treated_as_plain_attention_with_a_notice() {
    let unknown = read(&form("brand_new", json!({}))).unwrap();
    let known = read(&form("llama", json!({}))).unwrap();
    assert_eq!(unknown.layers, known.layers);
    assert_has(
        &unknown.guesses.join("\n"),
        &["brand_new", "plain attention"],
    );
    assert!(known.guesses.is_empty());
}

#[test]
fn an_encoder_has_no_cache_and_needs_no_context_length() {
    let mut config = form("bert", json!({}));
    config["max_position_embeddings"] = Value::Null;
    assert_eq!(read(&config).unwrap().layers, []);
    assert_eq!(
        counts(&form("bert", json!({"is_decoder": true}))),
        (12, 0, 0)
    );
}

#[test]
fn older_configuration_names_are_equivalent() {
    let gpt2 = json!({"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024});
    let read = read(&gpt2).unwrap();
    assert_eq!((read.attention_heads, read.context), (Some(12), Some(1024)));
    let heads = LayerCache::Heads {
        heads: 12,
        key_size: 64,
        value_size: 64,
        window: None,
    };
    assert_eq!(
        read.layers,
        [LayerGroup {
            count: 12,
            cache: heads
        }]
    );
}

#[test]
fn multi_query_falcon_models_have_one_key_value_head() {
    let heads = |keys: Value| match read(&form("falcon", keys)).unwrap().layers[0].cache {
        LayerCache::Heads { heads, .. } => heads,
        other => panic!("{other:?}"),
    };
    assert_eq!(heads(json!({"multi_query": true})), 1);
    let newer = json!({"multi_query": true, "new_decoder_architecture": true, "num_kv_heads": 2, "num_key_value_heads": null});
    assert_eq!(heads(newer), 2);
}

#[test]
fn heads_may_differ_by_layer() {
    let each = json!({"num_key_value_heads": [1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4]});
    let layers = read(&form("llama", each)).unwrap().layers;
    assert_eq!(
        layers.iter().map(|group| group.count).collect::<Vec<_>>(),
        [4, 4, 4]
    );
}

#[test]
fn a_nested_text_section_is_found() {
    let inner = form("qwen3", json!({}));
    let nested = json!({"model_type": "omni", "thinker_config": {"text_config": inner.clone()}});
    assert_eq!(read(&nested).unwrap().layers, read(&inner).unwrap().layers);
}

#[test]
fn invalid_config_values_are_refused_with_their_key() {
    for (key, value, reason) in [
        ("num_hidden_layers", json!(-1), "-1"),
        ("num_hidden_layers", json!("many"), "many"),
        ("num_key_value_heads", json!(0), "missing or 0"),
        ("hidden_size", json!([1]), "[1]"),
        ("sliding_window", json!("wide"), "wide"),
        ("num_key_value_heads", json!(["a"]), "no numbers"),
    ] {
        let mut keys = json!({});
        keys[key] = value;
        assert_has(
            &read(&form("mistral", keys)).unwrap_err(),
            &["config.json", key, reason],
        );
    }
}

#[test]
fn huge_numbers_neither_overflow_nor_take_long() {
    let most = u64::MAX;
    let config = form(
        "gemma3_text",
        json!({
            "num_hidden_layers": most, "num_key_value_heads": most, "head_dim": most,
            "sliding_window": most, "max_position_embeddings": most,
        }),
    );
    let read = read(&config).unwrap();
    let load = model_pool::catalog::CacheLoad::even(most, most);
    let split = model_pool::catalog::Split::Heads;
    assert_eq!(read.cache_bytes_per_device(&load, split, 1), most);
}

#[test]
fn numbers_that_only_python_writes_change_no_figure() {
    let plain = form(
        "nemotron_h",
        json!({"mamba_d_state": 16, "hybrid_override_pattern": "M-M*M-M*M-M-"}),
    );
    let known = read(&plain).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for limits in [
        "[0.0, Infinity]",
        "[-Infinity, Infinity]",
        "NaN",
        "[1e-3, NaN]",
    ] {
        let text = plain.to_string();
        let text = text.replacen('{', &format!("{{\"time_step_limit\": {limits}, "), 1);
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        let read = Architecture::of_folder(folder.path()).unwrap();
        assert_eq!(
            (&read.layers, &read.guesses),
            (&known.layers, &known.guesses),
            "{limits}"
        );
        assert_eq!(
            model_pool::catalog::damage(folder.path()).len(),
            0,
            "{limits}"
        );
    }
}

#[test]
fn architectures_without_attention_keep_states_alone() {
    let mamba = json!({
        "model_type": "mamba", "hidden_size": 128, "intermediate_size": 256, "state_size": 16,
        "num_hidden_layers": 12, "conv_kernel": 4,
    });
    assert_eq!(counts(&mamba), (0, 0, 12));
    let architecture = read(&mamba).unwrap();
    assert!(
        architecture.context.is_some(),
        "a state needs no limit of tokens"
    );
    let second = json!({
        "model_type": "mamba2", "hidden_size": 128, "num_heads": 8, "head_dim": 32, "state_size": 16,
        "n_groups": 2, "num_hidden_layers": 12, "conv_kernel": 4,
    });
    let expected = LayerCache::State {
        bytes: 4 * 256 * 16 + 2 * 4 * (256 + 2 * 2 * 16),
    };
    let layers = read(&second).unwrap().layers;
    assert_eq!(
        layers,
        [LayerGroup {
            count: 12,
            cache: expected
        }]
    );
    let unknown = json!({"model_type": "mamba", "hidden_size": 128, "num_hidden_layers": 12});
    assert_has(
        &read(&unknown).unwrap_err(),
        &["config.json", "state_size", "mamba"],
    );
}

/// Weights of a configuration whose quantisation is this, in thousandths of a bit per quantised parameter.
fn bits(quantisation: Value, modelopt: Option<Value>) -> (u64, Vec<String>) {
    let mut config = form(
        "llama",
        json!({"vocab_size": 256, "intermediate_size": 512, "tie_word_embeddings": true}),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let count = model_pool::catalog::parameters_by_config(&path).unwrap();
    config["quantization_config"] = quantisation;
    std::fs::write(&path, config.to_string()).unwrap();
    if let Some(modelopt) = modelopt {
        std::fs::write(
            folder.path().join("hf_quant_config.json"),
            modelopt.to_string(),
        )
        .unwrap();
    }
    let files = model_pool::catalog::ModelFiles::read(folder.path()).unwrap();
    let quantised = files.weights.stored_bytes - count.embeddings * 2;
    let parts = count.total - count.embeddings;
    (quantised * 8000 / parts, files.architecture.guesses)
}

#[test]
fn quantised_weights_have_their_bits_and_scales() {
    let group = |bits: u64, size: Value, kind: &str| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
            {"num_bits": bits, "group_size": size, "type": kind}}}, "ignore": ["lm_head"]})
    };
    for (quantisation, low, high) in [
        // One byte of scale per 16 numbers, and per 32.
        (
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}),
            4499,
            4501,
        ),
        (group(4, json!(16), "float"), 4499, 4501),
        (group(4, json!(32), "float"), 4249, 4251),
        (group(4, json!(128), "int"), 4124, 4126),
        (group(8, Value::Null, "float"), 8000, 8020),
        (
            json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            8000,
            8020,
        ),
        (
            json!({"quant_method": "modelopt", "quant_algo": "FP8"}),
            8000,
            8020,
        ),
        (
            json!({"quant_method": "awq", "bits": 4, "group_size": 128}),
            4150,
            4170,
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 32}),
            4600,
            4640,
        ),
        (
            json!({"quant_method": "bitsandbytes", "load_in_4bit": true}),
            4499,
            4501,
        ),
        (
            json!({"quant_method": "bitsandbytes", "load_in_8bit": true}),
            8000,
            8020,
        ),
        (json!({"quant_method": "exl2", "bits": 4.65}), 4700, 4900),
        (Value::Null, 15999, 16001),
    ] {
        let (bits, guesses) = bits(quantisation.clone(), None);
        assert!((low..=high).contains(&bits), "{quantisation}: {bits}");
        assert!(guesses.is_empty(), "{quantisation}: {guesses:?}");
    }
    let beside = json!({"producer": {"name": "modelopt"}, "quantization":
        {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}});
    assert_eq!(bits(Value::Null, Some(beside)).0 / 10, 450);
}

#[test]
fn an_unknown_quantisation_counts_as_none_and_is_said() {
    let (bits, guesses) = bits(json!({"quant_method": "brand_new"}), None);
    assert_eq!(bits, 16_000);
    assert_has(&guesses.join("\n"), &["`brand_new`", "upper bound"]);
    // Attention that is left as it was counts with its full width.
    let kept = json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.*.self_attn*"]});
    let (bits, _) = self::bits(kept, None);
    assert!((4501..16_000).contains(&bits), "{bits}");
}
