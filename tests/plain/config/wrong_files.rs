//! Wrong model files, reference files and configurations, as people write them. Each message names the file, the position and the
//! remedy, without terms of parsers and types.

use std::collections::BTreeMap;

use model_pool::catalog::Catalog;
use model_pool::config::Config;
use support::table::rows;

use super::assert_has;

/// Terms of parsers and their types, which must not appear in messages for users.
const PARSER_WORDS: [&str; 22] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "untagged",
    "variant",
    "struct",
    "unit value",
    "expected a sequence",
    "expected a map",
    "flow ",
    "scalar",
    "EOF",
    "eof",
    "ident,",
    "token",
    "mapping values",
    "did not find expected",
    "u32",
    "i64",
    "deserialize",
    "Option<",
    "at line",
];

/// Reads a catalogue that consists of this file, and returns the error.
fn refusal(name: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.catalog.models_dir = folder.path().join("models");
    config.catalog.model_reference = folder.path().join("model_reference.json");
    std::fs::create_dir(&config.catalog.models_dir).unwrap();
    std::fs::write(&config.catalog.model_reference, "{}").unwrap();
    let file = match name {
        "model_reference.json" | "pool.yaml" => folder.path().join(name),
        model => config.catalog.models_dir.join(model),
    };
    std::fs::write(&file, text).unwrap();
    if name == "pool.yaml" {
        let config = Config::load(Some(&file), &BTreeMap::new());
        let catalog = config.map(|config| Catalog::default().reread(&config));
        return match catalog {
            Err(error) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(_)) => panic!("the configuration is taken: {text}"),
        };
    }
    match Catalog::load(&config) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{name} is taken: {text}"),
    }
}

/// The file | its text | required parts of the message: the location and the remedy
const CASES: &str = r#"
    // Not even a document.
    m.yaml |  | empty | engine_config
    m.yaml | # nothing yet\n | empty | engine_config
    m.yaml | - engine_config\n | a list | engine_config
    m.yaml | just text\n | a text | engine_config
    m.yaml | engine_config:\n\tmodel_id: a\n | line 2 | tab | spaces
    m.yaml | engine_config:\n  model_id: a\n   type: VLLMEngine\n | line 3 | quotes
    m.yaml | engine_config: {model_id: a, type: VLLMEngine\n | line | bracket | not closed
    m.yaml | engine_config:\n  model_id: "a\n | line | quotation mark
    m.yaml | engine_config:\n  model_id: a: b\n | line 2 | `:` | quotes
    m.yaml | engine_config:\n  model_id: *base\n | line 2 | `&name` | quotes
    m.yaml | engine_config:\n  model_id: @a\n | line 2 | quotes
    m.yaml | engine_config:\n  model_id: a\n---\nb: 1\n | a file may contain only one
    m.json | {"engine_config": {"model_id": "a",}} | line 1 | comma | remove it
    m.json | {"engine_config": {"model_id": "a" "type": 1}} | line 1 | comma
    m.json | {engine_config: {}} | line 1 | double quotes
    m.json | {"engine_config": {"model_id": "a" | bracket | not closed
    m.json | {"engine_config": {"model_id": yes}} | line 1 | value is expected
    // Keys.
    m.yaml | engine_confg:\n  model_id: a\n | line 1 | `engine_confg` | did you mean `engine_config`?
    m.yaml | engine_config:\n  model_id: a\n  tpye: VLLMEngine\n | line 3 | engine_config.tpye | did you mean `type`?
    m.yaml | engine_config:\n  type: VLLMEngine\n | engine_config | `model_id` is missing
    m.yaml | engine_config:\n  model_id: a\n | engine_config.type | is missing | VLLMEngine
    m.yaml | pool_config: {priority: 1}\n | `engine_config` is missing
    // Values of another type.
    m.yaml | engine_config: [a, b]\n | line 1 | engine_config | keys
    m.yaml | engine_config: a\n | line 1 | engine_config | keys
    m.yaml | engine_config:\n  model_id: [a]\n  type: VLLMEngine\n | line 2 | engine_config.model_id | single value
    m.yaml | engine_config:\n  model_id: a\n  type: VLLMEngine\n  engine_kwargs: fast\n | line 4 | engine_config.engine_kwargs | keys
    m.yaml | engine_config:\n  model_id: a\n  type: CommandEngine\n  command: serve --port 1\n | line 4 | engine_config.command | a list
    m.yaml | engine_config: {model_id: a, type: VLLMEngine}\npool_config:\n  aliases: gpt-4\n | line 3 | pool_config.aliases | a list
    m.yaml | engine_config: {model_id: a, type: VLLMEngine}\npool_config:\n  priority: high\n | line 3 | pool_config.priority | whole number
    m.yaml | engine_config: {model_id: a, type: VLLMEngine}\npool_config:\n  keep_hot: 600\n | line 3 | pool_config.keep_hot | 10m
    m.yaml | engine_config: {model_id: a, type: VLLMEngine}\npool_config:\n  devices: [gpu0]\n | line 3 | pool_config.devices | keys
    m.yaml | engine_config: {model_id: a, type: VLLMEngine}\npool_config:\n  devices: {names: gpu0}\n | line 3 | pool_config.devices.names | a list
    m.json | {"engine_config": {"model_id": "a", "type": "VLLMEngine"},\n "pool_config": {"memory_gib": "16"}} | line 2 | pool_config.memory_gib | a number
    // Values out of range, and engines that do not exist.
    m.yaml | engine_config: {model_id: a, type: VLLMEngine}\npool_config: {gpus_per_replica: 0}\n | line 2 | gpus_per_replica | 1 to 64
    m.yaml | engine_config:\n  model_id: a\n  type: OllamaEngine\n | line 3 | engine_config.type | GGUF | LlamaCppEngine
    m.yaml | engine_config:\n  model_id: a\n  type: VLLMEngin\n | line 3 | did you mean `VLLMEngine`?
    // The reference.
    model_reference.json | [] | line 1 | an object
    model_reference.json | {"a/b": "2"} | line 1 | a/b | a number of GPUs
    model_reference.json | {"a": {"engine": "Foo"}} | line 1 | engine | VLLMEngine
    model_reference.json | {"a": {"priority": "high"}} | line 1 | a.priority | whole number
    // The configuration.
    pool.yaml | inventory: {provider: fixed, devices: gpu0}\n | line 1 | inventory.devices | a list
    pool.yaml | server:\n  hosts: {a: b}\n | line 2 | server.hosts | a list
    pool.yaml | pool: [1]\n | line 1 | pool | keys
    pool.yaml | catalog:\n  unknown_engine: Foo\n | line 2 | catalog.unknown_engine | `Foo` | CandleEngine
"#;

#[test]
fn every_invalid_model_file_is_refused_with_file_position_and_correction() {
    for row in rows(CASES) {
        let (name, text) = (row[0], row[1]);
        let message = refusal(name, text);
        println!("{text:?}\n  {message}");
        assert_has(&message, &[name]);
        assert_has(&message, &row[2..]);
        for word in PARSER_WORDS {
            assert!(!message.contains(word), "`{word}` in: {message}");
        }
    }
}

#[test]
fn a_misplaced_text_is_not_repeated_because_it_may_be_a_secret() {
    for text in [
        "engine_config: {model_id: a, type: RemoteEngine, headers: sk-sesame}\n",
        "engine_config: {model_id: a, type: VLLMEngine, env: sk-sesame}\n",
        "engine_config: {model_id: a, type: VLLMEngine, env: [sk-sesame]}\n",
    ] {
        for name in ["m.yaml", "m.yml"] {
            let message = refusal(name, text);
            assert!(!message.contains("sesame"), "{message}");
        }
    }
}
