//! Tests that GGUF files are equivalent to the folders they were made from.

use super::gguf_writer::{GgufWriter, beside_each_other, tensor};
use crate::files::{ModelFiles, Role};
use crate::spec::{Activation, FeedForward, RopeScaling, Spec};
use crate::stored_tensor::Encoding;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use std::path::{Path, PathBuf};

pub fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(name)
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat")
}

/// Each test model that GGUF can represent, and its architecture name there.
pub const MODELS: [(&str, &str); 22] = [
    ("llama", "llama"),
    ("llama-biased", "llama"),
    ("llama-linear", "llama"),
    ("llama-yarn", "llama"),
    ("llama-wide", "llama"),
    ("llama3", "llama"),
    ("llama", "mistral3"),
    ("mixtral", "llama"),
    ("qwen2", "qwen2"),
    ("qwen2-moe", "qwen2moe"),
    ("qwen3", "qwen3"),
    ("qwen3-moe", "qwen3moe"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3"),
    ("phi3", "phi3"),
    ("phi3-long", "phi3"),
    ("phi3-short", "phi3"),
    ("phi4-partial", "phi3"),
    ("smollm3", "smollm3"),
    ("olmo2", "olmo2"),
    ("granite", "granite"),
];

/// Removes the parts of a description that GGUF represents differently.
fn comparable(spec: &Spec, architecture: &str) -> Spec {
    let mut spec = spec.clone();
    spec.architecture = String::new();
    spec.norm.adds_one = false;
    for rope in &mut spec.ropes {
        rope.interleaved = false;
        if matches!(
            rope.scaling,
            RopeScaling::Llama3 { .. } | RopeScaling::Divisors(_)
        ) {
            rope.scaling = RopeScaling::None;
        }
    }
    // GGUF has no keys for these; they are hard-coded per architecture.
    for block in &mut spec.blocks {
        if architecture == "smollm3" {
            block.rope = None;
        }
        if let FeedForward::Gated(gated) = &mut block.feed_forward {
            gated.activation = Activation::Silu;
        }
    }
    // GGUF has no key for it: it is the width of a key, except in two models.
    if architecture.starts_with("gemma") {
        spec.attention.score_factor = 0.0;
    }
    spec
}

#[test]
fn every_family_reads_equal_from_gguf_and_safetensors() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (name, architecture) in MODELS {
        let path = scratch.path().join(format!("{name}.gguf"));
        GgufWriter::new(&kept(name), architecture).save(&path);
        let folder = ModelFiles::open(&kept(name)).expect("opens");
        let file = ModelFiles::open(&path).expect("opens");
        let (meant, spec) = (
            folder.spec().expect("a decoder"),
            file.spec().expect("a decoder"),
        );
        assert_eq!(spec.architecture, architecture);
        assert_eq!(
            comparable(spec, architecture),
            comparable(meant, architecture),
            "{name}"
        );
        let interleaved = matches!(architecture, "llama" | "mistral3" | "smollm3" | "granite");
        assert!(
            spec.ropes
                .iter()
                .all(|rope| rope.interleaved == interleaved)
        );
        for expected in folder.expected().expect("a decoder") {
            let mut numbers = tensor(&folder.tensor(&expected.name).expect("is there"));
            let turned = [("q_proj", spec.heads), ("k_proj", spec.key_value_heads)];
            for (part, heads) in turned {
                if architecture != "mistral3" && interleaved && expected.name.contains(part) {
                    numbers = beside_each_other(&numbers, heads);
                }
            }
            if meant.norm.adds_one && expected.name.contains("norm") {
                numbers = (numbers + 1.0).expect("adds");
            }
            let found = tensor(&file.tensor(&expected.name).expect("is there"));
            let far = (found - numbers)
                .and_then(|difference| difference.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>())
                .expect("of the same shape");
            assert_eq!(far, 0.0, "{name}: {}", expected.name);
        }
        assert!(file.end_tokens().contains(&2));
    }
}

#[test]
fn llama_3_scaling_is_read_as_divisors() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    GgufWriter::new(&kept("llama3"), "llama").save(&path);
    let file = ModelFiles::open(&path).expect("opens");
    let spec = file.spec().expect("a decoder");
    let RopeScaling::Divisors(divisors) = &spec.ropes[0].scaling else {
        panic!("{:?}", spec.ropes);
    };
    assert_eq!(divisors.len(), spec.key_width / 2);
    assert_eq!(divisors[0], 1.0);
    assert_eq!(divisors.last(), Some(&8.0));
}

/// The demo model's vocabulary, converted to GGUF, yields the same tokens.
#[test]
fn the_tokenizer_of_a_gguf_is_the_one_of_the_folder() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    let mut written = GgufWriter::new(&demo(), "llama");
    written.words_of(&demo(), "default");
    written.save(&path);
    let (folder, file) = (
        ModelFiles::open(&demo()).expect("opens"),
        ModelFiles::open(&path).expect("opens"),
    );
    let (one, other) = (
        folder.tokenizer().expect("a tokenizer"),
        file.tokenizer().expect("a tokenizer"),
    );
    assert_eq!(one.eos_token, other.eos_token);
    for text in [
        "Where is Swagger UI?",
        "<|im_start|>user\nnaïve  café 123<|im_end|>",
        "日本語 👩‍👩‍👧\n\n  tabs\t",
        " leading",
    ] {
        let encode = |tokenizer: &tokenizers::Tokenizer| {
            let encoding = tokenizer.encode_fast(text, true).expect("encodes");
            encoding.get_ids().to_vec()
        };
        let tokens = encode(&one.tokenizer);
        assert_eq!(encode(&other.tokenizer), tokens, "{text:?}");
        for skips in [true, false] {
            assert_eq!(
                one.tokenizer.decode(&tokens, skips).expect("decodes"),
                other.tokenizer.decode(&tokens, skips).expect("decodes")
            );
        }
    }
    assert_eq!(file.end_tokens(), folder.end_tokens());
    let templates = file.templates().expect("reads").expect("has one");
    assert_eq!(
        templates.main,
        folder.templates().expect("reads").expect("has one").main
    );
}

/// A sentencepiece vocabulary: words with scores, a token per byte, and no merges.
#[test]
fn a_sentencepiece_vocabulary_merges_by_score() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut kinds = vec![2, 3, 3];
    for byte in 0..256 {
        tokens.push(format!("<0x{byte:02X}>"));
        kinds.push(6);
    }
    let words = [
        "▁", "h", "e", "l", "o", "he", "ll", "llo", "▁he", "▁hello", "lo", "hell",
    ];
    let first = tokens.len();
    tokens.extend(words.map(str::to_owned));
    kinds.resize(tokens.len(), 1);
    // `he` ranks before `ll` before `▁he`, in list order; single letters are last.
    let scores: Vec<f32> = (0..tokens.len())
        .map(|id| {
            if id < first + 5 {
                -1000.0
            } else {
                -((id - first) as f32)
            }
        })
        .collect();
    let mut written = GgufWriter::new(&demo(), "llama");
    let list = |values: Vec<Value>| Value::Array(values);
    written.set("tokenizer.ggml.model", Value::String("llama".to_owned()));
    written
        .metadata
        .retain(|(key, _)| key != "tokenizer.ggml.merges");
    written.set("tokenizer.ggml.bos_token_id", Value::U32(1));
    written.set(
        "tokenizer.ggml.scores",
        list(scores.into_iter().map(Value::F32).collect()),
    );
    written.set(
        "tokenizer.ggml.token_type",
        list(kinds.into_iter().map(Value::I32).collect()),
    );
    written.set(
        "tokenizer.ggml.tokens",
        list(tokens.iter().cloned().map(Value::String).collect()),
    );
    written.save(&path);
    let file = ModelFiles::open(&path).expect("opens");
    let read = file.tokenizer().expect("a tokenizer");
    let pieces = |text: &str| -> Vec<String> {
        let encoding = read.tokenizer.encode(text, true).expect("encodes");
        encoding.get_tokens().to_vec()
    };
    assert_eq!(pieces("hello"), ["<s>", "▁hello"]);
    assert_eq!(pieces("hell"), ["<s>", "▁he", "ll"]);
    assert_eq!(pieces("é"), ["<s>", "▁", "<0xC3>", "<0xA9>"]);
    assert_eq!(
        (read.bos_token.as_deref(), read.eos_token.as_deref()),
        (Some("<s>"), Some("</s>"))
    );
    for text in ["hello  hello", "naïve 日本", " hello"] {
        let tokens = read.tokenizer.encode(text, true).expect("encodes");
        assert_eq!(
            read.tokenizer
                .decode(tokens.get_ids(), true)
                .expect("decodes"),
            text
        );
    }
}

#[test]
fn a_folder_with_one_gguf_and_parts_of_a_split_one_are_found() {
    let scratch = tempfile::tempdir().expect("a folder");
    let whole = GgufWriter::new(&kept("qwen3"), "qwen3");
    let at = |name: &str| scratch.path().join(name);
    whole.save(&at("model.gguf"));
    assert!(ModelFiles::open(scratch.path()).is_ok());
    whole.save(&at("other.gguf"));
    let error = ModelFiles::open(scratch.path())
        .expect_err("two models")
        .to_string();
    assert!(
        error.contains("2 GGUF models (model.gguf, other.gguf)"),
        "{error}"
    );
    std::fs::remove_file(at("other.gguf")).expect("removed");
    std::fs::rename(at("model.gguf"), at("mmproj-model.gguf")).expect("renamed");
    let mut parts = [
        GgufWriter {
            metadata: whole.metadata,
            tensors: Vec::new(),
        },
        GgufWriter {
            metadata: Vec::new(),
            tensors: Vec::new(),
        },
    ];
    for (place, tensor) in whole.tensors.into_iter().enumerate() {
        parts[place % 2].tensors.push(tensor);
    }
    parts[0].save(&at("model-00001-of-00002.gguf"));
    let error = ModelFiles::open(scratch.path())
        .expect_err("half a model")
        .to_string();
    assert!(error.contains("model-00002-of-00002.gguf"), "{error}");
    parts[1].save(&at("model-00002-of-00002.gguf"));
    assert!(ModelFiles::open(scratch.path()).is_ok());
    let [first, second] = ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"]
        .map(|part| ModelFiles::open(&at(part)).expect("any part names the model"));
    assert_eq!(
        first.spec().expect("a decoder"),
        second.spec().expect("a decoder")
    );
    assert!(first.tensor_names().eq(second.tensor_names()));
}

#[test]
fn blocks_of_every_type_are_kept_or_converted_to_q8_0_on_load() {
    use crate::files::LoadPlan;
    use crate::progress::Progress;
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    let mut written = GgufWriter::new(&kept("qwen3"), "qwen3");
    let name = "blk.0.attn_q.weight";
    let numbers = {
        let files = ModelFiles::open(&kept("qwen3")).expect("opens");
        tensor(
            &files
                .tensor("model.layers.0.self_attn.q_proj.weight")
                .expect("is there"),
        )
    };
    for (kind, encoding) in [
        (GgmlDType::F16, Encoding::F16),
        (GgmlDType::BF16, Encoding::Bf16),
        (GgmlDType::Q4_0, Encoding::Q4_0),
        (GgmlDType::Q8_0, Encoding::Q8_0),
        (GgmlDType::Q5_0, Encoding::Q8_0),
        (GgmlDType::Q4_1, Encoding::Q8_0),
    ] {
        written.add(name, &numbers, kind);
        written.save(&path);
        let mut files = ModelFiles::open(&path).expect("opens");
        files
            .load(LoadPlan::default(), &Progress::default())
            .expect("loads");
        let stored = files
            .tensor("model.layers.0.self_attn.q_proj.weight")
            .expect("is there");
        assert_eq!(stored.encoding, encoding);
        assert_eq!(stored.shape, numbers.dims());
        let held = if encoding == Encoding::Q8_0 && kind != GgmlDType::Q8_0 {
            stored.bytes().len() as u64
        } else {
            0
        };
        assert_eq!(files.held_bytes(), held, "{kind:?}");
    }
    let norms = files_of_role(&path, Role::Row);
    assert!(norms.iter().all(|encoding| *encoding == Encoding::F32));
}

fn files_of_role(path: &Path, role: Role) -> Vec<Encoding> {
    let files = ModelFiles::open(path).expect("opens");
    let expected = files.expected().expect("a decoder").into_iter();
    expected
        .filter(|expected| expected.role == role)
        .map(|expected| files.tensor(&expected.name).expect("is there").encoding)
        .collect()
}
