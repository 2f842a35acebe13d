//! Writes the random models as GGUF files: the same weights as in the folder, with llama.cpp's names and order of rotated numbers,
//! quantised like its tool does.

use super::random_model::{CONTEXT_TOKENS, EPSILON, NamedTensor, ROPE_THETA, Shape};
use super::tokens::{BEGIN, CHAT_TEMPLATE, END, FIRST_PLAIN, VOCABULARY, Vocabulary};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// The quantisation of a file; the numbers of `general.file_type` are llama.cpp's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F16 = 1,
    Q8_0 = 7,
    Q4KM = 15,
}

/// Writes the model, under its final name only once complete.
pub fn write(
    shape: &Shape,
    words: &Vocabulary,
    kind: Kind,
    path: &Path,
) -> candle_core::Result<()> {
    let tensors = shape
        .tensors()
        .iter()
        .map(|tensor| {
            let weights = llama_order(shape, tensor, shape.weights(tensor));
            let whole = Tensor::from_vec(weights, tensor.shape.as_slice(), &Device::Cpu)?;
            let quantized = QTensor::quantize(&whole, encoding(shape, tensor, kind))?;
            Ok((llama_name(&tensor.name), quantized))
        })
        .collect::<candle_core::Result<Vec<_>>>()?;
    let metadata = metadata(shape, words, kind);
    let metadata: Vec<(&str, &Value)> = metadata
        .iter()
        .map(|(name, value)| (*name, value))
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let unfinished = path.with_extension("unfinished");
    let mut file = BufWriter::new(File::create(&unfinished)?);
    gguf_file::write(&mut file, &metadata, &tensors)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    fs::rename(&unfinished, path)?;
    Ok(())
}

fn metadata(shape: &Shape, words: &Vocabulary, kind: Kind) -> Vec<(&'static str, Value)> {
    let number = |number: usize| Value::U32(number as u32);
    let text = |text: &str| Value::String(text.to_owned());
    let texts = |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
    let types =
        (0..words.tokens.len() as u32).map(|id| Value::I32(if id < FIRST_PLAIN { 3 } else { 1 }));
    let merges = words
        .merges
        .iter()
        .map(|(first, second)| format!("{first} {second}"));
    vec![
        ("general.architecture", text("llama")),
        ("general.name", text(shape.name)),
        ("general.file_type", number(kind as usize)),
        ("general.quantization_version", number(2)),
        ("llama.vocab_size", number(VOCABULARY)),
        ("llama.context_length", number(CONTEXT_TOKENS)),
        ("llama.embedding_length", number(shape.hidden)),
        ("llama.block_count", number(shape.layers)),
        ("llama.feed_forward_length", number(shape.intermediate)),
        ("llama.attention.head_count", number(shape.heads)),
        (
            "llama.attention.head_count_kv",
            number(shape.key_value_heads),
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(EPSILON),
        ),
        ("llama.rope.dimension_count", number(shape.head_width())),
        ("llama.rope.freq_base", Value::F32(ROPE_THETA)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", texts(words.tokens.clone())),
        ("tokenizer.ggml.token_type", Value::Array(types.collect())),
        ("tokenizer.ggml.merges", texts(merges.collect())),
        ("tokenizer.ggml.bos_token_id", number(BEGIN as usize)),
        ("tokenizer.ggml.eos_token_id", number(END as usize)),
        ("tokenizer.ggml.padding_token_id", number(BEGIN as usize)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
        ("tokenizer.chat_template", text(CHAT_TEMPLATE)),
    ]
}

fn llama_name(name: &str) -> String {
    let renamed = name
        .replace("model.layers.", "blk.")
        .replace("input_layernorm", "attn_norm")
        .replace("post_attention_layernorm", "ffn_norm")
        .replace("self_attn.q_proj", "attn_q")
        .replace("self_attn.k_proj", "attn_k")
        .replace("self_attn.v_proj", "attn_v")
        .replace("self_attn.o_proj", "attn_output")
        .replace("mlp.gate_proj", "ffn_gate")
        .replace("mlp.up_proj", "ffn_up")
        .replace("mlp.down_proj", "ffn_down");
    match renamed.as_str() {
        "model.embed_tokens.weight" => "token_embd.weight".to_owned(),
        "model.norm.weight" => "output_norm.weight".to_owned(),
        "lm_head.weight" => "output.weight".to_owned(),
        _ => renamed,
    }
}

/// llama.cpp rotates adjacent numbers, Hugging Face the halves of a head: reorders the rows of queries and keys.
fn llama_order(shape: &Shape, tensor: &NamedTensor, weights: Vec<f32>) -> Vec<f32> {
    let turned = [".q_proj.", ".k_proj."]
        .iter()
        .any(|part| tensor.name.contains(part));
    if !turned {
        return weights;
    }
    let (rows, columns) = (tensor.shape[0], tensor.shape[1]);
    let half = shape.head_width() / 2;
    (0..rows)
        .flat_map(|row| {
            let (head, within) = (row / (2 * half), row % (2 * half));
            let from = head * 2 * half + within % 2 * half + within / 2;
            weights[from * columns..(from + 1) * columns]
                .iter()
                .copied()
        })
        .collect()
}

/// The choice of `llama-quantize` for this architecture: Q4_K_M uses six bits for the head and, in some layers, for values and down
/// projections.
fn encoding(shape: &Shape, tensor: &NamedTensor, kind: Kind) -> GgmlDType {
    if tensor.shape.len() == 1 {
        return GgmlDType::F32;
    }
    match kind {
        Kind::F16 => GgmlDType::F16,
        Kind::Q8_0 => GgmlDType::Q8_0,
        Kind::Q4KM => {
            let is_head = tensor.name == "lm_head.weight"
                || (shape.ties_head && tensor.name == "model.embed_tokens.weight");
            let is_fine = tensor.name.contains(".v_proj.") || tensor.name.contains(".down_proj.");
            let layer = tensor
                .name
                .split('.')
                .nth(2)
                .and_then(|layer| layer.parse().ok());
            if is_head || (is_fine && layer.is_some_and(|layer| has_more_bits(layer, shape.layers)))
            {
                GgmlDType::Q6K
            } else {
                GgmlDType::Q4K
            }
        }
    }
}

fn has_more_bits(layer: usize, layers: usize) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}
