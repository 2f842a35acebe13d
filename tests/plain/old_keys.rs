//! Every key of any release of Aviary, RayLLM, Anyscale's templates or Ray Serve LLM, inserted into real files of each form, one at
//! a time: none of these files is refused, and a key without effect is reported. The keys come from the releases' model classes.

mod keys;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use keys::{Nothing, Warning, aviary_0_1, llm_config, rayllm};
use model_pool::catalog::{Catalog, Entry, Reference, Source, table_of_keys_without_effect};
use model_pool::config::Config;
use serde_json::{Map, Value, json};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A pool of eight GPUs.
pub fn config(more: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    let devices: Vec<String> = (0..8)
        .map(|nth| format!("{{name: gpu{nth}, memory: 80GiB}}"))
        .collect();
    let text = format!(
        "inventory: {{provider: fixed, devices: [{}]}}\n{more}",
        devices.join(", ")
    );
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), &BTreeMap::new()).unwrap()
}

/// Every model of the fixtures: its file, its form's keys, and the document.
fn models() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for folder in ["v0.0.1", "v0.1.2", "v0.2.0", "v0.5.0", "../anyscale"] {
        let folder = repository("tests/fixtures/rayllm").join(folder);
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut document: Value = reading::yaml_last_wins(&text).unwrap();
            if document.get("applications").is_some() {
                continue;
            }
            // A disabled section is not read.
            if let Some(keys) = document.as_object_mut() {
                keys.remove("enabled");
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, document));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn with(document: &Value, path: &str, value: Value) -> Value {
    let mut document = document.clone();
    let mut at = &mut document;
    let keys: Vec<&str> = path.split('.').collect();
    let (last, above) = keys.split_last().unwrap();
    for key in above {
        let keys = at.as_object_mut().unwrap();
        let below = keys.entry(*key).or_insert(Value::Null);
        if !below.is_object() {
            *below = Value::Object(Map::new());
        }
        at = below;
    }
    at.as_object_mut()
        .unwrap()
        .insert((*last).to_owned(), value);
    document
}

fn read(document: &Value, config: &Config) -> Result<(Entry, Vec<String>), String> {
    let source = Source::File(PathBuf::from("m.yaml"));
    let read = Entry::from_document(document, source, config, &Reference::default());
    let (entry, warnings) = read.map_err(|error| error.to_string())?;
    Ok((entry, warnings.iter().map(ToString::to_string).collect()))
}

#[test]
fn every_key_of_a_past_release_is_accepted_and_takes_effect_or_is_reported() {
    let config = config("");
    let (mut report, mut failed) = (String::new(), String::new());
    let (mut files, mut sums) = (0, [0, 0]);
    for (file, document) in models() {
        let keys = keys_of(&document);
        let before = read(&document, &config);
        let before = before.unwrap_or_else(|error| panic!("{file}: {error}"));
        let (mut understood, mut warned) = (0, 0);
        for (path, value, told) in keys {
            let mut changed = with(&document, &path, value.clone());
            let engine = &mut changed["engine_config"];
            // The combination of both was never allowed.
            for (one, other) in [("gcs", "s3"), ("s3", "gcs")] {
                if path == format!("engine_config.{one}_mirror_config") {
                    engine
                        .as_object_mut()
                        .unwrap()
                        .remove(&format!("{other}_mirror_config"));
                }
            }
            if !document.as_object().unwrap().contains_key("engine_config") {
                changed.as_object_mut().unwrap().remove("engine_config");
            }
            let (_, warnings) = match read(&changed, &config) {
                Ok(read) => read,
                Err(error) => {
                    writeln!(failed, "{file}: {path}: {value} is refused: {error}").unwrap();
                    continue;
                }
            };
            let names = |text: &&String| text.contains(path.rsplit('.').next().unwrap());
            let is_told = warnings.iter().find(names).is_some();
            match told {
                Warning if !is_told => {
                    writeln!(
                        failed,
                        "{file}: {path}: {value}: no word of it in {warnings:?}"
                    )
                    .unwrap();
                }
                Warning => warned += 1,
                Nothing => understood += 1,
            }
        }
        let was = before.1.len();
        let together = read(&with_all(&document), &config);
        let together = match together {
            Ok((_, warnings)) => format!("{} warnings with all keys together", warnings.len()),
            Err(error) => {
                writeln!(failed, "{file}: all keys together are refused: {error}").unwrap();
                "refused with all keys together".to_owned()
            }
        };
        for (sum, part) in sums.iter_mut().zip([understood, warned]) {
            *sum += part;
        }
        files += 1;
        writeln!(report, "{file}: {was} warnings as it is; of the keys {understood} understood, {warned} warned of; {together}").unwrap();
    }
    let [understood, warned] = sums;
    let refused = failed.lines().count();
    writeln!(report, "{files} files, {} keys put into them: {understood} understood, {warned} warned of, {refused} refused or without a word", understood + warned + refused).unwrap();
    println!("{report}");
    assert!(failed.is_empty(), "{failed}");
    assert!(files >= 17, "only {files} files were tried");
}

/// Keys of the releases that used this form.
fn keys_of(document: &Value) -> Vec<keys::Key> {
    if document.get("model_config").is_some() {
        aviary_0_1(document)
    } else if document.get("model_loading_config").is_some() {
        llm_config()
    } else {
        rayllm(document)
    }
}

/// The document with every key of its form, each with the first value of the list. Omits keys inside a section that the file or the
/// list already has, and combinations that were never allowed.
fn with_all(document: &Value) -> Value {
    let mut all = document.clone();
    let mut put: Vec<String> = Vec::new();
    for (path, value, _) in keys_of(document) {
        let is_within =
            |one: &str, other: &str| one == other || one.starts_with(&format!("{other}."));
        let is_there = put
            .iter()
            .any(|other| is_within(other, &path) || is_within(&path, other));
        let mirror = path.ends_with("s3_mirror_config") || path.ends_with("gcs_mirror_config");
        if is_there || mirror || path == "engine_config" {
            continue;
        }
        all = with(&all, &path, value);
        put.push(path);
    }
    all
}

#[test]
fn an_unknown_old_key_is_a_warning_with_a_suggestion_and_refused_in_strict_mode() {
    let (loose, strict) = (config(""), config("catalog: {strict: true}\n"));
    for (path, near) in [
        ("deployment_confg", "deployment_config"),
        ("scaling_config.num_worker", "num_workers"),
        (
            "deployment_config.autoscaling_config.max_replica",
            "max_replicas",
        ),
        ("engine_config.max_total_token", "max_total_tokens"),
        ("engine_config.engine_kwargs.max_num_seq", "max_num_seqs"),
        (
            "engine_config.generation.stopping_sequence",
            "stopping_sequences",
        ),
        ("engine_config.generation.prompt_format.sytem", "system"),
    ] {
        for (file, document) in models() {
            if document["engine_config"]["type"] != "VLLMEngine" {
                continue;
            }
            let document = with(&document, path, json!(1));
            let (_, warnings) =
                read(&document, &loose).unwrap_or_else(|error| panic!("{file}: {error}"));
            let hint = format!(
                "{path}: has no effect: the key does not exist in any release with this form; did you mean `{near}`?"
            );
            assert!(
                warnings.iter().any(|warning| warning.contains(&hint)),
                "{file}: {warnings:#?}"
            );
            let error = read(&document, &strict).map(|_| ()).unwrap_err();
            assert!(
                error.contains(path) && error.contains("catalog.strict"),
                "{error}"
            );
        }
    }
    // A file in the current form may only have its keys.
    let own = json!({"engine_config": {"model_id": "m", "type": "VLLMEngine", "model_path": "/m", "max_total_token": 1}});
    let error = read(&own, &loose).map(|_| ()).unwrap_err();
    assert!(
        error.contains("did you mean `max_total_tokens`?"),
        "{error}"
    );
}

#[test]
fn keys_around_the_models_of_ray_serve_take_effect_or_are_reported() {
    let text = "applications:\n- name: llms\n  route_prefix: /\n  import_path: ray.serve.llm:build_openai_app\n  runtime_env: {env_vars: {SHARED: a, OWN: b}, pip: [x]}\n  args:\n    llm_configs:\n      - model_loading_config: {model_id: qwen, model_source: Qwen/Qwen2.5-7B-Instruct}\n        runtime_env: {env_vars: {OWN: c}}\n    embedding_models:\n      - engine_config: {model_id: org/e}\n        scaling_config: {num_workers: 1}\n    models: [./other.yaml]\n    dynamic_lora_loading_path: s3://b/loras\n    dynamic_lora_path: x\nhttp_options: {port: 8000}\nquery_auth_token_enabled: false\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.yaml");
    std::fs::write(&file, text).unwrap();
    let (catalog, warnings, errors) = Catalog::load_from(&[file], &config("")).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let variables =
        &catalog.get("qwen").unwrap().to_document()["engine_config"]["runtime_env"]["env_vars"];
    assert_eq!(*variables, json!({"OWN": "c", "SHARED": "a"}));
    assert_eq!(catalog.get("org/e").unwrap().recipe.engine(), "tei");
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let warnings = warnings.join("\n");
    for part in [
        "applications[0].name: has no effect",
        "applications[0].import_path: has no effect",
        "applications[0].route_prefix: has no effect",
        "line 5: applications[0].runtime_env.pip: has no effect outside of Ray",
        "applications[0].runtime_env.env_vars: SHARED, OWN apply to the models in this file",
        "line 14: applications[0].args.dynamic_lora_loading_path: applies to the models in this file",
        "applications[0].args.dynamic_lora_path: has no effect: the key does not exist in any release with this form; did you mean `dynamic_lora_loading_path`?",
        "http_options: has no effect",
        "query_auth_token_enabled: has no effect",
    ] {
        assert!(
            warnings.contains(part),
            "`{part}` is missing in:\n{warnings}"
        );
    }
}

#[test]
fn the_llm_serving_configuration_loads_and_every_key_is_understood() {
    let text = "proxy_location: EveryNode\nhttp_options: {host: 0.0.0.0, port: 5005}\ngrpc_options: {port: 9000}\napplications:\n- name: llm-serving\n  route_prefix: /llm\n  import_path: model_controller:app_builder\n  args: {autoscaler_enabled: false, config_file_path: config/current_config.yaml, dashboard_port: 8265, model_reference_path: config/model_reference.json}\n- name: llm-daemon\n  route_prefix: /daemon\n  import_path: model_daemon:app_builder\n  args: {main: llm-serving, clean_period: 1100, dump_period: 600, gpu_check_period: 10, health_check_period: 65, model_pool_update_period: 0}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("llm_config_default.yaml");
    std::fs::write(&file, text).unwrap();
    let (catalog, warnings, errors) = Catalog::load_from(&[file], &config("")).unwrap();
    assert!(
        errors.is_empty() && catalog.entries().is_empty(),
        "{errors:?}"
    );
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    for (key, instead) in [
        (
            "autoscaler_enabled",
            "the section cluster of model-pool.yaml",
        ),
        ("model_reference_path", "catalog.model_reference"),
        ("dashboard_port", "cluster.ray.address"),
        ("config_file_path", "state.dir"),
        ("clean_period", "pool.keep_hot"),
        ("dump_period", "state.dir"),
        ("gpu_check_period", "pool.heartbeat"),
        ("health_check_period", "pool.heartbeat"),
        ("http_options", "model-pool has a separate configuration"),
    ] {
        let has = |warning: &&String| {
            warning.contains(&format!("{key}: has no effect")) && warning.contains(instead)
        };
        assert!(
            warnings.iter().any(|warning| has(&warning)),
            "{key} in {warnings:#?}"
        );
    }
    let unknown = warnings
        .iter()
        .find(|warning| warning.contains("in any release"));
    assert_eq!(unknown, None);
}

#[test]
fn the_documented_table_of_keys_without_effect_matches_the_code() {
    const BEGIN: &str = "<!-- keys without effect -->\n";
    const END: &str = "<!-- end of keys without effect -->\n";
    let file = repository("docs/reference/compatibility.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let made = table_of_keys_without_effect();
    let (before, rest) = text.split_once(BEGIN).expect("where the table begins");
    let (kept, after) = rest.split_once(END).expect("where it ends");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
    }
    assert!(
        kept == made,
        "docs/reference/compatibility.md is not up to date; run UPDATE=1 cargo test --test plain old_keys::"
    );
}
