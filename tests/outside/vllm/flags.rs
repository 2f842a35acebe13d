//! Every flag that the pool can write for vLLM and for SGLang goes through the engine's own parser. What a version of an engine
//! lost or renamed is a failing test with its name. Neither is started.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use model_pool::catalog::{Engine, FlagError, ThinkForm, ToolForm, find_engine};
use serde_json::{Map, Value, json};

use super::rig::environment;

/// The table is that of vLLM 0.33. The newest vLLM that computes on the CPU is 0.32, which lacks these.
const NEWER_THAN_VLLM: &[&str] = &[
    "monokernel",
    "reasoning_effort_map",
    "sleep_mode_backend",
    "watchdog_config",
];

/// Values of every kind, to find one that a flag takes.
fn samples() -> [Value; 6] {
    [
        json!(true),
        json!(1),
        json!(0.5),
        json!("a"),
        json!({"a": 1}),
        json!(["a"]),
    ]
}

/// A value of a key as words of a command line.
pub fn words(engine: &Engine, key: &str, value: &Value) -> Result<Vec<String>, FlagError> {
    let kwargs: Map<String, Value> = [(key.to_owned(), value.clone())].into_iter().collect();
    let words = engine.flags.check(&kwargs);
    words.map(|words| words.all().cloned().collect())
}

/// The first right one of these values, or else a word that the flag allows; `None` where none is right.
pub fn sample(engine: &Engine, key: &str, samples: &[Value]) -> Option<Vec<String>> {
    let mut right = samples.iter().filter_map(|it| words(engine, key, it).ok());
    right.next().or_else(|| {
        let flaw = words(engine, key, &json!("?")).expect_err("refused");
        let (_, allowed) = flaw.problem.rsplit_once("allowed: ")?;
        let mut each = allowed.split(", ");
        each.find_map(|word| words(engine, key, &json!(word)).ok())
    })
}

/// What the engine's parser makes of each line, and what it knows.
fn parse(environment: &Path, script: &str, lines: &[Vec<String>]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/outside/vllm")
        .join(script);
    let errors = tempfile::NamedTempFile::new().expect("a file");
    let mut python = Command::new(environment.join("bin/python"))
        .arg(script)
        .env("OMP_NUM_THREADS", "1")
        .env("PYTHONPATH", environment.join("sglang"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors.reopen().expect("the same file"))
        .spawn()
        .expect("Python runs");
    let mut input = python.stdin.take().expect("a pipe");
    input
        .write_all(json!(lines).to_string().as_bytes())
        .expect("written");
    drop(input);
    let done = python.wait_with_output().expect("its end");
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| {
        let text = std::fs::read_to_string(errors.path()).unwrap_or_default();
        panic!("{error}: {text}")
    })
}

/// Sends every flag of the table, and what the pool writes by itself, through the engine's parser.
fn check(environment: &Path, engine: &Engine, script: &str, newer: &[&str], own: &str) {
    let mut keys: Vec<&str> = engine.flags.keys().collect();
    keys.sort_unstable();
    let mut lines: Vec<Vec<String>> = keys
        .iter()
        .map(|key| sample(engine, key, &samples()).unwrap_or_else(|| panic!("no sample of {key}")))
        .collect();
    lines.push(own.split(' ').map(str::to_owned).collect());
    let answer = parse(environment, script, &lines);
    let spellings: Vec<&str> = answer["spellings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    assert!(spellings.len() > 300, "{answer}");
    let lacks = |key: &str| !spellings.contains(&engine.flags.flag(key).as_str());
    let unknown: Vec<&&str> = keys
        .iter()
        .filter(|key| lacks(key) != newer.contains(key))
        .collect();
    assert!(
        unknown.is_empty(),
        "in the table and not in the engine, or the other way round in the list of newer ones: {unknown:?}"
    );
    let errors = answer["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), lines.len());
    let refused: Vec<String> = lines
        .iter()
        .zip(errors)
        .filter(|(_, error)| error.is_string())
        .map(|(words, error)| format!("{words:?}: {error}"))
        .collect();
    // `a: 1` is no configuration, and `a` no class: the values are the engine's business, their form is the table's.
    let unknown: Vec<&String> = refused
        .iter()
        .filter(|it| it.contains("unrecognized") || it.contains(" argument: expected "))
        .filter(|it| !newer.iter().any(|key| it.contains(&engine.flags.flag(key))))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(
        errors.last().is_some_and(Value::is_null),
        "{:?}",
        errors.last()
    );
    println!(
        "{} flags, of which the engine refuses the sample's value: {refused:#?}",
        keys.len()
    );
    let parsers = engine.parsers.expect("it has parsers");
    let has = |list: &str, word: &str| {
        let mut words = answer[list].as_array().into_iter().flatten();
        words.any(|it| it == word)
    };
    for form in ToolForm::ALL {
        let word = (parsers.tools)(form);
        assert!(
            has("tool_parsers", word),
            "{form:?}: {word}: {}",
            answer["tool_parsers"]
        );
    }
    for form in ThinkForm::ALL {
        let word = (parsers.reasoning)(form);
        assert!(
            has("reasoning_parsers", word),
            "{form:?}: {word}: {}",
            answer["reasoning_parsers"]
        );
    }
}

#[test]
fn vllms_own_parser_takes_every_flag_of_the_table_and_knows_every_parser_that_is_chosen() {
    let Some(environment) = environment() else {
        return;
    };
    let engine = find_engine("VLLMEngine").expect("vLLM");
    let own = "--host 127.0.0.1 --port 1 --uds /s --served-model-name m --tensor-parallel-size 2 --gpu-memory-utilization 0.5 --kv-cache-memory-bytes 1000 --max-model-len 512 --max-num-seqs 4 --revision main --enable-sleep-mode --enable-lora --lora-modules a=/b";
    check(&environment, engine, "parse_vllm.py", NEWER_THAN_VLLM, own);
}

#[test]
fn sglangs_own_parser_takes_every_flag_of_the_table_and_knows_every_parser_that_is_chosen() {
    let Some(environment) = environment() else {
        return;
    };
    let engine = find_engine("SGLangEngine").expect("SGLang");
    let own = "--host 127.0.0.1 --port 1 --served-model-name m --tp-size 2 --mem-fraction-static 0.5 --context-length 512 --max-running-requests 4 --revision main --enable-metrics --enable-memory-saver --enable-weights-cpu-backup --enable-lora --max-loras-per-batch 2 --max-loaded-loras 4 --max-lora-rank 8 --lora-target-modules all";
    check(&environment, engine, "parse_sglang.py", &[], own);
}
