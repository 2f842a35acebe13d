//! GGUF files: sizes and architectures of small files written by the tests.

use std::path::Path;

use model_pool::catalog::{CacheLoad, LayerCache, LayerGroup, ModelFiles, NumberWidth, Split};

pub(super) use support::gguf_file::File;

use super::assert_has;

/// Two layers, four heads of 16 for keys and values.
pub(super) fn small() -> File {
    File::default()
        .word("general.architecture", "llama")
        .words("tokenizer.ggml.tokens", &["a", "b", "<unk>"])
        .fraction("llama.rope.freq_base", 10_000.0)
        .number("llama.block_count", 2)
        .number("llama.context_length", 512)
        .number("llama.embedding_length", 128)
        .number("llama.attention.head_count", 8)
        .number("llama.attention.head_count_kv", 4)
        .tensor("token_embd.weight", &[128, 10], 1, 2560)
        .tensor("blk.0.attn_q.weight", &[256, 2], 12, 288)
}

pub(super) fn read(file: &File) -> Result<ModelFiles, String> {
    read_bytes(&file.bytes())
}

pub(super) fn read_bytes(bytes: &[u8]) -> Result<ModelFiles, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    ModelFiles::read(&path).map_err(|error| error.to_string())
}

#[test]
fn weights_and_architecture_are_read_from_the_gguf_header() {
    for version in [2, 3] {
        let mut file = small();
        file.version = Some(version);
        let files = read(&file).unwrap();
        assert_eq!(files.weights.stored_bytes, 2560 + 288);
        let heads = LayerCache::Heads {
            heads: 4,
            key_size: 16,
            value_size: 16,
            window: None,
        };
        assert_eq!(
            files.architecture.layers,
            [LayerGroup {
                count: 2,
                cache: heads
            }]
        );
        assert_eq!(files.architecture.attention_heads, Some(8));
        assert_eq!(files.architecture.context, Some(512));
        assert_eq!(
            files
                .architecture
                .cache_bytes_per_token(NumberWidth::TWO_BYTES),
            2 * 2 * 4 * 16 * 2
        );
    }
}

#[test]
fn every_number_format_has_the_documented_size() {
    // Bytes per 256 elements, from `GGML_QUANT_SIZES` of gguf-py.
    for (format, bytes) in [
        (0, 1024),
        (1, 512),
        (2, 144),
        (3, 160),
        (6, 176),
        (7, 192),
        (8, 272),
        (9, 320),
        (10, 84),
        (11, 110),
        (12, 144),
        (13, 176),
        (14, 210),
        (15, 292),
        (16, 66),
        (17, 74),
        (18, 98),
        (19, 50),
        (20, 144),
        (21, 110),
        (22, 82),
        (23, 136),
        (24, 256),
        (25, 512),
        (26, 1024),
        (27, 2048),
        (28, 2048),
        (29, 56),
        (30, 512),
        (34, 54),
        (35, 66),
        (39, 136),
        (40, 144),
        (41, 36),
        (42, 72),
    ] {
        let file = small().tensor("x", &[256], format, bytes);
        let files = read(&file).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(
            files.weights.stored_bytes,
            2560 + 288 + bytes,
            "format {format}"
        );
    }
    assert_has(
        &read(&small().tensor("x", &[256], 99, 0)).unwrap_err(),
        &["`x`", "99"],
    );
}

#[test]
fn files_written_by_gguf_py_are_read() {
    // Written by gguf 0.19.0, with two tensors: a 2 × 64 matrix in F32, F16, BF16, Q8_0 and Q4_0, and a 2 × 256 matrix in Q6_K.
    let part = "tests/fixtures/gguf/written-by-gguf-py-00002-of-00003.gguf";
    for path in [part, "tests/fixtures/gguf"] {
        let files = ModelFiles::read(Path::new(path)).unwrap();
        assert_eq!(files.weights.stored_bytes, 512 + 256 + 256 + 136 + 72 + 420);
        let window = |window| LayerCache::Heads {
            heads: 2,
            key_size: 32,
            value_size: 32,
            window,
        };
        assert_eq!(
            files.architecture.layers,
            [
                LayerGroup {
                    count: 5,
                    cache: window(Some(128))
                },
                LayerGroup {
                    count: 1,
                    cache: window(None)
                },
            ]
        );
    }
}

#[test]
fn heads_may_differ_by_layer_and_some_layers_have_none() {
    let file = File::default()
        .word("general.architecture", "nemotron_h")
        .number("nemotron_h.block_count", 4)
        .number("nemotron_h.context_length", 512)
        .number("nemotron_h.embedding_length", 128)
        .number("nemotron_h.attention.head_count", 8)
        .list("nemotron_h.attention.head_count_kv", &[0, 2, 0, 2])
        .number("nemotron_h.ssm.inner_size", 64)
        .number("nemotron_h.ssm.state_size", 16)
        .number("nemotron_h.ssm.conv_kernel", 4);
    let layers = read(&file).unwrap().architecture.layers;
    let state = LayerCache::State {
        bytes: (64 * 16 + 3 * 64) * 4,
    };
    let heads = LayerCache::Heads {
        heads: 2,
        key_size: 16,
        value_size: 16,
        window: None,
    };
    assert_eq!(
        layers,
        [
            LayerGroup {
                count: 2,
                cache: state
            },
            LayerGroup {
                count: 2,
                cache: heads
            }
        ]
    );
}

#[test]
fn windows_are_read_from_the_list_or_derived_from_the_architecture() {
    let form = |name: &str| {
        File::default()
            .word("general.architecture", name)
            .number(&format!("{name}.block_count"), 12)
            .number(&format!("{name}.context_length"), 4096)
            .number(&format!("{name}.embedding_length"), 128)
            .number(&format!("{name}.attention.head_count"), 8)
            .number(&format!("{name}.attention.sliding_window"), 512)
    };
    let windows = |file: &File| {
        let layers = read(file).unwrap().architecture.layers;
        let is_local = |group: &&LayerGroup| {
            matches!(
                group.cache,
                LayerCache::Heads {
                    window: Some(512),
                    ..
                }
            )
        };
        layers
            .iter()
            .filter(is_local)
            .map(|group| group.count)
            .sum::<u64>()
    };
    assert_eq!(windows(&form("gemma3")), 10);
    assert_eq!(windows(&form("gemma2")), 6);
    assert_eq!(windows(&form("gpt-oss")), 6);
    // llama.cpp applies no window to other architectures.
    assert_eq!(windows(&form("llama")), 0);
    let list: Vec<bool> = (0..12).map(|layer| layer % 4 != 0).collect();
    assert_eq!(
        windows(&form("gemma4").flags("gemma4.attention.sliding_window_pattern", &list)),
        9
    );
}

#[test]
fn sizes_of_keys_and_values_may_differ() {
    let file = small()
        .number("llama.attention.key_length", 24)
        .number("llama.attention.value_length", 8);
    let load = CacheLoad::even(10, 1);
    let cache = read(&file)
        .unwrap()
        .architecture
        .cache_bytes_per_device(&load, Split::Layers, 1);
    assert_eq!(cache, 2 * 4 * (24 + 8) * 10 * 2);
}

#[test]
fn the_parts_of_a_split_gguf_are_summed_and_a_missing_part_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let part = |number: u32| folder.path().join(format!("big-{number:05}-of-00003.gguf"));
    small().write(&part(1));
    for number in [2, 3] {
        File::default()
            .number("split.no", number - 1)
            .tensor("more", &[32], 8, 34)
            .write(&part(number));
    }
    for path in [part(1), part(2), folder.path().to_owned()] {
        let files = ModelFiles::read(&path).unwrap();
        assert_eq!(files.weights.stored_bytes, 2560 + 288 + 34 + 34);
        assert_eq!(files.architecture.context, Some(512));
    }
    std::fs::remove_file(part(3)).unwrap();
    let error = ModelFiles::read(&part(1)).unwrap_err().to_string();
    assert_has(&error, &["big-00003-of-00003.gguf", "missing", "3 files"]);
}

#[test]
fn a_folder_with_several_gguf_models_is_refused_and_names_the_key() {
    let folder = tempfile::tempdir().unwrap();
    small().write(&folder.path().join("a.gguf"));
    small().write(&folder.path().join("mmproj-a.gguf"));
    assert!(ModelFiles::read(folder.path()).is_ok());
    small().write(&folder.path().join("b.gguf"));
    let error = ModelFiles::read(folder.path()).unwrap_err().to_string();
    assert_has(&error, &["2 GGUF models", "engine_config.model_path"]);
}
