//! Broken GGUF files: each is reported with the file's name and the problem.

use super::gguf_writer::GgufWriter;
use crate::files::ModelFiles;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use candle_core::{DType, Device, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

fn written() -> GgufWriter {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/qwen3");
    GgufWriter::new(&folder, "qwen3")
}

fn bytes_of(written: &GgufWriter) -> Vec<u8> {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    written.save(&path);
    std::fs::read(path).expect("a file")
}

fn words_about(bytes: &[u8]) -> String {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("written");
    let words = ModelFiles::open(&path)
        .expect_err("it is broken")
        .to_string();
    assert!(
        words.contains("model.gguf") && !words.contains('\n'),
        "{words}"
    );
    words
}

fn assert_says(bytes: &[u8], expected: &[&str]) {
    let words = words_about(bytes);
    assert!(
        expected.iter().all(|expected| words.contains(expected)),
        "{words:?} should say {expected:?}"
    );
}

/// Offset after the name in a tensor's header entry.
fn behind(bytes: &[u8], name: &str) -> usize {
    let at = bytes
        .windows(name.len())
        .position(|window| window == name.as_bytes());
    at.expect("the name is there") + name.len()
}

#[test]
fn implausible_counts_allocate_no_memory() {
    let bytes = bytes_of(&written());
    for claimed in [1_u64 << 40, u64::MAX, bytes.len() as u64] {
        let mut broken = bytes.clone();
        broken[8..16].copy_from_slice(&claimed.to_le_bytes());
        assert_says(&broken, &[&format!("claims {claimed} tensors")]);
        let mut broken = bytes.clone();
        broken[16..24].copy_from_slice(&claimed.to_le_bytes());
        assert_says(&broken, &[&format!("claims {claimed} values")]);
        // The length of the first key.
        let mut broken = bytes.clone();
        broken[24..32].copy_from_slice(&claimed.to_le_bytes());
        assert_says(
            &broken,
            &[&format!("a key claims to be {claimed} bytes long")],
        );
        // The vocabulary: its value type and entry type, then the number of entries.
        let mut broken = bytes.clone();
        let at = behind(&broken, "tokenizer.ggml.tokens") + 8;
        broken[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
        assert_says(
            &broken,
            &[
                "tokenizer.ggml.tokens",
                &format!("claims {claimed} entries"),
            ],
        );
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_an_error() {
    let bytes = bytes_of(&written());
    for length in (0..200)
        .chain((200..bytes.len()).step_by(997))
        .chain([bytes.len() - 32])
    {
        words_about(&bytes[..length]);
    }
    assert_says(
        &bytes[..bytes.len() - 100],
        &["cut off", "bytes are missing"],
    );
}

#[test]
fn a_file_that_is_not_a_gguf_is_refused_with_the_reason() {
    assert_says(b"PK\x03\x04 an archive", &["does not begin with `GGUF`"]);
    let mut bytes = bytes_of(&written());
    bytes[4] = 1;
    assert_says(&bytes, &["its version is 1"]);
    bytes[4..8].copy_from_slice(&3_u32.to_be_bytes());
    assert_says(&bytes, &["big-endian"]);
}

#[test]
fn tensors_that_overlap_or_lie_outside_are_named() {
    let bytes = bytes_of(&written());
    // The number of dimensions, the only dimension and the type precede the offset.
    let offset = |bytes: &[u8], name: &str| behind(bytes, name) + 4 + 8 + 4;
    let (one, other) = ("blk.0.attn_norm.weight", "output_norm.weight");
    let mut broken = bytes.clone();
    let (from, to) = (offset(&bytes, one), offset(&bytes, other));
    let place: Vec<u8> = bytes[from..from + 8].to_vec();
    broken[to..to + 8].copy_from_slice(&place);
    assert_says(&broken, &["overlap", one, other]);
    for (place, expected) in [
        (1_u64 << 40, "the file is"),
        (u64::MAX - 31, "impossible offset"),
        (7, "not a multiple of 32"),
    ] {
        let mut broken = bytes.clone();
        broken[from..from + 8].copy_from_slice(&place.to_le_bytes());
        assert_says(&broken, &[one, expected]);
    }
    for size in [0, u64::MAX, 1 << 62] {
        let mut broken = bytes.clone();
        broken[from - 12..from - 4].copy_from_slice(&u64::to_le_bytes(size));
        assert_says(&broken, &[one]);
    }
    let mut broken = bytes.clone();
    broken[from - 16..from - 12].copy_from_slice(&9_u32.to_le_bytes());
    assert_says(&broken, &[one, "9 dimensions"]);
}

#[test]
fn unsupported_types_are_reported_with_the_tensor_that_needs_them() {
    let bytes = bytes_of(&written());
    let of_type = |number: u32| {
        let mut broken = bytes.clone();
        let at = behind(&bytes, "blk.1.ffn_norm.weight") + 4 + 8;
        broken[at..at + 4].copy_from_slice(&number.to_le_bytes());
        broken
    };
    // A type whose blocks do not fit a row of 64, and a type whose numbers need more bytes than the file has.
    assert_says(&of_type(23), &["blk.1.ffn_norm.weight", "blocks of 256"]);
    assert_says(&of_type(28), &["blk.1.ffn_norm.weight", "overlap"]);
    for (number, name) in [
        (20_u32, "IQ4_NL"),
        (24, "integer"),
        (39, "MXFP4"),
        (99, "number 99"),
    ] {
        let broken = of_type(number);
        let name = format!("has type {name}; this engine supports F32");
        assert_says(
            &broken,
            &["model.layers.1.post_attention_layernorm.weight", &name],
        );
    }
}

#[test]
fn metadata_that_contradicts_the_tensors_is_named_with_both_shapes() {
    let mut file = written();
    file.set("qwen3.feed_forward_length", Value::U32(999));
    assert_says(
        &bytes_of(&file),
        &["mlp.gate_proj.weight has shape", "model.gguf says [999, "],
    );
    let mut file = written();
    file.tensors
        .retain(|(name, _)| name != "blk.1.attn_k.weight");
    assert_says(
        &bytes_of(&file),
        &["model.layers.1.self_attn.k_proj.weight is missing"],
    );
    let mut file = written();
    file.tensors.retain(|(name, _)| name != "token_embd.weight");
    assert_says(&bytes_of(&file), &["token_embd.weight is missing"]);
    let row = Tensor::ones(3, DType::F32, &Device::Cpu).expect("a row");
    let mut file = written();
    file.add("rope_freqs.weight", &row, GgmlDType::F32);
    assert_says(&bytes_of(&file), &["rope_freqs.weight has 3 numbers"]);
}

#[test]
fn missing_or_invalid_metadata_is_reported_by_key() {
    let text = |text: &str| Value::String(text.to_owned());
    let whole = Value::U32;
    for (key, value, expected) in [
        (
            "general.architecture",
            text("mamba"),
            "its architecture is mamba; this engine supports GGUF files of llama",
        ),
        (
            "general.architecture",
            text("deepseek2"),
            "its architecture is deepseek2",
        ),
        (
            "general.architecture",
            whole(3),
            "general.architecture is not a text",
        ),
        ("general.alignment", whole(33), "general.alignment is 33"),
        ("general.alignment", whole(0), "general.alignment is 0"),
        (
            "qwen3.embedding_length",
            text("wide"),
            "qwen3.embedding_length is not a whole number",
        ),
        (
            "qwen3.embedding_length",
            whole(0),
            "qwen3.embedding_length is missing or 0",
        ),
        (
            "qwen3.block_count",
            whole(4_000_000),
            "num_hidden_layers is 4000000",
        ),
        (
            "qwen3.attention.head_count",
            whole(u32::MAX),
            "num_attention_heads is 4294967295",
        ),
        (
            "qwen3.attention.causal",
            Value::Bool(false),
            "attention.causal",
        ),
        ("qwen3.attention.value_length", whole(2), "values of 2"),
        ("qwen3.rope.dimension_count", whole(2), "2 of the "),
        (
            "qwen3.rope.scaling.type",
            text("spiral"),
            "rope.scaling.type is spiral",
        ),
        ("tokenizer.ggml.model", text("t5"), ""),
        (
            "tokenizer.ggml.eos_token_id",
            whole(99_999),
            "eos_token_id is 99999",
        ),
        (
            "tokenizer.ggml.token_type",
            Value::Array(vec![whole(1)]),
            "token_type has 1 entries",
        ),
    ] {
        let mut file = written();
        file.set(key, value);
        let bytes = bytes_of(&file);
        // Problems that concern only the vocabulary are reported when it is first used.
        if expected.is_empty() {
            let scratch = tempfile::tempdir().expect("a folder");
            let path = scratch.path().join("model.gguf");
            std::fs::write(&path, bytes).expect("written");
            let files = ModelFiles::open(&path).expect("opens");
            let Err(error) = files.tokenizer() else {
                panic!("t5 is not supported");
            };
            assert!(
                error.to_string().contains("tokenizer.ggml.model is t5"),
                "{error}"
            );
        } else {
            assert_says(&bytes, &[expected]);
        }
    }
    let mut file = written();
    file.set("tokenizer.ggml.pre", text("unheard-of"));
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    file.save(&path);
    let Err(error) = ModelFiles::open(&path).expect("opens").tokenizer() else {
        panic!("the way to split is unknown");
    };
    assert!(
        error
            .to_string()
            .contains("tokenizer.ggml.pre is unheard-of"),
        "{error}"
    );
}

/// For any change to the bytes of a header, the file is opened or rejected without a panic.
#[test]
fn random_damage_never_panics() {
    let bytes = bytes_of(&written());
    let header = behind(&bytes, "blk.0.attn_q.weight") + 200;
    let scratch = tempfile::tempdir().expect("a folder");
    let mut random = StdRng::seed_from_u64(11);
    for round in 0..600 {
        let mut broken = bytes.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..header);
            broken[at] = random.random();
        }
        let path = scratch.path().join(format!("{round}.gguf"));
        std::fs::write(&path, broken).expect("written");
        if let Ok(files) = ModelFiles::open(&path) {
            drop(files.tokenizer());
        }
        std::fs::remove_file(path).expect("removed");
    }
}
