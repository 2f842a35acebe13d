//! Damage in a model's files: each file, with the expected and actual bytes.

use std::path::Path;

use model_pool::catalog::damage;

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

fn messages(folder: &Path) -> Vec<String> {
    damage(folder).iter().map(ToString::to_string).collect()
}

#[test]
fn every_damaged_file_is_named_with_its_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    };
    let header = r#"{"w": {"dtype": "F16", "shape": [100], "data_offsets": [0, 200]}}"#;
    let whole = 8 + header.len() + 200;
    let index = r#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
    write("model.safetensors.index.json", index.as_bytes());
    write("1.safetensors", &safetensors(header, 150));
    write("2.safetensors", &safetensors(header, 200));
    write("config.json", b"{\"hidden_size\": ");
    write("pytorch_model.bin", b"");
    let found = messages(folder.path());
    assert_eq!(found.len(), 3, "{found:?}");
    let cut = format!(
        "is {} bytes long, and its header describes {whole}",
        whole - 50
    );
    assert!(
        found[0].contains("1.safetensors") && found[0].contains(&cut),
        "{found:?}"
    );
    assert!(
        found[1].contains("config.json") && found[1].contains("a part of it is missing"),
        "{found:?}"
    );
    assert!(
        found[2].contains("pytorch_model.bin") && found[2].contains("empty"),
        "{found:?}"
    );
}

#[test]
fn a_git_lfs_pointer_next_to_a_complete_index_is_not_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    };
    let header = r#"{"w": {"dtype": "F16", "shape": [100], "data_offsets": [0, 200]}}"#;
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    write("model.safetensors", pointer);
    assert_eq!(messages(folder.path()).len(), 1, "there is nothing else");
    let index = r#"{"weight_map": {"w": "1.safetensors"}}"#;
    write("model.safetensors.index.json", index.as_bytes());
    write("1.safetensors", &safetensors(header, 200));
    assert!(messages(folder.path()).is_empty());
    write("1.safetensors", &safetensors(header, 150));
    assert!(messages(folder.path())[0].contains("1.safetensors"));
}

#[test]
fn a_complete_file_or_one_of_an_unknown_format_is_not_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(messages(folder.path()).is_empty());
    let header = r#"{"w": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}"#;
    std::fs::write(folder.path().join("x.safetensors"), safetensors(header, 4)).expect("written");
    assert!(messages(folder.path()).is_empty());
    std::fs::write(folder.path().join("x.safetensors"), safetensors(header, 5)).expect("written");
    assert!(messages(folder.path())[0].contains("damaged"));
    let mut newer = b"GGUF".to_vec();
    newer.extend(9_u32.to_le_bytes());
    let file = folder.path().join("m.gguf");
    std::fs::write(&file, newer).expect("written");
    assert!(messages(&file).is_empty());
    std::fs::write(&file, b"GGUF").expect("written");
    assert!(messages(&file)[0].contains("m.gguf"));
}
