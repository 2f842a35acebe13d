//! The random Llama models to measure: shapes, weights, and Hugging Face folders. A seed gives the same weights in every form.

use super::tokens::{BEGIN, END, VOCABULARY, Vocabulary};
use half::bf16;
use rayon::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use std::fs;
use std::path::Path;

pub struct Shape {
    pub name: &'static str,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub key_value_heads: usize,
    pub intermediate: usize,
    pub ties_head: bool,
}

/// Like llama2.c's stories110M and TinyLlama 1.1B.
pub const SHAPES: [Shape; 2] = [
    Shape {
        name: "110m",
        hidden: 768,
        layers: 12,
        heads: 12,
        key_value_heads: 12,
        intermediate: 2048,
        ties_head: true,
    },
    Shape {
        name: "1.1b",
        hidden: 2048,
        layers: 22,
        heads: 32,
        key_value_heads: 4,
        intermediate: 5632,
        ties_head: false,
    },
];

/// Room for a prompt of 2,048 tokens and a completion.
pub const CONTEXT_TOKENS: usize = 4096;
pub const EPSILON: f32 = 1e-5;
pub const ROPE_THETA: f32 = 10_000.0;

/// Standard deviation of the weights, as in the initialisers of Llama models.
const DEVIATION: f32 = 0.02;

/// A tensor of the model, by its Hugging Face name.
pub struct NamedTensor {
    pub name: String,
    pub shape: Vec<usize>,
}

impl NamedTensor {
    pub fn numbers(&self) -> usize {
        self.shape.iter().product()
    }

    fn is_norm(&self) -> bool {
        self.shape.len() == 1
    }
}

impl Shape {
    pub fn head_width(&self) -> usize {
        self.hidden / self.heads
    }

    /// All tensors, in network order.
    pub fn tensors(&self) -> Vec<NamedTensor> {
        let (hidden, wide) = (self.hidden, self.intermediate);
        let grouped = self.head_width() * self.key_value_heads;
        let mut all = vec![NamedTensor {
            name: "model.embed_tokens.weight".to_owned(),
            shape: vec![VOCABULARY, hidden],
        }];
        for layer in 0..self.layers {
            let parts = [
                ("input_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![hidden, hidden]),
                ("self_attn.k_proj", vec![grouped, hidden]),
                ("self_attn.v_proj", vec![grouped, hidden]),
                ("self_attn.o_proj", vec![hidden, hidden]),
                ("post_attention_layernorm", vec![hidden]),
                ("mlp.gate_proj", vec![wide, hidden]),
                ("mlp.up_proj", vec![wide, hidden]),
                ("mlp.down_proj", vec![hidden, wide]),
            ];
            all.extend(parts.into_iter().map(|(part, shape)| NamedTensor {
                name: format!("model.layers.{layer}.{part}.weight"),
                shape,
            }));
        }
        all.push(NamedTensor {
            name: "model.norm.weight".to_owned(),
            shape: vec![hidden],
        });
        if !self.ties_head {
            all.push(NamedTensor {
                name: "lm_head.weight".to_owned(),
                shape: vec![VOCABULARY, hidden],
            });
        }
        all
    }

    /// The numbers of a tensor; each is representable in BF16.
    pub fn weights(&self, tensor: &NamedTensor) -> Vec<f32> {
        let seed = seed_of(self.name, &tensor.name);
        // The sum of four uniform 16-bit numbers approximates a normal distribution; its standard deviation is 65,536 / √3.
        let factor = DEVIATION * 3f32.sqrt() / 65_536.0;
        let middle = if tensor.is_norm() { 1.0 } else { 0.0 };
        (0..tensor.numbers() as u64)
            .into_par_iter()
            .map(|index| {
                let bits = mixed(seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
                let sum: u32 = (0..4)
                    .map(|part| u32::from((bits >> (16 * part)) as u16))
                    .sum();
                bf16::from_f32(middle + (sum as f32 - 131_070.0) * factor).to_f32()
            })
            .collect()
    }

    /// Writes the model as a Hugging Face folder, under its final name only once complete.
    pub fn write_folder(
        &self,
        words: &Vocabulary,
        folder: &Path,
        dtype: Dtype,
    ) -> std::io::Result<()> {
        let unfinished = folder.with_extension("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
            "torch_dtype": if dtype == Dtype::BF16 { "bfloat16" } else { "float32" }, "vocab_size": VOCABULARY,
            "hidden_size": self.hidden, "intermediate_size": self.intermediate, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.key_value_heads,
            "max_position_embeddings": CONTEXT_TOKENS, "rms_norm_eps": EPSILON, "rope_theta": ROPE_THETA,
            "tie_word_embeddings": self.ties_head, "bos_token_id": BEGIN, "eos_token_id": END,
        });
        let settings = [
            ("config.json", config),
            (
                "generation_config.json",
                json!({"bos_token_id": BEGIN, "eos_token_id": END, "do_sample": false}),
            ),
            ("tokenizer.json", words.tokenizer()),
            (
                "tokenizer_config.json",
                Vocabulary::tokenizer_config(CONTEXT_TOKENS),
            ),
        ];
        for (name, content) in settings {
            fs::write(unfinished.join(name), content.to_string())?;
        }
        let tensors = self.tensors();
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|tensor| {
                let numbers = self.weights(tensor);
                match dtype {
                    Dtype::BF16 => numbers
                        .iter()
                        .flat_map(|&number| bf16::from_f32(number).to_le_bytes())
                        .collect(),
                    _ => numbers
                        .iter()
                        .flat_map(|number| number.to_le_bytes())
                        .collect(),
                }
            })
            .collect();
        let views: Vec<(&str, TensorView<'_>)> = tensors
            .iter()
            .zip(&bytes)
            .map(|(tensor, bytes)| {
                let view = TensorView::new(dtype, tensor.shape.clone(), bytes);
                (tensor.name.as_str(), view.expect("bytes of the shape"))
            })
            .collect();
        let kind = [("format".to_owned(), "pt".to_owned())];
        safetensors::serialize_to_file(
            views,
            Some(kind.into_iter().collect()),
            &unfinished.join("model.safetensors"),
        )
        .map_err(std::io::Error::other)?;
        fs::File::open(unfinished.join("model.safetensors"))?.sync_all()?;
        fs::rename(&unfinished, folder)
    }
}

/// FNV-1a.
fn seed_of(shape: &str, tensor: &str) -> u64 {
    shape
        .bytes()
        .chain(tensor.bytes())
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        })
}

/// SplitMix64's output for a state.
pub fn mixed(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}
