//! The catalogue: the files it reads, name collisions, and the reference.
//! One file because every test writes a folder of models and reads it.

use std::path::Path;

use model_pool::catalog::{Catalog, CatalogError, PriorityFrom, Source, Warning};
use model_pool::config::{Config, KeepHot, Length};
use model_pool::pool::{Bytes, Priority};
use serde_json::json;
use support::table::rows;

use super::{assert_has, repository};

/// A folder with model files and a reference, and a configuration for them.
struct World {
    folder: tempfile::TempDir,
    config: Config,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.catalog.models_dir = folder.path().join("models");
        config.catalog.model_reference = folder.path().join("model_reference.json");
        std::fs::create_dir(&config.catalog.models_dir).unwrap();
        let world = World { folder, config };
        world.reference("{}");
        world
    }

    fn reference(&self, text: &str) {
        std::fs::write(self.folder.path().join("model_reference.json"), text).unwrap();
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.config.catalog.models_dir.join(name), text).unwrap();
    }

    fn candle(&self, file: &str, model: &str, pool: &str) {
        let folder = self.folder.path().display();
        self.file(
            file,
            &format!("engine_config: {{model_id: {model}, type: CandleEngine, model_path: {folder}}}\npool_config: {{{pool}}}\n"),
        );
    }

    fn load(&self) -> Result<(Catalog, Vec<Warning>), CatalogError> {
        Catalog::load(&self.config)
    }

    fn refusal(&self) -> String {
        self.load()
            .expect_err("the catalogue is refused")
            .to_string()
    }
}

#[test]
fn the_models_of_the_repository_load_with_warnings_only_about_missing_weights() {
    let mut config = Config::default();
    config.catalog.models_dir = repository("config/models");
    config.catalog.model_reference = repository("model_reference.json");
    let (catalog, warnings) = Catalog::load(&config).unwrap();
    let priorities: Vec<(&str, Priority)> = catalog
        .entries()
        .values()
        .map(|entry| (entry.name.as_str(), entry.priority))
        .collect();
    assert_eq!(
        priorities,
        [
            ("tiny-chat", Priority(0)),
            ("tiny-guide", Priority(2)),
            ("tiny-helper", Priority(1))
        ]
    );
    // Relative model paths start at the test's working folder: the repository.
    let other: Vec<&Warning> = warnings
        .iter()
        .filter(|warning| warning.key.as_deref() != Some("engine_config.model_path"))
        .collect();
    assert_eq!(other, Vec::<&Warning>::new());
}

#[test]
fn the_old_services_models_keep_their_gpu_counts() {
    let mut config = Config::default();
    config.catalog.models_dir = repository("config/models");
    config.catalog.model_reference = repository("model_reference.json");
    let (catalog, _) = Catalog::load(&config).unwrap();
    let gpus = |model: &str| catalog.reference().get(model).unwrap().gpus_per_replica;
    assert_eq!(gpus("mistralai/Mixtral-8x7B-Instruct-v0.1"), Some(2));
    assert_eq!(gpus("databricks/dbrx-instruct"), Some(4));
    assert_eq!(gpus("mistralai/Mixtral-8x22B-v0.1"), Some(8));
    assert_eq!(gpus("tiny-chat"), Some(1));
}

#[test]
fn yaml_yml_and_json_files_are_read_and_others_are_not() {
    let world = World::new();
    world.candle("a.yaml", "a", "");
    world.candle("b.yml", "b", "");
    let path = world.folder.path().display().to_string();
    let document =
        json!({"engine_config": {"model_id": "org/c", "type": "CandleEngine", "model_path": path}});
    world.file("c.json", &document.to_string());
    world.file("README.md", "not a model");
    let (catalog, warnings) = world.load().unwrap();
    assert_eq!(
        catalog.entries().keys().collect::<Vec<_>>(),
        ["a", "b", "org/c"]
    );
    assert_eq!(warnings, []);
    assert!(
        matches!(&catalog.get("a").unwrap().source, Source::File(path) if path.ends_with("a.yaml"))
    );
}

#[test]
fn the_examples_of_the_manual_load() {
    let manual = std::fs::read_to_string(repository("docs/guides/models.md")).unwrap();
    let world = World::new();
    let examples: Vec<&str> = manual
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    let demo = repository("demo").display().to_string();
    for (index, example) in examples.iter().enumerate() {
        let example = example.replace("../../demo", &demo);
        world.file(&format!("{index}.yaml"), &example);
    }
    let reference = manual
        .split("```json\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    world.reference(reference);
    let (catalog, warnings) = world.load().unwrap();
    assert_eq!(catalog.entries().len(), examples.len());
    assert_eq!(
        catalog
            .reference()
            .get("org/other")
            .unwrap()
            .gpus_per_replica,
        Some(2)
    );
    let paths = |warning: &&Warning| warning.key.as_deref() == Some("engine_config.model_path");
    assert_eq!(
        warnings.iter().filter(paths).count(),
        warnings.len(),
        "{warnings:?}"
    );
}

#[test]
fn two_files_with_one_model_are_refused_and_both_named() {
    let world = World::new();
    world.candle("first.yaml", "a", "");
    world.candle("second.yaml", "a", "");
    assert_has(
        &world.refusal(),
        &["the name a ", "first.yaml", "second.yaml"],
    );
}

#[test]
fn an_alias_that_is_another_models_name_is_refused_and_both_named() {
    let world = World::new();
    world.candle("first.yaml", "a", "aliases: [gpt-4, b]");
    world.candle("second.yaml", "b", "");
    assert_has(
        &world.refusal(),
        &["the name b ", "first.yaml", "second.yaml"],
    );
    world.candle("second.yaml", "c", "aliases: [gpt-4]");
    assert_has(
        &world.refusal(),
        &["the name gpt-4 ", "first.yaml", "second.yaml"],
    );
}

#[test]
fn all_broken_files_are_reported_together() {
    let world = World::new();
    world.candle("good.yaml", "a", "");
    world.candle("one.yaml", "b", "priority: -1");
    world.file(
        "two.yaml",
        "engine_config:\n  model_id: c\n  tpye: CandleEngine\n",
    );
    world.file("three.yaml", "");
    let text = world.refusal();
    assert_has(
        &text,
        &[
            "one.yaml",
            "pool_config.priority",
            "-1",
            "0 to 1000000",
            "two.yaml",
            "line 3",
            "did you mean `type`?",
            "three.yaml",
        ],
    );
    assert!(!text.contains("good.yaml"), "{text}");
}

#[test]
fn a_missing_folder_and_a_missing_reference_are_warnings() {
    let mut config = Config::default();
    config.catalog.models_dir = "/nowhere/models".into();
    config.catalog.model_reference = "/nowhere/reference.json".into();
    let (catalog, warnings) = Catalog::load(&config).unwrap();
    assert!(catalog.entries().is_empty());
    let text: Vec<String> = warnings.iter().map(Warning::to_string).collect();
    assert_has(
        &text.join("\n"),
        &["/nowhere/models", "/nowhere/reference.json", "1 GPU"],
    );
}

#[test]
fn a_disabled_model_is_left_out_with_a_warning() {
    let world = World::new();
    world.file(
        "off.yaml",
        "enabled: false\nengine_config: {model_id: a, type: VLLMEngine, engine_kwargs: {quantization: awq}}\n",
    );
    let (catalog, warnings) = world.load().unwrap();
    assert!(catalog.entries().is_empty());
    assert_has(&warnings[0].to_string(), &["off.yaml", "enabled"]);
}

#[test]
fn a_model_is_found_by_its_alias() {
    let world = World::new();
    world.candle("a.yaml", "org/a", "aliases: [gpt-4, org/b]");
    let (catalog, _) = world.load().unwrap();
    for name in ["org/a", "gpt-4", "org/b"] {
        assert_eq!(catalog.get(name).unwrap().name, "org/a");
    }
    assert!(catalog.get("a").is_none());
}

#[test]
fn the_closest_names_are_listed_first() {
    let world = World::new();
    world.candle("a.yaml", "meta-llama/Llama-3.1-8B-Instruct", "");
    world.candle("b.yaml", "tiny-chat", "aliases: [small-chat]");
    world.candle("c.yaml", "tiny-guide", "");
    let (catalog, _) = world.load().unwrap();
    assert_eq!(catalog.closest("tiny-chta")[0], "tiny-chat");
    assert_eq!(
        catalog.closest("llama-3.1-8b-instruct"),
        ["meta-llama/Llama-3.1-8B-Instruct"]
    );
    assert_eq!(catalog.closest("smal-chat")[0], "small-chat");
    assert_eq!(catalog.closest("quite-another-thing"), Vec::<String>::new());
}

#[test]
fn the_model_file_overrides_the_reference_and_the_reference_the_default() {
    let world = World::new();
    world.reference(
        r#"{"org/both": {"gpus_per_replica": 4, "priority": 3, "memory_gib": 1.5, "keep_hot": "1h"}, "org/known": {"gpus_per_replica": 4, "priority": 3, "memory_gib": 1.5, "keep_hot": "1h", "engine": "CandleEngine"}, "org/old": 2, "org/older": 2}"#,
    );
    world.candle(
        "a.yaml",
        "org/both",
        "priority: 1, gpus_per_replica: 1, memory_gib: 2, keep_hot: 5s",
    );
    let path = world.folder.path().display().to_string();
    world.file(
        "b.yaml",
        &format!("engine_config: {{model_id: org/known, model_path: {path}}}\n"),
    );
    world.candle("c.yaml", "org/old", "");
    world.candle("d.yaml", "org/new", "");
    world.file(
        "e.yaml",
        "engine_config: {model_id: org/older, type: CommandEngine, command: [serve, \"{{ port }}\"]}\n",
    );
    let (catalog, warnings) = world.load().unwrap();
    let seen = |name: &str| {
        let entry = catalog.get(name).unwrap();
        (
            entry.priority.0,
            entry.priority_from,
            entry.devices_per_replica,
            entry.memory,
            entry.keep_hot,
        )
    };
    let gib = Bytes::GIB;
    assert_eq!(
        seen("org/both"),
        (1, PriorityFrom::File, 1, Some(Bytes(2 * gib)), Some(hot(5)))
    );
    assert_eq!(
        seen("org/known"),
        (
            3,
            PriorityFrom::Reference,
            1,
            Some(Bytes(3 * gib / 2)),
            Some(hot(3600))
        )
    );
    assert_eq!(seen("org/older"), (0, PriorityFrom::Default, 2, None, None));
    assert_eq!(
        seen("org/old"),
        (0, PriorityFrom::Default, 1, None, None),
        "on the CPU the embedded engine is on one device, whatever the reference says"
    );
    let notices = warnings.iter().map(ToString::to_string);
    let notices = notices.filter(|notice| notice.contains("model_reference.json says"));
    assert_eq!(notices.count(), 2);
    assert_eq!(seen("org/new"), (0, PriorityFrom::Default, 1, None, None));
}

/// The text of a reference | parts of the message
const BROKEN_REFERENCES: &str = r#"
    {\n  "a": 1,\n  "b" 2\n} | line 3, column
    {\n  "a": 0\n} | line 2 | number of GPUs is 0 | 1 to 64
    {"a": {"gpus_per_replica": 65}} | a.gpus_per_replica: 65 is not allowed | 1 to 64
    {"a": {"gpus_per_replca": 2}} | did you mean `gpus_per_replica`?
    {"a": {"priority": -2}} | a.priority: -2 is not allowed | 0 to 1000000
    {"a": 1,\n "a": 2} | line 2 | `a` is given twice
    {"a b": 1} | a b | letters, digits
"#;

#[test]
fn a_broken_reference_is_refused_with_line_and_column() {
    for row in rows(BROKEN_REFERENCES) {
        let world = World::new();
        world.reference(row[0]);
        let refusal = world.refusal();
        assert_has(&refusal, &row[1..]);
        assert_has(&refusal, &["model_reference.json"]);
    }
}

#[test]
fn a_registered_model_replaces_only_a_registered_one() {
    let world = World::new();
    world.candle("a.yaml", "a", "aliases: [same]");
    let (mut catalog, _) = world.load().unwrap();
    let registered = |id: &str, alias: &str| {
        let document = json!({
            "engine_config": {"model_id": id, "type": "CandleEngine", "model_path": "x"},
            "pool_config": {"aliases": [alias]},
        });
        let read = model_pool::catalog::Entry::from_document(
            &document,
            Source::Registered,
            &world.config,
            catalog.reference(),
        );
        read.unwrap().0
    };
    let (over_file, taken, first, second) = (
        registered("a", "x"),
        registered("b", "same"),
        registered("b", "one"),
        registered("b", "two"),
    );
    assert_has(
        &catalog.insert(over_file).unwrap_err().to_string(),
        &["the name a ", "a.yaml"],
    );
    assert_has(
        &catalog.insert(taken).unwrap_err().to_string(),
        &["the name same ", "registered model b"],
    );
    catalog.insert(first).unwrap();
    catalog.insert(second).unwrap();
    assert_eq!(catalog.get("two").unwrap().name, "b");
    assert!(catalog.get("one").is_none());
    catalog.remove("b").unwrap();
    assert!(catalog.get("two").is_none() && catalog.get("same").is_some());
}

#[test]
fn a_reload_affects_only_changed_models() {
    let world = World::new();
    for name in ["stays", "goes", "changes"] {
        world.candle(&format!("{name}.yaml"), name, "");
    }
    let (before, _) = world.load().unwrap();
    std::fs::remove_file(world.config.catalog.models_dir.join("goes.yaml")).unwrap();
    world.candle("changes.yaml", "changes", "priority: 1");
    world.candle("comes.yaml", "comes", "");
    let (after, _) = world.load().unwrap();
    let changes = before.changes(&after);
    assert_eq!(
        (changes.added, changes.changed, changes.removed),
        (
            vec!["comes".into()],
            vec!["changes".into()],
            vec!["goes".into()]
        )
    );
}

#[test]
fn a_file_that_is_not_text_is_refused_with_its_name() {
    let world = World::new();
    std::fs::write(
        Path::join(&world.config.catalog.models_dir, "a.yaml"),
        [0xff, 0xfe, 0x00],
    )
    .unwrap();
    assert_has(&world.refusal(), &["a.yaml"]);
}

fn hot(seconds: u64) -> KeepHot {
    KeepHot::For(Length::from_secs(seconds))
}
