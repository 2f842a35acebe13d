//! Passes every flag that the pool can write for vLLM and SGLang to the engine's own parser, and compares the parser's flags with
//! our list. A flag that a version removed, renamed or added fails the test by name. The engines are not started.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use model_pool::catalog::{Engine, FlagError, ThinkForm, ToolForm, find_engine};
use serde_json::{Map, Value, json};

use super::rig::environment;
use crate::flag_lists::{Flags, difference, flags_of_list};

/// The list is from vLLM 0.33. The newest vLLM for the CPU is 0.32, which lacks these flags.
const NEWER_THAN_VLLM: &[&str] = &[
    "--monokernel",
    "--no-monokernel",
    "--reasoning-effort-map",
    "--sleep-mode-backend",
    "--watchdog-config",
];
/// vLLM 0.32 has it, and 0.33 has only `--grpc-port`.
const OLDER_THAN_THE_LIST: &[&str] = &["--grpc"];
/// The list contains the model, a positional argument, as a flag.
const WORDS_WITHOUT_FLAG: &[&str] = &["--model-tag"];
/// Python's parser adds them.
const OF_EVERY_PARSER: [&str; 2] = ["--help", "-h"];

/// An engine, and the known differences between the installed version and our list of flags.
struct Case<'a> {
    /// Name in model files.
    engine: &'static str,
    script: &'static str,
    list: &'static str,
    text: &'static str,
    /// Flags only in the list.
    newer: &'a [&'static str],
    /// Flags only in the installed version.
    older: &'static [&'static str],
    /// Flags that the pool adds itself.
    own: &'static str,
}

impl Case<'_> {
    /// Flags that the installed engine must know.
    fn expected(&self) -> Flags {
        let mut flags = flags_of_list(self.text);
        for name in self.newer {
            let listed = flags.remove(*name);
            assert!(listed.is_some(), "{} has no {name}", self.list);
        }
        let more = self.older.iter().chain(&OF_EVERY_PARSER);
        flags.extend(more.map(|name| ((*name).to_owned(), false)));
        flags
    }
}

/// Values of every kind, to find an accepted value for a flag.
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

/// A key's value as command line arguments.
pub fn words(engine: &Engine, key: &str, value: &Value) -> Result<Vec<String>, FlagError> {
    let kwargs: Map<String, Value> = [(key.to_owned(), value.clone())].into_iter().collect();
    let words = engine.flags.check(&kwargs);
    words.map(|words| words.all().cloned().collect())
}

/// The first valid value, or else a word that the flag allows; `None` if no value is valid.
pub fn sample(engine: &Engine, key: &str, samples: &[Value]) -> Option<Vec<String>> {
    let mut right = samples
        .iter()
        .filter_map(|value| words(engine, key, value).ok());
    right.next().or_else(|| {
        let flaw = words(engine, key, &json!("?")).expect_err("refused");
        let (_, allowed) = flaw.problem.rsplit_once("allowed: ")?;
        let mut each = allowed.split(", ");
        each.find_map(|word| words(engine, key, &json!(word)).ok())
    })
}

/// The parser's result for each line, and the flags it knows.
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

/// Compares the flags of the engine's parser with our list, and passes every flag of the table, and the pool's own flags, to it.
fn check(environment: &Path, case: &Case<'_>) {
    let engine = find_engine(case.engine).expect("it is in the table");
    let mut keys: Vec<&str> = engine.flags.keys().collect();
    keys.sort_unstable();
    let mut lines: Vec<Vec<String>> = keys
        .iter()
        .map(|key| sample(engine, key, &samples()).unwrap_or_else(|| panic!("no sample of {key}")))
        .collect();
    lines.push(case.own.split(' ').map(str::to_owned).collect());
    let response = parse(environment, case.script, &lines);
    let there: Flags = serde_json::from_value(response["flags"].clone()).expect("its flags");
    assert!(there.len() > 300, "{response}");
    if let Some(difference) = difference(&there, &case.expected()) {
        panic!(
            "the installed {} and tests/fixtures/{} differ. {difference} Change the list and the table in src/catalog/engines, or name the difference of these two versions here.",
            case.engine, case.list
        );
    }
    let errors = response["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), lines.len());
    let refused: Vec<String> = lines
        .iter()
        .zip(errors)
        .filter(|(_, error)| error.is_string())
        .map(|(words, error)| format!("{words:?}: {error}"))
        .collect();
    // `a: 1` is not a valid configuration, and `a` not a class: the engine checks the values, and the table only their form.
    let unknown: Vec<&String> = refused
        .iter()
        .filter(|line| line.contains("unrecognized") || line.contains(" argument: expected "))
        .filter(|line| !case.newer.iter().any(|flag| line.contains(flag)))
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
        let mut words = response[list].as_array().into_iter().flatten();
        words.any(|known| known == word)
    };
    for form in ToolForm::ALL {
        let word = (parsers.tools)(form);
        assert!(
            has("tool_parsers", word),
            "{form:?}: {word}: {}",
            response["tool_parsers"]
        );
    }
    for form in ThinkForm::ALL {
        let word = (parsers.reasoning)(form);
        assert!(
            has("reasoning_parsers", word),
            "{form:?}: {word}: {}",
            response["reasoning_parsers"]
        );
    }
}

#[test]
fn vllms_own_parser_accepts_every_flag_of_the_table_and_every_chosen_parser() {
    let Some(environment) = environment() else {
        return;
    };
    let newer: Vec<&str> = [NEWER_THAN_VLLM, WORDS_WITHOUT_FLAG].concat();
    let case = Case {
        engine: "VLLMEngine",
        script: "parse_vllm.py",
        list: "vllm_flags.txt",
        text: include_str!("../../fixtures/vllm_flags.txt"),
        newer: &newer,
        older: OLDER_THAN_THE_LIST,
        own: "--host 127.0.0.1 --port 1 --uds /s --served-model-name m --tensor-parallel-size 2 --gpu-memory-utilization 0.5 --kv-cache-memory-bytes 1000 --max-model-len 512 --max-num-seqs 4 --revision main --enable-sleep-mode --enable-lora --lora-modules a=/b",
    };
    check(&environment, &case);
}

#[test]
fn sglangs_own_parser_accepts_every_flag_of_the_table_and_every_chosen_parser() {
    let Some(environment) = environment() else {
        return;
    };
    let case = Case {
        engine: "SGLangEngine",
        script: "parse_sglang.py",
        list: "sglang_flags.txt",
        text: include_str!("../../fixtures/sglang_flags.txt"),
        newer: &[],
        older: &[],
        own: "--host 127.0.0.1 --port 1 --served-model-name m --tp-size 2 --mem-fraction-static 0.5 --context-length 512 --max-running-requests 4 --revision main --enable-metrics --enable-memory-saver --enable-weights-cpu-backup --enable-lora --max-loras-per-batch 2 --max-loaded-loras 4 --max-lora-rank 8 --lora-target-modules all",
    };
    check(&environment, &case);
}
