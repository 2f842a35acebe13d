//! Generation and engine settings of older files, and their effects: defaults on TGI, speculative keys, an adapter's prompt format,
//! weights of a mirror, the waiting keys of Aviary's scheduler.

use std::path::{Path, PathBuf};

use model_pool::catalog::{Catalog, Entry, Prompt, Recipe, Reference, Source};
use model_pool::config::Config;
use serde_json::{Value, json};

fn config() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    let text = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 80GiB}, {name: gpu1, memory: 80GiB}]}\n";
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), &Default::default()).unwrap()
}

fn read(document: &Value) -> (Entry, String) {
    let source = Source::File(PathBuf::from("m.yaml"));
    let read = Entry::from_document(document, source, &config(), &Reference::default());
    let (entry, warnings) = read.unwrap_or_else(|error| panic!("{error}: {document}"));
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    (entry, warnings.join("\n"))
}

/// A model of RayLLM 0.5's form.
fn rayllm(kind: &str, engine: Value) -> Value {
    let mut document = json!({
        "engine_config": {"model_id": "org/m", "type": kind},
        "scaling_config": {"num_workers": 1},
    });
    let keys = document["engine_config"].as_object_mut().unwrap();
    keys.extend(engine.as_object().unwrap().clone());
    document
}

/// The arguments of an option on the engine's command line.
fn option(entry: &Entry, key: &str) -> Option<String> {
    let Recipe::Server(server) = &entry.recipe else {
        panic!("an engine of the table");
    };
    let found = server.flags.of_key.iter().find(|(known, _)| known == key);
    found.map(|(_, words)| words.last().unwrap().clone())
}

#[test]
fn a_repetition_penalty_reaches_tgi_and_a_minimum_token_count_is_reported() {
    let kwargs = json!({"generation": {"generate_kwargs": {"repetition_penalty": 1.25, "min_new_tokens": 4}}});
    let (entry, warnings) = read(&rayllm("TextGenerationInferenceEngine", kwargs));
    assert_eq!(
        json!(entry.generation.defaults),
        json!({"repetition_penalty": 1.25})
    );
    // TGI's penalty for chats: the presence penalty and 2.
    assert_eq!(
        json!(entry.generation.in_chats),
        json!({"presence_penalty": -0.75})
    );
    let told = "generate_kwargs.min_new_tokens: has no effect: this engine does not take it; CandleEngine, VLLMEngine, SGLangEngine and TRTLLMEngine do";
    assert!(warnings.contains(told), "{warnings}");
    let kwargs = json!({"generation": {"generate_kwargs": {"repetition_penalty": 5.0}}});
    let (entry, warnings) = read(&rayllm("TextGenerationInferenceEngine", kwargs));
    assert!(
        entry.generation.in_chats.is_empty() && warnings.contains("in chats"),
        "{warnings}"
    );
}

#[test]
fn stop_token_ids_are_kept_for_engines_that_support_them() {
    let stops =
        json!({"generation": {"stopping_sequences": ["</s>", 2, "7"], "stopping_tokens": [32000]}});
    for kind in ["VLLMEngine", "SGLangEngine", "TRTLLMEngine"] {
        let (entry, _) = read(&rayllm(kind, stops.clone()));
        assert_eq!(entry.generation.stops, ["</s>"], "{kind}");
        assert_eq!(
            json!(entry.generation.stop_tokens),
            json!([2, 7, 32000]),
            "{kind}"
        );
    }
    let (entry, warnings) = read(&rayllm("TextGenerationInferenceEngine", stops));
    assert!(
        entry.generation.stop_tokens.is_empty() && warnings.contains("token ids have no effect"),
        "{warnings}"
    );
}

#[test]
fn the_old_speculative_keys_become_one_speculative_config() {
    let draft = json!({"engine_kwargs": {"speculative_model": "org/draft", "num_speculative_tokens": 5,
        "speculative_max_model_len": 2048, "speculative_draft_tensor_parallel_size": 1}});
    let (entry, _) = read(&rayllm("VLLMEngine", draft));
    let config: Value =
        serde_json::from_str(&option(&entry, "speculative_config").unwrap()).unwrap();
    assert_eq!(
        config,
        json!({"model": "org/draft", "num_speculative_tokens": 5, "max_model_len": 2048, "draft_tensor_parallel_size": 1})
    );
    let ngram = json!({"engine_kwargs": {"speculative_model": "[ngram]", "num_speculative_tokens": 4,
        "ngram_prompt_lookup_max": 3, "ngram_prompt_lookup_min": 1}});
    let (entry, _) = read(&rayllm("VLLMEngine", ngram));
    let config: Value =
        serde_json::from_str(&option(&entry, "speculative_config").unwrap()).unwrap();
    assert_eq!(
        config,
        json!({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1})
    );
    let off =
        json!({"engine_kwargs": {"speculative_model": "org/draft", "use_speculative": false}});
    let (entry, warnings) = read(&rayllm("VLLMEngine", off));
    assert!(option(&entry, "speculative_config").is_none());
    assert!(
        warnings.contains("speculative_model: has no effect: use_speculative is false"),
        "{warnings}"
    );
}

#[test]
fn anyscales_engine_options_are_renamed_to_vllms() {
    let own = json!({"engine_kwargs": {"max_log_probs": 7, "enable_cuda_graph": false, "enable_custom_nccl": true,
        "min_decodes_per_prefill": 4}});
    let (entry, warnings) = read(&rayllm("VLLMEngine", own));
    assert_eq!(option(&entry, "max_logprobs").as_deref(), Some("7"));
    assert_eq!(
        option(&entry, "enforce_eager").as_deref(),
        Some("--enforce-eager")
    );
    for key in ["enable_custom_nccl", "min_decodes_per_prefill"] {
        assert!(
            warnings.contains(&format!("{key}: has no effect: vLLM")),
            "{warnings}"
        );
    }
}

#[test]
fn a_missing_type_defaults_to_vllm_in_rayllm_files_and_is_refused_in_aviary_0_2() {
    let mut document = rayllm("VLLMEngine", json!({}));
    document["engine_config"]
        .as_object_mut()
        .unwrap()
        .remove("type");
    let (entry, warnings) = read(&document);
    assert_eq!(entry.recipe.engine(), "vllm");
    assert!(
        warnings.contains("engine_config.type: is missing; VLLMEngine is used"),
        "{warnings}"
    );
    document["engine_config"]["model_type"] = json!("embedding");
    assert_eq!(read(&document).0.recipe.engine(), "tei");
    document["engine_config"]["scheduler"] = json!({"policy": {"max_input_length": 100}});
    let source = Source::File(PathBuf::from("m.yaml"));
    let error = Entry::from_document(&document, source, &config(), &Reference::default());
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("engine_config.type: is missing"), "{error}");
}

#[test]
fn a_mirrored_model_is_stored_under_its_own_name_in_the_cache() {
    let mirror = json!({"s3_mirror_config": {"bucket_uri": "s3://lab/m"}});
    for kind in ["VLLMEngine", "CandleEngine"] {
        let (entry, _) = read(&rayllm(kind, mirror.clone()));
        let fetch = entry.fetch.expect("what is fetched");
        assert_eq!(fetch.id, "org/m", "{kind}");
    }
}

#[test]
fn aviarys_waiting_served_ratio_reaches_the_embedded_engine() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/models/tiny-chat");
    let mut document = rayllm("CandleEngine", json!({"model_path": model}));
    document["engine_config"]["scheduler"] = json!({"policy": {"type": "QuotaBasedTaskSelectionPolicy",
        "max_iterations_curr_batch": 7, "waiting_served_ratio": 1.5}});
    let (entry, warnings) = read(&document);
    let Recipe::Candle(candle) = &entry.recipe else {
        panic!("the embedded engine");
    };
    let joining = candle.budgets.joining.expect("both keys");
    assert_eq!((joining.served_ratio_milli, joining.steps), (1500, 7));
    assert!(!warnings.contains("waiting_served_ratio"), "{warnings}");
    document["engine_config"]["scheduler"]["policy"]["waiting_served_ratio"] = json!(-1);
    let source = Source::File(PathBuf::from("m.yaml"));
    let error = Entry::from_document(&document, source, &config(), &Reference::default());
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("waiting_served_ratio: -1 is not allowed; allowed: 0 to 1000"),
        "{error}"
    );
}

#[test]
fn an_adapter_has_its_own_prompt_format_and_inherits_the_rest_from_its_base_model() {
    let folder = tempfile::tempdir().unwrap();
    let adapter = folder.path().join("polite");
    std::fs::create_dir(&adapter).unwrap();
    let base = "engine_config:\n  model_id: org/base\n  type: VLLMEngine\n  generation:\n    prompt_format: {system: \"{instruction}\", user: \"U:{instruction}\", assistant: \"{instruction}\", trailing_assistant: \"\"}\n    generate_kwargs: {temperature: 0.5}\n    stopping_sequences: [stop]\nscaling_config: {num_workers: 1}\n";
    std::fs::write(folder.path().join("base.yaml"), base).unwrap();
    let own = format!(
        "base_model_id: org/base\nmodel_id: org/base:polite:7\nlora_path: {adapter:?}\nnickname: x\ngeneration:\n  prompt_format: {{system: \"{{instruction}}\", user: \"Please, {{instruction}}\", assistant: \"{{instruction}}\", trailing_assistant: \"\"}}\n  stopping_tokens: [5]\n"
    );
    std::fs::write(folder.path().join("adapter.yaml"), own).unwrap();
    let (catalog, warnings, errors) =
        Catalog::load_from(&[folder.path().to_owned()], &config()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let entry = catalog.get("org/base:polite:7").expect("the adapter");
    let prompt = |name: &str| match &entry.generation_of(name).prompt {
        Prompt::Format(format) => format
            .render(&[json!({"role": "user", "content": "go"})])
            .unwrap(),
        _ => panic!("a format"),
    };
    assert_eq!(prompt("org/base"), "U:go");
    assert_eq!(prompt("org/base:polite:7"), "Please, go");
    let of_adapter = entry.generation_of("org/base:polite:7");
    assert_eq!(json!(of_adapter.defaults), json!({"temperature": 0.5}));
    assert_eq!(
        (of_adapter.stops.len(), json!(of_adapter.stop_tokens)),
        (0, json!([5]))
    );
    let nickname = warnings
        .iter()
        .find(|warning| warning.to_string().contains("nickname"));
    assert!(nickname.is_some(), "{warnings:?}");
}

#[test]
fn the_tests_cited_in_the_table_of_old_features_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/reference/compatibility.md")).unwrap();
    let (_, table) = page
        .split_once("## Old features and their place here")
        .expect("the table");
    let mut sources = String::new();
    let mut folders = vec![
        root.join("tests"),
        root.join("src"),
        root.join("candle-engine/src"),
    ];
    let mut modules = Vec::new();
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                modules.push(stem);
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                modules.push(stem);
                sources += &std::fs::read_to_string(&path).unwrap();
            }
        }
    }
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cell = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            let parts: Vec<&str> = name.split("::").collect();
            let (last, above) = parts.split_last().unwrap();
            for module in above {
                let inline = format!("mod {module} {{");
                assert!(
                    modules.iter().any(|known| known == module) || sources.contains(&inline),
                    "{name}"
                );
            }
            assert!(
                last.is_empty()
                    || sources.contains(&format!("fn {last}("))
                    || modules.iter().any(|known| known == last),
                "{name}"
            );
            named += 1;
        }
    }
    assert!(named > 25, "{named}");
}
