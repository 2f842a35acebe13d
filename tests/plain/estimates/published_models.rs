//! Estimates for well-known models, compared with published figures. Each file of `tests/fixtures/models` contains the essential
//! keys of a `config.json` and the published figures with their source.

use std::path::PathBuf;

use model_pool::catalog::{
    Architecture, CONFIG_TOLERANCE_PER_CENT, CacheLoad, NumberWidth, Split, parameters_by_config,
    weights_by_config,
};
use serde_json::Value;

struct PublishedModel {
    name: String,
    figures: Value,
    config: PathBuf,
    _folder: tempfile::TempDir,
}

impl PublishedModel {
    fn figure(&self, key: &str) -> u64 {
        self.figures[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{}: no {key}", self.name))
    }

    fn architecture(&self) -> Architecture {
        Architecture::of_config_json(&self.config).unwrap()
    }
}

fn published() -> Vec<PublishedModel> {
    let mut all: Vec<PublishedModel> = std::fs::read_dir("tests/fixtures/models")
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let figures: Value =
                serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let config = folder.path().join("config.json");
            std::fs::write(&config, figures["config"].to_string()).unwrap();
            PublishedModel {
                name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                figures,
                config,
                _folder: folder,
            }
        })
        .collect();
    all.sort_by(|left, right| left.name.cmp(&right.name));
    assert!(all.len() >= 20, "only {} models", all.len());
    all
}

fn model(name: &str) -> PublishedModel {
    published()
        .into_iter()
        .find(|model| model.name == name)
        .unwrap()
}

fn is_within(got: u64, published: u64, per_mille: u64) -> bool {
    u128::from(got.abs_diff(published)) * 1000 <= u128::from(published) * u128::from(per_mille)
}

#[test]
fn parameters_counted_from_a_config_match_the_published_ones() {
    for model in published() {
        let counted = parameters_by_config(&model.config).unwrap().total;
        let (known, tolerance) = (
            model.figure("parameters"),
            model.figure("tolerance_per_mille"),
        );
        println!("{}: {counted} of {known}", model.name);
        assert!(
            is_within(counted, known, tolerance),
            "{}: {counted}, published are {known}",
            model.name
        );
    }
}

#[test]
fn weights_estimated_from_a_config_are_within_the_promised_tolerance_of_published_files() {
    for model in published() {
        let Some(known) = model.figures["weight_bytes"].as_u64() else {
            continue;
        };
        let tolerance = model.figure("weight_tolerance_per_mille");
        assert!(tolerance <= CONFIG_TOLERANCE_PER_CENT * 10);
        let counted = weights_by_config(&model.config).unwrap();
        println!("{}: {counted} of {known}", model.name);
        assert!(
            is_within(counted, known, tolerance),
            "{}: {counted}, published are {known}",
            model.name
        );
    }
}

#[test]
fn the_cache_size_of_one_token_matches_the_published_one() {
    for model in published() {
        let architecture = model.architecture();
        assert_eq!(
            architecture.cache_bytes_per_token(NumberWidth::TWO_BYTES),
            model.figure("cache_bytes_per_token"),
            "{}",
            model.name
        );
        assert_eq!(architecture.guesses, Vec::<String>::new(), "{}", model.name);
    }
}

#[test]
fn a_long_sequence_uses_no_more_cache_than_its_windows() {
    let mut seen = 0;
    for model in published() {
        let sequence = &model.figures["sequence"];
        let Some(tokens) = sequence["tokens"].as_u64() else {
            continue;
        };
        let load = CacheLoad::even(tokens, 1);
        let bytes = model
            .architecture()
            .cache_bytes_per_device(&load, Split::Heads, 1);
        assert_eq!(
            Some(bytes),
            sequence["cache_bytes"].as_u64(),
            "{}",
            model.name
        );
        seen += 1;
    }
    assert_eq!(seen, 6);
}

#[test]
fn heads_are_divided_over_devices_down_to_one_each_and_latents_are_replicated() {
    let per_device = |name: &str, devices: u32| {
        let load = CacheLoad::even(1, 1);
        model(name)
            .architecture()
            .cache_bytes_per_device(&load, Split::Heads, devices)
    };
    // Eight heads.
    assert_eq!(per_device("llama-3.1-70b", 1), 320 << 10);
    assert_eq!(per_device("llama-3.1-70b", 8), 40 << 10);
    assert_eq!(per_device("llama-3.1-70b", 16), 40 << 10);
    // Two heads.
    assert_eq!(per_device("qwen2.5-0.5b", 2), 6 << 10);
    assert_eq!(per_device("qwen2.5-0.5b", 8), 6 << 10);
    // Latents.
    assert_eq!(per_device("deepseek-v3", 1), 70_272);
    assert_eq!(per_device("deepseek-v3", 8), 70_272);
}

#[test]
fn an_engine_that_splits_layers_divides_every_cache() {
    let architecture = model("deepseek-v3").architecture();
    let load = CacheLoad::even(1, 1);
    assert_eq!(
        architecture.cache_bytes_per_device(&load, Split::Layers, 2),
        35_136
    );
}

#[test]
fn a_recurrent_state_is_counted_per_sequence_and_not_per_token() {
    let architecture = model("qwen3-coder-next").architecture();
    let bytes = |tokens, sequences| {
        let load = CacheLoad::even(tokens, sequences);
        architecture.cache_bytes_per_device(&load, Split::Heads, 1)
    };
    // 36 layers: a matrix of 128 × 128 for each of 32 heads, and three inputs of 8192 numbers.
    let state = 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2);
    assert_eq!(bytes(1000, 1), 1000 * (24 << 10) + state);
    assert_eq!(bytes(1000, 3), 3 * bytes(1000, 1));
    assert_eq!(bytes(2000, 1) - bytes(1000, 1), 1000 * (24 << 10));
}

#[test]
fn a_cache_of_narrower_numbers_is_smaller() {
    let architecture = model("llama-3.1-8b").architecture();
    assert_eq!(
        architecture.cache_bytes_per_token(NumberWidth::ONE_BYTE),
        64 << 10
    );
    assert_eq!(
        architecture.cache_bytes_per_token(NumberWidth::FOUR_BYTES),
        256 << 10
    );
    // q8_0: 34 bytes for 32 numbers.
    assert_eq!(architecture.cache_bytes_per_token(NumberWidth(272)), 69_632);
}
