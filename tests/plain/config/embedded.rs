//! Models of the embedded engine: their keys, their uses, and errors before a load.

use model_pool::catalog::{
    CANDLE_CPU_OVERHEAD, CacheType, ExtraRoute, ProductType, Quantization, Recipe,
};
use model_pool::config::Config;
use model_pool::pool::Bytes;
use serde_json::{Value, json};
use support::table;

use super::assert_has;
use super::documents::{candle, read};

/// Options | parts of the message
const WRONG_OPTIONS: &str = r#"
    {"quantization": "q5_k"} | engine_kwargs.quantization | q5_k | q8_0
    {"dtype": "half"} | engine_kwargs.dtype | half | bfloat16
    {"kv_cache_dtype": "fp8"} | engine_kwargs.kv_cache_dtype | fp8 | float16
    {"kv_cache_dtype": "float16", "device": "cuda"} | engine_kwargs.kv_cache_dtype | on cuda | remove it
    {"verify": "yes"} | engine_kwargs.verify | yes | true or false
    {"task": "ranking"} | engine_kwargs.task | ranking | rerank
    {"quantisation": "q8_0"} | engine_kwargs | quantisation | quantization
"#;

#[test]
fn options_of_the_embedded_engine_are_parsed_and_invalid_ones_refused() {
    let kwargs = |value: Value| candle(&[("engine_config.engine_kwargs", value)]);
    let (entry, _) = read(&kwargs(json!({"quantization": "q4_k", "verify": true}))).unwrap();
    let Recipe::Candle(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    assert_eq!(
        (recipe.quantization, recipe.verify),
        (Some(Quantization::Q4K), true)
    );
    for row in table::rows(WRONG_OPTIONS) {
        let refused = read(&kwargs(table::json(row[0]))).unwrap_err();
        assert_has(&refused.to_string(), &row[1..]);
    }
}

/// `speculative_config` | parts of the message
const WRONG_SPECULATION: &str = r#"
    {"num_speculative_tokens": 65} | num_speculative_tokens | 65 | 0 to 64
    {"prompt_lookup_max": 0} | prompt_lookup_max | 0 | 1 to 16
    {"prompt_lookup_max": 2, "prompt_lookup_min": 3} | prompt_lookup_min | is 3 | which is 2
    {"method": "eagle"} | speculative_config | method | ngram
    {"model": "a-draft"} | speculative_config | model | method
"#;

#[test]
fn speculation_uses_vllms_option_names_and_null_turns_it_off() {
    let with = |speculative: Value| {
        let kwargs = json!({"speculative_config": speculative});
        read(&candle(&[("engine_config.engine_kwargs", kwargs)]))
    };
    let figures = |entry: &Recipe| {
        let Recipe::Candle(recipe) = entry else {
            panic!("{entry:?}")
        };
        let speculation = recipe.speculation;
        (
            speculation.tokens,
            speculation.lookup_max,
            speculation.lookup_min,
        )
    };
    let (entry, _) = read(&candle(&[])).unwrap();
    assert_eq!(
        figures(&entry.recipe),
        (None, None, None),
        "the engine's own choice"
    );
    for (speculative, expected) in [
        (Value::Null, (Some(0), None, None)),
        (json!({"num_speculative_tokens": 0}), (Some(0), None, None)),
        (
            json!({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}),
            (Some(5), Some(4), Some(1)),
        ),
        (json!({"prompt_lookup_max": 1}), (None, Some(1), Some(1))),
        (json!({"prompt_lookup_min": 5}), (None, Some(5), Some(5))),
    ] {
        let (entry, _) = with(speculative).unwrap();
        assert_eq!(figures(&entry.recipe), expected);
    }
    for row in table::rows(WRONG_SPECULATION) {
        let refused = with(table::json(row[0])).unwrap_err();
        assert_has(&refused.to_string(), &row[1..]);
    }
}

#[test]
fn the_number_types_use_vllms_names_and_default_to_the_engines_choice() {
    let numbers = |kwargs: Value| {
        let (entry, _) = read(&candle(&[("engine_config.engine_kwargs", kwargs)])).unwrap();
        let Recipe::Candle(recipe) = entry.recipe else {
            panic!("{:?}", entry.recipe)
        };
        (recipe.numbers.products, recipe.numbers.kv_cache)
    };
    let auto = (ProductType::Auto, CacheType::Auto);
    assert_eq!(numbers(json!({})), auto);
    assert_eq!(
        numbers(json!({"dtype": "auto", "kv_cache_dtype": "auto"})),
        auto
    );
    assert_eq!(
        numbers(json!({"dtype": "float32", "kv_cache_dtype": "float16"})),
        (ProductType::F32, CacheType::F16)
    );
}

#[test]
fn the_embedded_engine_can_sleep_but_not_discard_its_weights() {
    let sleeps = |word: &str| read(&candle(&[("pool_config.sleep", json!(word))]));
    let (entry, _) = sleeps("weights").unwrap();
    let parking = entry.parking.expect("it sleeps");
    assert_eq!(
        (parking.sleep.path, parking.is_sleeping),
        ("/sleep", Some("/is_sleeping"))
    );
    let (spec, _) = entry.spec(&Config::default(), None).unwrap();
    let parking = spec.parking.expect("it sleeps");
    assert_eq!(
        parking.host,
        Bytes::ZERO,
        "its weights are the system's pages"
    );
    assert_eq!(parking.resident_per_device, CANDLE_CPU_OVERHEAD);
    let refused = sleeps("discard").unwrap_err().to_string();
    assert_has(&refused, &["discard", "CandleEngine (weights; on a GPU"]);
}

#[test]
fn several_gpus_for_a_model_on_the_cpu_are_refused_with_the_correction() {
    let document = candle(&[("pool_config.gpus_per_replica", json!(2))]);
    let refused = read(&document).unwrap_err().to_string();
    assert_has(
        &refused,
        &[
            "engine_kwargs.device",
            "takes 2",
            "gpus_per_replica to 1",
            "cuda",
        ],
    );
    let (entry, _) = read(&candle(&[])).unwrap();
    let (spec, _) = entry.spec(&Config::default(), None).unwrap();
    assert_eq!((spec.devices_max, spec.wider.len()), (1, 0));
}

#[test]
fn gguf_file_is_accepted_only_for_the_embedded_engine() {
    let of = |kind: &str, file: &str| json!({"engine_config": {"model_id": "m", "type": kind, "hf_model_id": "org/m-GGUF", "gguf_file": file}});
    let (entry, _) = read(&of("CandleEngine", "q/m-Q4_K_M.gguf")).unwrap();
    let Recipe::Candle(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    assert!(recipe.model_path.ends_with("q/m-Q4_K_M.gguf"));
    assert_eq!(
        entry.fetch.map(|fetch| fetch.model_path()),
        Some(recipe.model_path.clone())
    );
    for wrong in ["../m.gguf", "/m.gguf", "m.bin", ""] {
        let refused = read(&of("CandleEngine", wrong)).unwrap_err().to_string();
        assert_has(&refused, &["engine_config.gguf_file", "model-Q4_K_M.gguf"]);
    }
    let refused = read(&of("VLLMEngine", "m.gguf")).unwrap_err().to_string();
    assert_has(
        &refused,
        &[
            "engine_config.gguf_file",
            "only read with type: CandleEngine",
        ],
    );
}

fn with_config_json(text: &str) -> (tempfile::TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), text).unwrap();
    let document = candle(&[("engine_config.model_path", json!(folder.path()))]);
    (folder, document)
}

#[test]
fn a_model_the_embedded_engine_does_not_support_is_refused_before_it_is_loaded() {
    let (_folder, document) = with_config_json(r#"{"architectures": ["XlstmForCausalLM"]}"#);
    let refused = read(&document).unwrap_err().to_string();
    assert_has(
        &refused,
        &[
            "engine_config.model_path",
            "XlstmForCausalLM",
            "Qwen3MoeForCausalLM",
        ],
    );
}

#[test]
fn a_context_longer_than_the_models_is_refused_with_the_models() {
    let (_folder, mut document) = with_config_json(
        r#"{"architectures": ["LlamaForCausalLM"], "num_attention_heads": 2, "num_hidden_layers": 1, "hidden_size": 8, "max_position_embeddings": 100}"#,
    );
    document["engine_config"]["max_total_tokens"] = json!(101);
    let refused = read(&document).unwrap_err().to_string();
    assert_has(&refused, &["max_total_tokens", "is 101", "100"]);
    document["engine_config"]["max_total_tokens"] = json!(100);
    assert!(read(&document).is_ok());
}

#[test]
fn the_embedded_engine_offers_only_the_routes_its_model_supports() {
    let has = |architecture: &str| {
        let text = json!({"architectures": [architecture], "num_attention_heads": 2}).to_string();
        let (_folder, document) = with_config_json(&text);
        let (entry, _) = read(&document).unwrap();
        let routes = [
            ExtraRoute::Embeddings,
            ExtraRoute::Rerank,
            ExtraRoute::Score,
            ExtraRoute::Tokenize,
            ExtraRoute::Transcriptions,
        ];
        (
            routes.map(|route| entry.recipe.has(route)),
            entry.recipe.generates(),
        )
    };
    assert_eq!(
        has("Qwen2ForCausalLM"),
        ([false, false, false, true, false], true)
    );
    assert_eq!(has("BertModel"), ([true, false, false, true, false], false));
    assert_eq!(
        has("Qwen3Model"),
        ([true, false, false, true, false], false)
    );
    let speech = "WhisperForConditionalGeneration";
    assert_eq!(has(speech), ([false, false, false, false, true], false));
    let ranks = "Qwen3ForSequenceClassification";
    assert_eq!(has(ranks), ([false, true, true, true, false], false));
    let ranks = "XLMRobertaForSequenceClassification";
    assert_eq!(has(ranks), ([false, true, true, true, false], false));
}

#[test]
fn a_decoder_serves_the_task_named_in_its_file() {
    let read_with = |architecture: &str, task: &str| {
        let text = json!({"architectures": [architecture], "num_attention_heads": 2}).to_string();
        let (_folder, mut document) = with_config_json(&text);
        document["engine_config"]["engine_kwargs"] = json!({"task": task});
        read(&document)
    };
    for (task, routes, generates) in [
        ("generate", [false, false], true),
        ("embed", [true, false], false),
        ("rerank", [false, true], false),
    ] {
        let (entry, _) = read_with("Qwen3ForCausalLM", task).unwrap();
        let has = [ExtraRoute::Embeddings, ExtraRoute::Rerank].map(|route| entry.recipe.has(route));
        assert_eq!((has, entry.recipe.generates()), (routes, generates));
        let Recipe::Candle(recipe) = &entry.recipe else {
            panic!("{:?}", entry.recipe)
        };
        assert_eq!(recipe.task.map(|task| task.as_str()), Some(task));
    }
    for (architecture, task, own) in [
        ("BertModel", "rerank", "embed"),
        ("Qwen3ForSequenceClassification", "generate", "rerank"),
    ] {
        let refused = read_with(architecture, task).unwrap_err().to_string();
        assert_has(&refused, &["engine_kwargs.task", task, own, "remove it"]);
        assert!(read_with(architecture, own).is_ok());
    }
    let refused = read_with("Qwen3ForCausalLM", "chat")
        .unwrap_err()
        .to_string();
    assert_has(&refused, &["chat", "generate", "rerank"]);
}

#[test]
fn layers_overflow_to_the_cpu_only_with_cuda_and_a_memory_limit() {
    let overflow = |device: &str| {
        let kwargs = json!({"overflow": "cpu", "device": device});
        let read = read(&candle(&[("engine_config.engine_kwargs", kwargs)]));
        read.unwrap_err().to_string()
    };
    assert_has(&overflow("cpu"), &["engine_kwargs.overflow", "write cuda"]);
    assert_has(&overflow("cuda"), &["memory_gib"]);
}
