//! The formats in which a model may be stored: F16, BF16, several files, templates in a separate file.

mod support;

use candle_core::{DType, Device, Tensor};
use candle_engine::{EngineOptions, Listen};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use support::{Engine, demo_model, options};
use tempfile::TempDir;

const FILES: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

/// A copy of the demo model without its weights.
fn without_weights() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        std::fs::copy(demo_model("tiny-chat").join(file), folder.path().join(file))
            .expect("a copy");
    }
    folder
}

fn tensors() -> BTreeMap<String, Tensor> {
    let path = demo_model("tiny-chat").join("model.safetensors");
    candle_core::safetensors::load(path, &Device::Cpu)
        .expect("the demo weights")
        .into_iter()
        .collect()
}

fn save(path: &Path, tensors: &BTreeMap<String, Tensor>, dtype: DType) {
    let converted: Vec<(&String, Tensor)> = tensors
        .iter()
        .map(|(name, tensor)| (name, tensor.to_dtype(dtype).expect("converts")))
        .collect();
    safetensors::serialize_to_file(converted, None, path).expect("written");
}

async fn responses(folder: &Path) {
    let socket = tempfile::tempdir().expect("a folder");
    let options: EngineOptions = options(folder, Listen::Unix(socket.path().join("socket")));
    let engine = Engine::start_with(options, socket).await;
    let body = json!({"messages": [{"role": "user", "content": "Where is Swagger UI?"}], "temperature": 0});
    let (_, response) = engine.post("/v1/chat/completions", &body).await;
    let text = response["choices"][0]["message"]["content"].as_str();
    assert_eq!(
        text,
        Some("Swagger UI is at /llm/docs, and the OpenAPI document is at /llm/openapi.json."),
        "{response}"
    );
    engine.stop().await.expect("a clean end");
}

#[tokio::test]
async fn half_precision_weights_give_the_same_responses_as_full_precision() {
    for dtype in [DType::F16, DType::BF16] {
        let folder = without_weights();
        save(&folder.path().join("model.safetensors"), &tensors(), dtype);
        responses(folder.path()).await;
    }
}

#[tokio::test]
async fn weights_in_several_files_are_found_by_their_index() {
    let folder = without_weights();
    let mut parts = [BTreeMap::new(), BTreeMap::new()];
    let mut index = serde_json::Map::new();
    for (place, (name, tensor)) in tensors().into_iter().enumerate() {
        index.insert(name.clone(), Value::from(FILES[place % 2]));
        parts[place % 2].insert(name, tensor);
    }
    for (file, part) in FILES.iter().zip(&parts) {
        save(&folder.path().join(file), part, DType::F32);
    }
    std::fs::write(
        folder.path().join("model.safetensors.index.json"),
        json!({"weight_map": index}).to_string(),
    )
    .expect("written");
    responses(folder.path()).await;
}

#[tokio::test]
async fn a_chat_template_in_a_separate_file_is_used() {
    let folder = without_weights();
    save(
        &folder.path().join("model.safetensors"),
        &tensors(),
        DType::F32,
    );
    let path = folder.path().join("tokenizer_config.json");
    let mut settings: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    let template = settings["chat_template"].take();
    std::fs::write(&path, settings.to_string()).expect("written");
    std::fs::write(
        folder.path().join("chat_template.jinja"),
        template.as_str().expect("a template"),
    )
    .expect("written");
    responses(folder.path()).await;
}
