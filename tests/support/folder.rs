//! Folders of weights: writes a tiny model, and reads the files of a folder.

use std::path::Path;

use serde_json::json;

/// Writes weights of 1 MiB, with a cache of 2 layers × 4 heads × 16 numbers.
pub fn write_tiny_weights(folder: &Path) {
    let tensor = json!({"dtype": "BF16", "shape": [1024, 512], "data_offsets": [0, 1 << 20]});
    let header = json!({ "w": tensor }).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + (1 << 20), 0);
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    let config = json!({
        "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "hidden_size": 128, "max_position_embeddings": 1000,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// A new folder with [`write_tiny_weights`].
pub fn tiny_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_tiny_weights(folder.path());
    folder
}

/// Returns names and contents; ignores subfolders.
pub fn files_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}
