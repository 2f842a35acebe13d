//! Broken model folders: each ends the engine with one line that names the file and the problem.

#[path = "broken_models/gpt.rs"]
mod gpt;
mod support;

use candle_core::quantized::gguf_file::{self, Value as Metadata};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use candle_engine::{EngineOptions, Listen, serve};
use serde_json::{Value, json};
use std::path::Path;
use support::{demo_model, options};
use tempfile::TempDir;

/// A copy of a demo model, to be broken.
fn copy() -> TempDir {
    copy_of(&demo_model("tiny-chat"))
}

fn copy_of(folder: &Path) -> TempDir {
    let entries = std::fs::read_dir(folder).expect("a model");
    let folder = tempfile::tempdir().expect("a folder");
    for entry in entries {
        let path = entry.expect("a file").path();
        std::fs::copy(&path, folder.path().join(path.file_name().expect("a name")))
            .expect("a copy");
    }
    folder
}

/// The engine's final message for a folder.
async fn last_words(folder: &Path) -> String {
    last_words_of(options(folder, Listen::Unix(folder.join("socket")))).await
}

async fn last_words_of(options: EngineOptions) -> String {
    let words = serve(options, std::future::pending())
        .await
        .expect_err("the model is broken")
        .to_string();
    assert!(
        !words.contains('\n') && words.len() < 1200,
        "one line: {words}"
    );
    words
}

fn assert_says(words: &str, parts: &[&str]) {
    assert!(
        parts.iter().all(|part| words.contains(part)),
        "{words:?} should say {parts:?}"
    );
}

fn edit(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut json = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    change(&mut json);
    std::fs::write(path, json.to_string()).expect("written");
}

/// Changes the header of the weights, leaving the tensors unchanged.
fn edit_header(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).expect("weights");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let mut header = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    change(&mut header);
    let header = header.to_string().into_bytes();
    let whole = [
        (header.len() as u64).to_le_bytes().as_slice(),
        &header,
        &bytes[8 + length..],
    ]
    .concat();
    std::fs::write(path, whole).expect("written");
}

#[tokio::test]
async fn a_missing_folder_is_reported_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("nothing");
    let words = last_words_of(options(
        &missing,
        Listen::Unix(folder.path().join("socket")),
    ))
    .await;
    assert_says(&words, &["nothing", "no such folder"]);
}

#[tokio::test]
async fn missing_files_are_named() {
    for (file, said) in [
        ("config.json", "missing"),
        ("tokenizer.json", "missing"),
        ("model.safetensors", "neither model.safetensors nor"),
    ] {
        let folder = copy();
        std::fs::remove_file(folder.path().join(file)).expect("removed");
        assert_says(&last_words(folder.path()).await, &[file, said]);
    }
}

#[tokio::test]
async fn a_broken_configuration_is_named() {
    let folder = copy();
    std::fs::write(folder.path().join("config.json"), "{\"hidden_size\": ").expect("written");
    assert_says(
        &last_words(folder.path()).await,
        &["config.json", "not valid JSON"],
    );
    for (name, value, said) in [
        (
            "architectures",
            json!(["XlstmForCausalLM"]),
            "XlstmForCausalLM; this engine supports LlamaForCausalLM",
        ),
        ("architectures", json!(null), "architecture is none"),
        ("hidden_size", json!("wide"), "not a whole number"),
        ("hidden_size", json!(0), "hidden_size is 0"),
        ("num_attention_heads", json!(7), "7 attention heads"),
        ("num_key_value_heads", json!(3), "do not divide"),
        (
            "num_hidden_layers",
            json!(1_000_000_000),
            "num_hidden_layers",
        ),
        ("head_dim", json!(128), "q_proj.weight has shape"),
        ("hidden_act", json!("relu"), "relu"),
        ("eos_token_id", json!(99_999), "eos_token_id 99999"),
        ("quantization_config", json!({"bits": 4}), "quantised"),
    ] {
        let folder = copy();
        edit(folder.path(), "config.json", |config| config[name] = value);
        assert_says(&last_words(folder.path()).await, &["config.json", said]);
    }
}

#[tokio::test]
async fn a_context_larger_than_the_models_is_refused_with_both_numbers() {
    let folder = copy();
    let options = EngineOptions {
        context_tokens: 100_000,
        ..options(folder.path(), Listen::Unix(folder.path().join("socket")))
    };
    assert_says(
        &last_words_of(options).await,
        &["context_tokens", "100000", "512"],
    );
}

#[tokio::test]
async fn a_tokenizer_larger_than_the_embedding_is_refused_with_both_numbers() {
    let folder = copy();
    edit(folder.path(), "tokenizer.json", |tokenizer| {
        tokenizer["model"]["vocab"]["surplus"] = json!(640)
    });
    assert_says(
        &last_words(folder.path()).await,
        &["tokenizer.json", "641", "640"],
    );
}

#[tokio::test]
async fn an_invalid_tokenizer_is_named() {
    let folder = copy();
    std::fs::write(folder.path().join("tokenizer.json"), "{\"model\": 5}").expect("written");
    assert_says(
        &last_words(folder.path()).await,
        &["tokenizer.json", "not a tokenizer"],
    );
}

#[tokio::test]
async fn a_broken_chat_template_is_named() {
    let folder = copy();
    std::fs::write(
        folder.path().join("chat_template.jinja"),
        "{% for m in messages %}",
    )
    .expect("written");
    assert_says(
        &last_words(folder.path()).await,
        &["chat_template.jinja", "template is invalid"],
    );
}

#[tokio::test]
async fn truncated_weights_are_refused_with_the_first_missing_tensor() {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).expect("weights");
    std::fs::write(&path, &bytes[..bytes.len() - 1000]).expect("written");
    assert_says(
        &last_words(folder.path()).await,
        &["model.safetensors", "the first that is cut off", "model."],
    );
    for length in [0, 7, 8, 100] {
        std::fs::write(&path, &bytes[..length]).expect("written");
        assert_says(
            &last_words(folder.path()).await,
            &["model.safetensors", "download it again"],
        );
    }
}

#[tokio::test]
async fn a_header_that_claims_to_be_larger_than_the_file_allocates_nothing() {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("weights");
    for claimed in [1u64 << 60, u64::MAX, bytes.len() as u64] {
        bytes[..8].copy_from_slice(&claimed.to_le_bytes());
        std::fs::write(&path, &bytes).expect("written");
        assert_says(
            &last_words(folder.path()).await,
            &["model.safetensors", &claimed.to_string()],
        );
    }
}

#[tokio::test]
async fn tensors_that_overlap_are_refused_by_name() {
    let folder = copy();
    edit_header(folder.path(), |header| {
        let offsets = header["model.norm.weight"]["data_offsets"].clone();
        header["model.layers.0.input_layernorm.weight"]["data_offsets"] = offsets;
    });
    let tensors = ["model.norm.weight", "model.layers.0.input_layernorm.weight"];
    assert_says(
        &last_words(folder.path()).await,
        &["model.safetensors", "overlap", tensors[0], tensors[1]],
    );
}

#[tokio::test]
async fn a_missing_tensor_a_wrong_shape_and_a_wrong_type_are_refused_by_name() {
    const NAME: &str = "model.layers.1.mlp.down_proj.weight";
    let folder = copy();
    edit_header(folder.path(), |header| {
        let tensor = header
            .as_object_mut()
            .expect("an object")
            .remove(NAME)
            .expect("the tensor");
        header["another"] = tensor;
    });
    assert_says(
        &last_words(folder.path()).await,
        &["model.safetensors", NAME, "missing"],
    );
    let folder = copy();
    edit_header(folder.path(), |header| {
        header[NAME]["shape"] = json!([192, 64])
    });
    assert_says(
        &last_words(folder.path()).await,
        &["model.safetensors", NAME, "[192, 64]", "[64, 192]"],
    );
    let folder = copy();
    edit_header(folder.path(), |header| header[NAME]["dtype"] = json!("I32"));
    assert_says(
        &last_words(folder.path()).await,
        &["model.safetensors", NAME, "I32"],
    );
}

#[tokio::test]
async fn non_finite_weights_are_found_before_the_first_request() {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("weights");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    bytes[8 + length..].fill(0xff);
    std::fs::write(&path, &bytes).expect("written");
    assert_says(&last_words(folder.path()).await, &["no finite numbers"]);
}

#[tokio::test]
async fn an_index_that_points_outside_its_folder_is_refused() {
    let folder = copy();
    std::fs::rename(
        folder.path().join("model.safetensors"),
        folder.path().join("part.safetensors"),
    )
    .expect("renamed");
    let index = folder.path().join("model.safetensors.index.json");
    for (place, said) in [
        (
            "../secret.safetensors",
            "not a safetensors file in the same folder",
        ),
        ("lost.safetensors", "this file is missing"),
    ] {
        std::fs::write(
            &index,
            json!({"weight_map": {"model.embed_tokens.weight": place}}).to_string(),
        )
        .expect("written");
        let words = last_words(folder.path()).await;
        assert!(words.contains(said), "{words}");
    }
    std::fs::write(
        &index,
        json!({"weight_map": {"model.embed_tokens.weight": "part.safetensors"}}).to_string(),
    )
    .expect("written");
    assert_says(&last_words(folder.path()).await, &["index.json", "missing"]);
}

#[tokio::test]
async fn a_non_finite_number_is_reported_by_tensor_if_verification_is_on() {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("weights");
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, bytes).expect("written");
    let options = EngineOptions {
        verify: true,
        ..options(folder.path(), Listen::Unix(folder.path().join("socket")))
    };
    assert_says(
        &last_words_of(options).await,
        &["model.safetensors", "the tensor ", "not finite"],
    );
}

/// Writes a GGUF file with metadata and one tensor.
fn gguf(path: &Path, metadata: &[(&str, Metadata)]) {
    let row = Tensor::ones((32, 32), DType::F32, &Device::Cpu).expect("a matrix");
    let row = QTensor::quantize(&row, GgmlDType::F32).expect("quantises");
    let metadata: Vec<(&str, &Metadata)> =
        metadata.iter().map(|(key, value)| (*key, value)).collect();
    let mut file = std::fs::File::create(path).expect("a file");
    gguf_file::write(&mut file, &metadata, &[("token_embd.weight", &row)]).expect("written");
}

#[tokio::test]
async fn a_gguf_that_cannot_be_served_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let architecture = |name: &str| {
        let name = Metadata::String(name.to_owned());
        [("general.architecture", name)]
    };
    gguf(&path, &architecture("mamba"));
    for place in [folder.path(), &path] {
        assert_says(
            &last_words_in(place, folder.path()).await,
            &["model.gguf", "mamba", "supports GGUF files of llama, "],
        );
    }
    gguf(&path, &architecture("llama"));
    assert_says(
        &last_words_in(&path, folder.path()).await,
        &["model.gguf", "llama.embedding_length is missing"],
    );
    let bytes = std::fs::read(&path).expect("a file");
    let mut absurd = bytes.clone();
    absurd[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    for (broken, said) in [
        (&bytes[..40], "claims 1 tensors, but only 24 bytes are left"),
        (&bytes[..bytes.len() - 64], "bytes are missing"),
        (&absurd[..], "claims 18446744073709551615 tensors"),
        (b"none", "does not begin with `GGUF`"),
    ] {
        std::fs::write(&path, broken).expect("written");
        assert_says(
            &last_words_in(&path, folder.path()).await,
            &["model.gguf", said],
        );
    }
}

async fn last_words_in(model: &Path, folder: &Path) -> String {
    last_words_of(options(model, Listen::Unix(folder.join("socket")))).await
}
