//! Tests of `need.rs`: detection of damaged models, and the number of reads of their files.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::documents::Source;
use crate::entries::Reference;

const HEADER: &str = r#"{"w": {"dtype": "F16", "shape": [100], "data_offsets": [0, 200]}}"#;

fn write_weights(folder: &Path, data: usize) {
    let mut file = (HEADER.len() as u64).to_le_bytes().to_vec();
    file.extend(HEADER.as_bytes());
    file.resize(file.len() + data, 0);
    std::fs::write(folder.join("model.safetensors"), file).expect("written");
}

/// A vLLM model in a folder, with these additional keys of `engine_config`.
fn entry(folder: &Path, more: &Value) -> Entry {
    entry_of("VLLMEngine", folder, more, json!({"memory_gib": 4}))
}

fn entry_of(engine: &str, folder: &Path, more: &Value, pool: Value) -> Entry {
    let config = r#"{"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64, "max_position_embeddings": 512, "vocab_size": 99}"#;
    std::fs::write(folder.join("config.json"), config).expect("written");
    let mut engine_config = json!({"model_id": "m", "type": engine, "model_path": folder});
    for (key, value) in more.as_object().expect("keys") {
        engine_config[key] = value.clone();
    }
    let document = json!({"engine_config": engine_config, "pool_config": pool});
    let config = Config::default();
    let read = Entry::from_document(
        &document,
        Source::Registered,
        &config,
        &Reference::default(),
    );
    read.expect("a model").0
}

#[test]
fn weights_outside_the_engines_reach_are_not_reported_as_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    write_weights(folder.path(), 150);
    let damage = |more: Value| entry(folder.path(), &more).damage();
    let found = damage(json!({})).unwrap_or_default();
    assert!(found.starts_with("its weights are damaged: "), "{found}");
    let reads = json!({"engine_kwargs": {"load_format": "safetensors"}});
    assert!(damage(reads).is_some());
    let reads_none = json!({"engine_kwargs": {"load_format": "dummy"}});
    assert_eq!(damage(reads_none), None);
    // Another folder may be mounted at this path.
    let prefix = json!({"command_prefix": ["env", "--"]});
    assert_eq!(damage(prefix), None);
}

#[test]
fn weights_are_read_once_per_specification_and_again_only_for_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    write_weights(folder.path(), 150);
    let entry = entry(folder.path(), &json!({}));
    let figures = Figures::new(&entry);
    let config = Config::default();
    let spec = || {
        entry
            .spec_by(&figures, &config, None, None)
            .expect("a figure")
    };
    assert!(spec().0.damage.is_some());
    write_weights(folder.path(), 200);
    assert!(spec().0.damage.is_some(), "what was read before");
    assert_eq!(entry.damage(), None, "what is there now");
}

#[test]
fn a_measured_model_keeps_its_estimate_next_to_the_measurement() {
    let folder = tempfile::tempdir().expect("a folder");
    write_weights(folder.path(), 200);
    let context = json!({"max_total_tokens": 256});
    let entry = entry_of("CandleEngine", folder.path(), &context, json!({}));
    let config = Config::default();
    let measured = MeasuredNeed {
        bytes_per_device: Bytes(7 << 30),
        reload_ms: 5,
    };
    let of = |measured| {
        let found = entry.spec_and_estimate(&config, measured, None);
        let EntryFigures {
            spec, estimated, ..
        } = found.expect("a figure");
        let (alone, _) = entry.spec_on(&config, measured, None).expect("a figure");
        assert_eq!(spec, alone);
        (spec.bytes_per_device, estimated)
    };
    let (unmeasured, estimated) = of(None);
    assert_eq!(estimated, Some(unmeasured));
    assert!(unmeasured < measured.bytes_per_device, "{unmeasured}");
    assert_eq!(of(Some(measured)), (measured.bytes_per_device, estimated));
}
