//! Tests of folders in Hugging Face's form.

use super::gguf_writer::tensor;
use crate::files::{Kind, ModelFiles};
use crate::stored_tensor::Encoding;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Folders of the decoders that have reference outputs.
fn kept_models() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(kept()).expect("the vectors are kept");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.join("model.safetensors").exists()
                || path.join("model.safetensors.index.json").exists()
        })
        .filter(|path| {
            let config = std::fs::read(path.join("config.json")).expect("a configuration");
            let config: Value = serde_json::from_slice(&config).expect("JSON");
            config["architectures"][0]
                .as_str()
                .is_some_and(|name| name.ends_with("ForCausalLM"))
        })
        .collect();
    folders.sort();
    folders
}

/// A description implies exactly the tensors that `transformers` wrote.
#[test]
fn every_test_model_has_exactly_the_tensors_of_its_specification() {
    let folders = kept_models();
    assert!(folders.len() > 20, "{folders:?}");
    for folder in folders {
        let files = ModelFiles::open(&folder).expect("opens");
        assert_eq!(files.kind(), Kind::Decoder);
        let expected: BTreeSet<String> = files
            .expected()
            .expect("a decoder")
            .into_iter()
            .map(|expected| expected.name)
            .collect();
        let found: BTreeSet<String> = files.tensor_names().map(str::to_owned).collect();
        let left: Vec<_> = found
            .difference(&expected)
            // Stacked experts remain in the table in addition to their parts, and a tied head may be stored twice.
            .filter(|name| !name.contains("experts.") && *name != "lm_head.weight")
            .collect();
        assert!(left.is_empty(), "{}: {left:?}", folder.display());
        assert!(files.weights_bytes() > 0);
    }
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat")
}

/// A folder with the demo model's configuration, and its tensors renamed.
fn renamed(rename: impl Fn(&str) -> String, config: impl Fn(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let tensors =
        candle_core::safetensors::load(demo().join("model.safetensors"), &candle_core::Device::Cpu)
            .expect("the demo weights");
    let tensors: Vec<_> = tensors
        .into_iter()
        .map(|(name, tensor)| (rename(&name), tensor))
        .collect();
    safetensors::serialize_to_file(tensors, None, &folder.path().join("model.safetensors"))
        .expect("written");
    let json = std::fs::read(demo().join("config.json")).expect("a configuration");
    let mut json: Value = serde_json::from_slice(&json).expect("JSON");
    config(&mut json);
    std::fs::write(folder.path().join("config.json"), json.to_string()).expect("written");
    folder
}

#[test]
fn tensors_are_mapped_at_their_position_in_the_file() {
    let files = ModelFiles::open(&demo()).expect("opens");
    let all =
        candle_core::safetensors::load(demo().join("model.safetensors"), &candle_core::Device::Cpu)
            .expect("the demo weights");
    for (name, tensor) in all {
        let stored = files.tensor(&name).expect("is there");
        assert_eq!(stored.encoding, Encoding::F32);
        assert_eq!(stored.shape, tensor.dims());
        let numbers: Vec<f32> = stored
            .bytes()
            .chunks_exact(4)
            .map(|number| f32::from_le_bytes(number.try_into().expect("four bytes")))
            .collect();
        let meant = tensor
            .flatten_all()
            .and_then(|tensor| tensor.to_vec1::<f32>());
        assert_eq!(numbers, meant.expect("numbers"));
    }
    assert!(
        files
            .maybe_tensor("model.nothing")
            .expect("no error")
            .is_none()
    );
    let error = files
        .tensor("model.nothing")
        .expect_err("is missing")
        .to_string();
    assert!(error.contains("model.nothing is missing"), "{error}");
}

#[test]
fn a_decoder_is_found_under_the_tensor_names_of_embedding_and_multimodal_models() {
    let bare = renamed(
        |name| name.replacen("model.", "", 1),
        |config| {
            config["architectures"] = json!(["LlamaModel"]);
        },
    );
    let newer = renamed(
        |name| name.replacen("model.", "model.language_model.", 1),
        |_| {},
    );
    let older = renamed(|name| format!("language_model.{name}"), |_| {});
    for folder in [bare, newer, older] {
        let files = ModelFiles::open(folder.path()).expect("opens");
        assert!(files.tensor("model.layers.2.mlp.up_proj.weight").is_ok());
    }
}

#[test]
fn weights_with_another_name_are_used_if_they_are_the_only_ones() {
    let folder = renamed(str::to_owned, |_| {});
    let weights = folder.path().join("model.safetensors");
    std::fs::rename(&weights, folder.path().join("decoder.safetensors")).expect("renamed");
    assert!(ModelFiles::open(folder.path()).is_ok());
}

#[test]
fn a_head_that_differs_from_the_embedding_is_not_tied() {
    let folder = renamed(str::to_owned, |_| {});
    let path = folder.path().join("model.safetensors");
    let tensors = candle_core::safetensors::load(&path, &candle_core::Device::Cpu);
    let mut tensors: Vec<_> = tensors.expect("weights").into_iter().collect();
    let (_, embedding) = tensors
        .iter()
        .find(|(name, _)| name == "model.embed_tokens.weight")
        .expect("an embedding");
    for (head, ties) in [
        (embedding.clone(), true),
        ((embedding * 2.0).expect("doubles"), false),
    ] {
        tensors.retain(|(name, _)| name != "lm_head.weight");
        tensors.push(("lm_head.weight".to_owned(), head));
        safetensors::serialize_to_file(tensors.clone(), None, &path).expect("written");
        let files = ModelFiles::open(folder.path()).expect("opens");
        assert_eq!(files.spec().expect("a decoder").ties_head, ties);
    }
}

#[test]
fn experts_stored_in_one_tensor_are_read_individually() {
    let folder = tempfile::tempdir().expect("a folder");
    let apart = kept().join("qwen3-moe");
    let files = ModelFiles::open(&apart).expect("opens");
    let spec = files.spec().expect("a decoder").clone();
    let read = |files: &ModelFiles, name: &str| -> Vec<f32> {
        let numbers = tensor(&files.tensor(name).expect("is there"));
        let numbers = numbers.flatten_all().and_then(|row| row.to_vec1());
        numbers.expect("numbers")
    };
    let cpu = candle_core::Device::Cpu;
    let mut tensors = Vec::new();
    let mut stacks: std::collections::BTreeMap<String, (Vec<f32>, Vec<usize>)> = Default::default();
    for expected in files.expected().expect("a decoder") {
        let numbers = read(&files, &expected.name);
        match expected.name.split_once(".experts.") {
            None => {
                let tensor = candle_core::Tensor::from_vec(numbers, expected.shape, &cpu);
                tensors.push((expected.name, tensor.expect("a tensor")));
            }
            Some((block, part)) => {
                let down = part.contains("down_proj");
                let name = if down { "down_proj" } else { "gate_up_proj" };
                let (all, shape) = stacks.entry(format!("{block}.experts.{name}")).or_default();
                all.extend(numbers);
                *shape = expected.shape;
            }
        }
    }
    for (name, (numbers, shape)) in stacks {
        let rows = if name.ends_with("gate_up_proj") {
            2 * shape[0]
        } else {
            shape[0]
        };
        let experts = numbers.len() / rows / shape[1];
        let tensor = candle_core::Tensor::from_vec(numbers, (experts, rows, shape[1]), &cpu);
        tensors.push((name, tensor.expect("a tensor")));
    }
    safetensors::serialize_to_file(tensors, None, &folder.path().join("model.safetensors"))
        .expect("written");
    std::fs::copy(apart.join("config.json"), folder.path().join("config.json")).expect("a copy");
    let stacked = ModelFiles::open(folder.path()).expect("opens");
    assert_eq!(stacked.spec().expect("a decoder"), &spec);
    for expected in files.expected().expect("a decoder") {
        let (one, other) = (read(&files, &expected.name), read(&stacked, &expected.name));
        assert_eq!(one, other, "{}", expected.name);
    }
}
