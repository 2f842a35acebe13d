//! Every flag that the pool can write for an engine is in the list extracted from the engine's sources, with the same type of
//! value.

use std::collections::{BTreeMap, BTreeSet};

use model_pool::catalog::{ENGINES, Engine};
use serde_json::{Map, Value, json};

fn list_of(engine: &Engine) -> &'static str {
    match engine.word {
        "vllm" => include_str!("../../fixtures/vllm_flags.txt"),
        "llama.cpp" => include_str!("../../fixtures/llama_server_flags.txt"),
        "sglang" => include_str!("../../fixtures/sglang_flags.txt"),
        "tgi" => include_str!("../../fixtures/tgi_flags.txt"),
        "tei" => include_str!("../../fixtures/tei_flags.txt"),
        "trtllm" => include_str!("../../fixtures/trtllm_flags.txt"),
        other => panic!("the flags of {other} are in no list"),
    }
}

/// Value types by spelling of the flag.
fn flags_of(engine: &Engine) -> BTreeMap<&'static str, &'static str> {
    let lines = list_of(engine)
        .lines()
        .filter(|line| !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let (spellings, takes) = line.rsplit_once(' ').expect("spellings and a type");
            spellings.split(' ').map(move |spelling| (spelling, takes))
        })
        .collect()
}

pub fn known_flags(engine: &Engine) -> BTreeSet<&'static str> {
    flags_of(engine).into_keys().collect()
}

/// A valid value of each key, found by trying every kind of value.
fn words_of(engine: &Engine, key: &str) -> Vec<Vec<String>> {
    let values = [
        json!(true),
        json!(false),
        json!(1),
        json!(8),
        json!(0.5),
        json!("a"),
        json!({"a": 1}),
        json!(["a"]),
    ];
    let one_of = |value: &Value| {
        let kwargs: Map<String, Value> = [(key.to_owned(), value.clone())].into_iter().collect();
        engine
            .flags
            .check(&kwargs)
            .map(|words| words.all().cloned().collect::<Vec<_>>())
    };
    let mut found: Vec<Vec<String>> = values
        .iter()
        .filter_map(|value| one_of(value).ok())
        .collect();
    if found.is_empty() {
        // A choice of words, which the refusal lists.
        let flaw = one_of(&json!("?")).expect_err("refused");
        let (_, allowed) = flaw
            .problem
            .rsplit_once("allowed: ")
            .expect("what is allowed");
        let each = allowed
            .split(", ")
            .filter_map(|word| one_of(&json!(word)).ok());
        found.extend(each);
    }
    assert!(!found.is_empty(), "{engine:?}: {key} takes no value");
    found
}

#[test]
fn every_flag_the_table_can_write_exists_in_the_engine() {
    for engine in ENGINES {
        let known = flags_of(engine);
        for key in engine.flags.keys() {
            for words in words_of(engine, key) {
                let Some(first) = words.first() else { continue };
                let flag = first.split('=').next().unwrap_or(first);
                let takes = known
                    .get(flag)
                    .unwrap_or_else(|| panic!("{engine:?} has no {flag} ({key})"));
                assert_eq!(
                    words.len() == 1 && !first.contains('='),
                    *takes == "-",
                    "{engine:?}: {words:?} for {takes}"
                );
            }
        }
    }
}

/// Flags of vLLM and llama.cpp are accepted or refused with a reason; none is missing.
#[test]
fn every_flag_of_an_engine_is_accepted_or_refused_with_a_reason() {
    // Of a command line alone.
    let beside = [
        "help",
        "usage",
        "version",
        "cache-list",
        "completion-bash",
        "list-devices",
        "headless",
        "api-server-count",
        "config",
        "model-tag",
        "model-weights",
    ];
    let mut unknown = Vec::new();
    for engine in ENGINES
        .iter()
        .filter(|engine| ["vllm", "llama.cpp", "tgi", "tei", "trtllm"].contains(&engine.word))
    {
        let lines = list_of(engine)
            .lines()
            .filter(|line| !line.starts_with('#'));
        for line in lines {
            let names: Vec<&str> = line
                .split(' ')
                .filter(|word| word.starts_with("--"))
                .map(|word| word.trim_start_matches('-'))
                .collect();
            let is_beside = names.iter().any(|name| {
                beside.contains(name) || name.ends_with("-default") || name.ends_with("-spec")
            });
            let is_share = engine
                .share_key
                .is_some_and(|key| names.contains(&key.replace('_', "-").as_str()));
            let is_named = is_share
                || names.iter().any(|name| {
                    let kwargs: Map<String, Value> =
                        [((*name).to_owned(), json!([]))].into_iter().collect();
                    match engine.flags.check(&kwargs) {
                        Ok(_) => true,
                        Err(flaw) => !flaw.problem.contains("is not an option of this engine"),
                    }
                });
            if !is_named && !is_beside {
                unknown.push(format!("{engine:?}: {line}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The installed program has this version, which makes its list of flags comparable with ours.
#[test]
fn the_list_of_llama_server_flags_matches_the_built_version() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/llama-server");
    let script = std::fs::read_to_string(script).expect("the script");
    let mut lines = script.lines();
    let version = lines.find_map(|line| line.strip_prefix("version=\"")?.strip_suffix('"'));
    let built = format!("llama-cpp-python {} ", version.expect("its version"));
    let list = include_str!("../../fixtures/llama_server_flags.txt");
    assert!(
        list.contains(&built),
        "tests/fixtures/llama_server_flags.txt is not of {built}: `.ci/llama-server`, then `cargo test --test outside llama_server::flags` names what is new and what is gone"
    );
}

/// `check` compares the installed vLLM with the version of the table.
#[test]
fn the_vllm_version_used_for_comparison_matches_the_flag_list_and_the_manual() {
    let engine = model_pool::catalog::find_engine("VLLMEngine").expect("vLLM");
    let (major, minor) = engine.package.expect("its package").flags_of;
    let list = list_of(engine);
    assert!(
        list.contains(&format!("source package vllm {major}.{minor}.")),
        "tests/fixtures/vllm_flags.txt is not of {major}.{minor}: PACKAGE in src/catalog/engines/vllm.rs"
    );
    let manual = support::root().join("docs/guides/engines.md");
    let manual = std::fs::read_to_string(manual).expect("the manual");
    let section = format!("Flags of vLLM {major}.{minor}.");
    assert!(
        manual.contains(&section),
        "docs/guides/engines.md: {section}"
    );
}
