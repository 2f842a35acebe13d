//! Model files of predecessor systems: real files of four releases, and each format's keys. They load, and their warnings name
//! file, line and key.

use std::path::{Path, PathBuf};

use model_pool::catalog::{Catalog, CatalogError, Entry, Prompt, Warning};
use model_pool::config::Config;
use serde_json::json;
use support::assert_has;
use support::table::rows;

fn rayllm() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rayllm")
}

/// A pool of eight GPUs.
fn config() -> Config {
    let mut config = super::old_keys::config("");
    let reference = tempfile::tempdir().unwrap().keep().join("none.json");
    std::fs::write(&reference, "{}").unwrap();
    // It is read together with the models.
    config.catalog.model_reference = reference;
    config
}

type LoadResult = (Catalog, Vec<Warning>, Vec<CatalogError>);

fn load(paths: &[PathBuf]) -> LoadResult {
    Catalog::load_from(paths, &config()).unwrap()
}

fn load_text(text: &str) -> LoadResult {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.yaml");
    std::fs::write(&file, text).unwrap();
    load(&[file])
}

fn only(text: &str) -> (Entry, String) {
    let (catalog, warnings, errors) = load_text(text);
    assert!(errors.is_empty(), "{errors:?}");
    let mut entries = catalog.entries().values();
    let entry = entries.next().expect("a model").clone();
    assert!(entries.next().is_none());
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    (entry, warnings.join("\n"))
}

fn refusal(text: &str) -> String {
    let (_, _, errors) = load_text(text);
    errors[0].to_string()
}

#[test]
fn every_real_file_loads_or_reports_that_it_is_disabled() {
    let mut seen = 0;
    for folder in ["v0.0.1", "v0.1.2", "v0.2.0", "v0.5.0"] {
        let (catalog, warnings, errors) = load(&[rayllm().join(folder)]);
        assert!(errors.is_empty(), "{folder}: {errors:?}");
        let left_out = warnings
            .iter()
            .filter(|warning| warning.to_string().contains("skipped"))
            .count();
        let files = std::fs::read_dir(rayllm().join(folder)).unwrap().count();
        assert_eq!(catalog.entries().len() + left_out, files, "{folder}");
        seen += files;
    }
    assert_eq!(seen, 15);
}

#[test]
fn one_model_in_two_releases_is_refused_with_both_files() {
    let (_, _, errors) = load(&[rayllm()]);
    let text = errors[0].to_string();
    assert_has(
        &text,
        &["v0.2.0/meta-llama", "v0.5.0/meta-llama", "two models"],
    );
    assert_eq!(errors.len(), 1);
}

#[test]
fn a_file_of_aviary_0_0_keeps_its_prompt_sampling_and_gpus() {
    let (catalog, warnings, _) = load(&[rayllm().join("v0.0.1/databricks--dolly-v2-12b.yaml")]);
    let entry = catalog.get("databricks/dolly-v2-12b").expect("the model");
    assert_eq!(entry.recipe.engine(), "vllm");
    assert_eq!(entry.devices_per_replica, 2);
    assert_eq!(entry.generation.stops, ["### Response:", "### End"]);
    assert_eq!(
        json!(entry.generation.defaults),
        json!({"max_tokens": 512, "min_tokens": 16, "top_p": 0.92, "temperature": 1.0})
    );
    let Prompt::Format(format) = &entry.generation.prompt else {
        panic!("a prompt format");
    };
    let prompt = format.render(&[json!({"role": "user", "content": "Why?"})]);
    assert!(
        prompt
            .unwrap()
            .ends_with("### Instruction:\nWhy?\n### Response:\n")
    );
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_has(
        &texts.join("\n"),
        &[
            "line 22: model_config.initialization.initializer.type: the transformers pipeline",
            "model_config.generation.max_batch_size: has no effect",
        ],
    );
}

#[test]
fn the_continuous_batching_of_aviary_becomes_token_budgets_of_tgi() {
    let (catalog, _, _) = load(&[
        rayllm().join("v0.1.2"),
        rayllm().join("v0.2.0/lmsys--vicuna-13b-v1.3.yaml"),
    ]);
    for name in ["lmsys/vicuna-33b-v1.3", "lmsys/vicuna-13b-v1.3"] {
        let entry = catalog.get(name).expect(name);
        assert_eq!(entry.recipe.engine(), "tgi", "{name}");
        let engine = &entry.to_document()["engine_config"]["engine_kwargs"];
        assert!(engine["max_batch_prefill_tokens"].is_u64(), "{engine}");
    }
    let text = "engine_config:\n  model_id: a/b\n  type: TextGenerationInferenceEngine\n  scheduler:\n    policy:\n      max_input_length: 900\n      max_batch_prefill_tokens: 800\n";
    assert_has(
        &refusal(text),
        &[
            "line 6: engine_config.scheduler.policy.max_input_length",
            "900",
            "800",
        ],
    );
}

#[test]
fn a_duplicate_model_key_uses_the_last_value_and_is_reported_with_both_lines() {
    let (entry, texts) = only(
        "engine_config:\n  model_id: a/b\n  type: VLLMEngine\n  max_total_tokens: 100\n  max_total_tokens: 200\n",
    );
    assert_eq!(
        entry.to_document()["engine_config"]["max_total_tokens"],
        200
    );
    assert_has(
        &texts,
        &[
            "model.yaml: line 5: engine_config.max_total_tokens: is given twice, in line 4 and line 5",
        ],
    );
}

/// A file | parts of the message
const WRONG: &str = r#"
    engine_config:\n  model_id: a/b\n  type: VLLMEngine\npool_config:\n  priority: -1\n | model.yaml: line 5: pool_config.priority | -1
    model_config:\n  model_id: a/b\n  initialization:\n    initializer: {type: TensorFlow}\n | line 4: model_config.initialization.initializer.type | DeepSpeed
    engine_config:\n  model_id: a/b\n  type: VLLMEngine\n  generation:\n    prompt_format: {system: x, user: "{instruction}", assistant: w, trailing_assistant: z}\n | line 5: engine_config.generation.prompt_format.system | {instruction}
    engine_config:\n  model_id: a/b\n  type: VLLMEngine\n  generation:\n    generate_kwargs:\n      top_p: 3\n | line 6: engine_config.generation.generate_kwargs.top_p | to 1
    engine_config:\n  model_id: a/b\n  type: VLLMEngin\n | line 3: engine_config.type | did you mean `VLLMEngine`?
    engine_config:\n  model_id: a/b\n  type: VLLMEngine\n  sheduler: 1\n | line 4 | unknown key `sheduler`
"#;

#[test]
fn a_mistake_is_reported_with_file_line_and_key_as_written() {
    for row in rows(WRONG) {
        assert_has(&refusal(row[0]), &row[1..]);
    }
}

#[test]
fn of_two_keys_for_one_value_the_one_in_use_is_reported() {
    let with = |kwargs: &str| {
        only(&format!(
            "engine_config:\n  model_id: a/b\n  type: VLLMEngine\n  generation:\n    generate_kwargs:\n{kwargs}"
        ))
    };
    for cold in [
        "      do_sample: false\n      temperature: 0.7\n",
        "      temperature: 0.7\n      do_sample: false\n",
    ] {
        let (entry, warnings) = with(cold);
        assert_eq!(entry.generation.defaults["temperature"], json!(0));
        let key = "engine_config.generation.generate_kwargs.temperature: has no effect";
        assert_has(&warnings, &[key]);
    }
    let (entry, warnings) = with("      max_new_tokens: 5\n      max_tokens: 9\n");
    assert_eq!(entry.generation.defaults["max_tokens"], json!(9));
    assert_has(
        &warnings,
        &["line 7: engine_config.generation.generate_kwargs.max_tokens: is used instead of 5"],
    );
    let (_, agreed) = with("      do_sample: false\n      temperature: 0\n");
    assert!(!agreed.contains("temperature"), "{agreed}");
}

#[test]
fn a_ray_serve_configuration_may_contain_several_models() {
    let text = "applications:\n- args:\n    llm_configs:\n      - model_loading_config: {model_id: qwen, model_source: Qwen/Qwen2.5-7B-Instruct}\n        accelerator_type: A10G\n        engine_kwargs: {tensor_parallel_size: 2, max_model_len: 8192}\n        deployment_config:\n          autoscaling_config: {min_replicas: 1, max_replicas: 2}\n        runtime_env: {env_vars: {HF_TOKEN: hf_secret}}\n      - model_loading_config:\n          model_id: llama\n          model_source: {bucket_uri: \"s3://lab/llama\"}\n        log_engine_metrics: true\n      - ./other.yaml\n";
    let (catalog, warnings, errors) = load_text(text);
    assert!(errors.is_empty(), "{errors:?}");
    let qwen = catalog.get("qwen").expect("the first");
    let document = qwen.to_document();
    assert_eq!(
        document["engine_config"]["hf_model_id"],
        "Qwen/Qwen2.5-7B-Instruct"
    );
    assert_eq!(document["engine_config"]["max_total_tokens"], 8192);
    assert_eq!(
        (qwen.devices_per_replica, qwen.devices.kinds.as_slice()),
        (2, &["A10G".to_owned()][..])
    );
    assert!(
        !format!("{qwen:?}").contains("hf_secret"),
        "secrets are not printed"
    );
    assert!(catalog.get("llama").is_some());
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_has(
        &texts.join("\n"),
        &[
            "line 14: applications[0].args.llm_configs[2]: refers to another file",
            "line 13: applications[0].args.llm_configs[1].log_engine_metrics",
        ],
    );
}

#[test]
fn accelerator_types_in_every_spelling_map_to_gpu_kinds() {
    for (resource, kind) in [
        ("accelerator_type_a10", "A10"),
        ("\"accelerator_type:A100-40G\"", "A100 40G"),
        ("\"accelerator_type:NVIDIA_L4\"", "L4"),
        ("accelerator_type_a100_80g", "A100 80G"),
    ] {
        let (entry, _) = only(&format!(
            "engine_config: {{model_id: a/b, type: VLLMEngine}}\nscaling_config: {{num_workers: 1, resources_per_worker: {{{resource}: 0.01}}}}\n"
        ));
        assert_eq!(entry.devices.kinds, [kind]);
    }
    let (entry, texts) = only(
        "engine_config: {model_id: a/b, type: VLLMEngine}\nscaling_config: {resources_per_worker: {accelerator_type_cpu: 0.01}}\n",
    );
    assert!(entry.devices.kinds.is_empty());
    assert_has(&texts, &["scaling_config.resources_per_worker"]);
}

#[test]
fn a_models_folder_is_read_recursively_and_links_leading_out_of_it_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("team/quantised");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(
        below.join("m.yml"),
        "engine_config: {model_id: a/b, type: VLLMEngine}\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("x.yaml Latest"), "").unwrap();
    let (catalog, warnings, errors) = load(&[folder.path().to_owned()]);
    assert!(errors.is_empty() && catalog.get("a/b").is_some());
    assert_has(
        &warnings[0].to_string(),
        &["x.yaml Latest", "does not end in .yaml"],
    );
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("p.yaml")).unwrap();
    let (catalog, _, errors) = load(&[folder.path().to_owned()]);
    assert!(catalog.get("a/b").is_some(), "everything else is read");
    assert_eq!(catalog.broken()[0].name, "p.yaml");
    assert_has(
        &errors[0].to_string(),
        &["p.yaml", "/etc/passwd", "outside"],
    );
}

#[test]
fn files_that_would_exhaust_the_parser_are_refused_with_an_explanation() {
    let bomb = (1..9).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(),
        |text, nth| {
            let last = format!("*a{}", nth - 1);
            text + &format!("a{nth}: &a{nth} [{}]\n", [last.as_str(); 9].join(", "))
        },
    );
    assert_has(&refusal(&bomb), &["model.yaml", "without aliases"]);
    assert_has(&refusal(&"[".repeat(20_000)), &["model.yaml"]);
    assert_has(&refusal(&" ".repeat(2 << 20)), &["2097152 bytes long"]);
    assert_has(&refusal("engine_config:\n\tmodel_id: a\n"), &["model.yaml"]);
    for name in ["../x", "a/b/c", "a\\u0007b"] {
        let text = format!("engine_config: {{model_id: \"{name}\", type: VLLMEngine}}\n");
        assert_has(&refusal(&text), &["engine_config.model_id"]);
    }
    let long = "x".repeat(5_000);
    for text in [
        format!("engine_config: {{model_id: {long}, type: VLLMEngine}}\n"),
        format!(
            "engine_config: {{model_id: a, type: VLLMEngine}}\npool_config: {{aliases: [{long}]}}\n"
        ),
    ] {
        let refusal = refusal(&text);
        assert_has(&refusal, &["5000 bytes long"]);
        assert!(refusal.len() < 500, "{refusal}");
    }
}

#[test]
fn odd_values_are_refused_or_warned_about_and_never_crash_the_program() {
    let private = |more: &str| {
        format!("model_loading_config: {{model_id: m, model_source: org/m-7b}}\n{more}")
    };
    let huge = private(
        "tensor_parallelism: {degree: 9999999999999}\npipeline_parallelism: {degree: 9999999999}\n",
    );
    assert_has(
        &refusal(&huge),
        &["line 2: tensor_parallelism.degree", "1 to 4096"],
    );
    assert_has(
        &refusal(&private("accelerator_type: 7\n")),
        &["line 2: accelerator_type"],
    );
    assert_has(
        &refusal(&private("llm_engine: 5\n")),
        &["line 2: llm_engine"],
    );
    let (_, texts) = only(&private("accelerator_type: CPU\n"));
    assert_has(&texts, &["accelerator_type: has no effect"]);
    let (entry, _) = only(
        "engine_config: {type: VLLMEngine, model_id: org/m-7b, hf_model_id: null, model_path: null}\ndeployment_config:\nstandalone_function_calling_model: true\n",
    );
    assert_eq!(
        entry.to_document()["engine_config"]["hf_model_id"],
        "org/m-7b"
    );
    let (_, texts) = only(
        "engine_config: {type: VLLMEngine, model_id: org/m-7b}\nscaling_config: {resources_per_worker: {accelerator_type_a10: 0.01, mine: 3}}\n",
    );
    assert_has(
        &texts,
        &["scaling_config.resources_per_worker.mine: has no effect"],
    );
    let (catalog, warnings, errors) = load_text("applications: [{args: {models: ./models}}]\n");
    assert!(catalog.entries().is_empty() && errors.is_empty());
    assert_has(&format!("{warnings:?}"), &["refers to another file"]);
    let many = format!("llm_configs: [{}]", "1, ".repeat(20_000));
    assert_has(&refusal(&many), &["20000 models"]);
}

#[test]
fn a_duplicate_json_key_also_uses_the_last_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.json");
    let text =
        r#"{"engine_config": {"type": "VLLMEngine", "model_id": "org/a", "model_id": "org/b"}}"#;
    std::fs::write(&file, text).unwrap();
    let (catalog, warnings, errors) = load(&[file]);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(catalog.get("org/b").is_some());
    assert_has(
        &warnings[0].to_string(),
        &["engine_config.model_id: is given twice"],
    );
}
