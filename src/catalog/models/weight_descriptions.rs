//! Recognises JSON files that belong to weights in the folder of model files.

use std::path::Path;

use serde_json::Value;

use crate::forms;

/// Files of weights that may lie in the folder of model files.
const OF_WEIGHTS: [&str; 15] = [
    "adapter_config.json",
    "added_tokens.json",
    "chat_template.json",
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "modules.json",
    "params.json",
    "preprocessor_config.json",
    "processor_config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
];

/// Files of weights by the beginning or end of their names.
const BEGINNINGS: [&str; 3] = ["tokenizer", "quant", "hf_quant"];
const ENDINGS: [&str; 3] = [".index.json", "processor_config.json", "_map.json"];
/// Weights themselves. A JSON file next to them describes them.
const WEIGHTS: [&str; 5] = ["safetensors", "gguf", "bin", "pt", "pth"];
/// Maximum entries of a folder to look at.
const ENTRIES_MAX: usize = 1000;

/// Returns true for a file that belongs to weights: a JSON file with such a name or next to weights, and no key of a model file.
pub(super) fn is_part_of_weights(path: &Path, text: impl FnOnce() -> String) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".json") {
        return false;
    }
    let is_named = OF_WEIGHTS.contains(&&*name)
        || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || ENDINGS.iter().any(|end| name.ends_with(end));
    if !is_named && !path.parent().is_some_and(has_weights) {
        return false;
    }
    match reading::json::<Value>(&text()) {
        Ok(value) => !forms::has_telling_key(&value),
        // A model's file with a mistake is reported.
        Err(_) => is_named,
    }
}

fn has_weights(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files = entries
        .take(ENTRIES_MAX)
        .filter_map(|file| Some(file.ok()?.path()));
    files.any(|file| {
        let extension = file.extension().unwrap_or_default();
        WEIGHTS.iter().any(|known| extension == *known)
    })
}
