//! Broken, missing and misplaced files.

use super::{CheckOutput, World};

impl CheckOutput {
    #[track_caller]
    fn has_error_at(&self, line: u32, parts: &[&str]) {
        let place = format!("line {line}");
        let is_it =
            |text: &str| text.contains(&place) && parts.iter().all(|part| text.contains(part));
        let mut lines = self.errors.lines();
        assert!(lines.any(is_it), "{parts:?}: {}", self.errors);
    }

    /// Each model has one reason.
    #[track_caller]
    fn fails_once(&self) {
        let count = self.all().matches("cannot be started: ").count();
        assert_eq!(count, 1, "{}", self.all());
    }
}

#[test]
fn damaged_and_missing_files_are_reported_with_their_numbers() {
    let length = |world: &World| world.weights("model.safetensors").metadata().unwrap().len();
    let complete = length(&World::new());
    let short = complete - 100;
    let shorter = format!("it is {short} bytes long, and its header describes {complete}");
    type Damage = fn(&World);
    let cases: [(Damage, &[&str]); 9] = [
        (
            |world| world.cut("model.safetensors", 5000),
            &["model.safetensors", "5000", "download it again"],
        ),
        (
            |world| {
                let length = world.weights("model.safetensors").metadata().unwrap().len();
                world.cut("model.safetensors", length - 100);
            },
            &[&shorter, "100 bytes are missing"],
        ),
        (
            |world| world.cut("model.safetensors", 0),
            &["model.safetensors: it is 0 bytes long", "download it again"],
        ),
        (
            |world| std::fs::remove_file(world.weights("model.safetensors")).unwrap(),
            &["has no weights", "model.safetensors"],
        ),
        (
            |world| world.cut("config.json", 40),
            &["config.json", "line", "download it again"],
        ),
        (
            |world| std::fs::write(world.weights("config.json"), "{}").unwrap(),
            &["config.json", "is missing or 0"],
        ),
        (
            |world| std::fs::remove_file(world.weights("tokenizer.json")).unwrap(),
            &["has no tokenizer.json", "download"],
        ),
        (
            |world| world.cut("tokenizer.json", 100),
            &["tokenizer.json (100 bytes) is not JSON"],
        ),
        (
            |world| std::fs::remove_dir_all(world.path("weights")).unwrap(),
            &["there is no ", "weights/tiny; copy the model there"],
        ),
    ];
    for (damage, parts) in cases {
        let world = World::new();
        damage(&world);
        let said = world.check();
        said.fails_with(parts);
        said.has(&[
            "models/tiny.yaml: line 4: engine_config.model_path",
            "model lab/tiny: cannot be started: ",
            "1 model cannot be started",
        ]);
    }
}

#[test]
fn a_broken_file_does_not_prevent_the_check_of_others() {
    let world = World::new();
    world.write(
        "models/broken.yaml",
        "engine_config: {model_id: lab/broken, type: Foo}\n",
    );
    let said = world.check();
    assert_eq!(said.status, Some(1), "{}", said.all());
    said.has(&[
        "error: models/broken.yaml: line 1: engine_config.type: `Foo` is not an engine",
        "model lab/tiny: would run: ",
        "1 error",
    ]);
    assert!(!world.path("data").exists(), "nothing is written");
}

#[test]
fn paths_are_relative_to_their_file_and_otherwise_to_the_start_folder_with_a_warning() {
    let world = World::new();
    world.write(
        "models/tiny.yaml",
        "engine_config: {model_id: lab/tiny, type: CandleEngine, model_path: weights/tiny}\n",
    );
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&[
        "warning: models/tiny.yaml: line 1: engine_config.model_path",
        "write ../weights/tiny",
        "would run: ",
    ]);
}

#[test]
fn weight_files_in_the_models_folder_are_not_read_as_models() {
    let world = World::new();
    std::fs::create_dir(world.path("models/tiny-hf")).unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let copy = world.path("models/tiny-hf").join(file);
        std::fs::copy(world.weights(file), copy).unwrap();
    }
    for (file, text) in [
        ("generation_config.json", "{\"temperature\": 0.6}"),
        ("tokenizer_config.json", "{\"model_max_length\": 512}"),
        ("special_tokens_map.json", "{\"eos_token\": \"</s>\"}"),
        ("video_preprocessor_config.json", "{\"size\": 224}"),
        ("hf_quant_config.json", "{\"quantization\": {}}"),
        ("quantize_config.json", "{\"bits\": 4}"),
        ("notes_of_the_authors.json", "{\"by\": [1, 2]}"),
        (
            "model.safetensors.index.json",
            "{\"metadata\": {}, \"weight_map\": {}}",
        ),
    ] {
        world.write(&format!("models/tiny-hf/{file}"), text);
    }
    world.write(
        "models/tiny.yaml",
        "engine_config: {model_id: lab/tiny, type: CandleEngine, model_path: tiny-hf}\n",
    );
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    assert!(!said.all().contains(".json"), "{}", said.all());
    said.has(&["model lab/tiny: fits on gpu0"]);
    // A model's file with a mistake is named, also next to weights.
    for text in ["{\"engine_config\": {", "{\"engine_config\": {}}"] {
        world.write("models/tiny-hf/mine.json", text);
        let said = world.check();
        said.has(&["mine.json", "model lab/tiny: fits on gpu0"]);
        assert_eq!(said.status, Some(1), "{}", said.all());
    }
}

#[test]
fn git_lfs_pointers_and_html_pages_instead_of_weights_are_reported_once() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n";
    for (text, parts) in [
        (pointer, ["Git LFS pointer", "12345 bytes", "git lfs pull"]),
        (
            "<!DOCTYPE html><html></html>",
            ["web page", "login", "/resolve/"],
        ),
    ] {
        let world = World::new();
        std::fs::write(world.weights("model.safetensors"), text).unwrap();
        let said = world.check();
        said.fails_with(&parts);
        said.fails_once();
        assert!(!said.all().contains("does not fit"), "{}", said.all());
    }
    let world = World::new();
    world.write("weights/tiny.gguf", pointer);
    world.write(
        "models/tiny.yaml",
        "engine_config: {model_id: lab/tiny, type: CandleEngine, model_path: ../weights/tiny.gguf}\n",
    );
    let said = world.check();
    said.fails_with(&["Git LFS pointer"]);
    said.fails_once();
    let world = World::new();
    std::fs::remove_dir_all(world.path("weights/tiny")).unwrap();
    let said = world.check();
    said.fails_with(&["weights/tiny"]);
    said.fails_once();
}

#[test]
fn every_mistake_of_a_model_file_is_reported_in_one_run() {
    let world = World::new();
    world.write(
        "models/tiny.yaml",
        "engine_config:
  model_id: lab/tiny
  type: CandleEngine
  model_path: ../weights/tiny
  priority: 2
  engine_kwargs: {concurrency: 0}
pool_config:
  priority: -1
  keep_hot: soon
  gpus_per_replica: 0
  memory_gib: 40GiB
",
    );
    world.write(
        "model_reference.json",
        "{\"a\": {\"priority\": -1, \"gpus_per_replica\": 0}, \"b\": {\"prioritee\": 1}}",
    );
    let said = world.check();
    for (line, parts) in [
        (1, ["a.priority", "-1"]),
        (1, ["a.gpus_per_replica", "allowed: 1 to"]),
        (1, ["b.prioritee", "did you mean `priority`"]),
    ] {
        said.has_error_at(line, &parts);
    }
    world.write("model_reference.json", "{}");
    let said = world.check();
    assert_eq!(said.status, Some(1), "{}", said.all());
    for (line, parts) in [
        (
            5,
            [
                "engine_config.priority",
                "belongs to the section `pool_config`",
            ],
        ),
        (6, ["engine_config.engine_kwargs.concurrency", "0"]),
        (8, ["pool_config.priority", "-1"]),
        (9, ["pool_config.keep_hot", "soon"]),
        (10, ["pool_config.gpus_per_replica", "0"]),
        (11, ["pool_config.memory_gib", "a number without a unit"]),
    ] {
        said.has_error_at(line, &parts);
    }
    assert!(said.errors.contains("6 errors"), "{}", said.errors);
}

#[test]
fn a_configuration_without_effect_is_reported() {
    let world = World::new();
    world.write("models/tiny.yaml", "model: Qwen/Qwen3-8B\nengine: vllm\n");
    let said = world.check();
    said.fails_with(&[
        "tiny.yaml",
        "the key `model`",
        "`engine_config:`",
        "docs/examples",
    ]);
    std::fs::remove_file(world.path("models/tiny.yaml")).unwrap();
    world
        .check()
        .has(&["there is no model yet", "docs/examples"]);
}
