//! Turns the metadata of a GGUF file into a description: converts it to the equivalent `config.json`, and describes that. Of the
//! tensors, only rotary divisors are read.
//!
//! The keys are llama.cpp's. Behavior that llama.cpp hard-codes per architecture is added here.

mod rope;

use crate::files::config;
use crate::files::folder::GGUF_POOLING;
use crate::files::table::TensorLocation;
use crate::spec::{FeedForward, RopeScaling, Spec};
use model_files::families::GGUF_FORMS;
use model_files::gguf::Values;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Returns the description, and the equivalent `config.json`.
///
/// # Errors
/// If the architecture is unknown, or values are missing or contradictory.
pub(super) fn spec(
    metadata: &Values,
    tensors: &BTreeMap<String, TensorLocation>,
    bytes: &dyn Fn(&TensorLocation) -> Vec<u8>,
) -> Result<(Spec, Value), String> {
    let architecture = metadata
        .text("general.architecture")?
        .ok_or("general.architecture is missing")?;
    let described = GgufDescription {
        metadata,
        tensors,
        bytes,
        architecture,
    };
    let config = described.config()?;
    let mut spec = config::spec(&config)?;
    described.adapt(&mut spec)?;
    Ok((spec, config))
}

/// Bound for this loop; the description rejects larger numbers.
const BLOCKS_MAX: usize = 4096;

struct GgufDescription<'a> {
    metadata: &'a Values,
    tensors: &'a BTreeMap<String, TensorLocation>,
    bytes: &'a dyn Fn(&TensorLocation) -> Vec<u8>,
    architecture: &'a str,
}

impl GgufDescription<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.metadata.number(&self.key(key))
    }

    fn fraction(&self, key: &str) -> Result<Option<f64>, String> {
        self.metadata.fraction(&self.key(key))
    }

    fn required(&self, key: &str) -> Result<u64, String> {
        self.number(key)?
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("{} is missing or 0", self.key(key)))
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    fn config(&self) -> Result<Value, String> {
        let (_, named) = GGUF_FORMS
            .iter()
            .find(|(known, _)| *known == self.architecture)
            .ok_or_else(|| {
                format!(
                    "its architecture is {}; this engine supports GGUF files of {}",
                    self.architecture,
                    GGUF_FORMS.map(|(known, _)| known).join(", ")
                )
            })?;
        self.refuse_what_is_not_computed()?;
        let experts = self.number("expert_count")?.unwrap_or(0);
        let named = match (self.architecture, experts) {
            ("llama" | "mistral3", 1..) => "MixtralForCausalLM",
            _ => named,
        };
        let embedding = self
            .tensors
            .get("token_embd.weight")
            .ok_or("the tensor token_embd.weight is missing")?;
        let (hidden, heads) = (
            self.required("embedding_length")?,
            self.required("attention.head_count")?,
        );
        let key_width = match self.number("attention.key_length")? {
            Some(width) => width,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return Err(format!(
                    "{hidden} hidden numbers do not divide into {heads} heads"
                ));
            }
        };
        let values = self.number("attention.value_length")?.unwrap_or(key_width);
        if values != key_width {
            return Err(format!(
                "heads have keys of {key_width} numbers and values of {values}, which this engine does not support"
            ));
        }
        // Blocks for multi-token prediction follow the decoder's blocks.
        let guessing = self.number("nextn_predict_layers")?.unwrap_or(0);
        let blocks = self.required("block_count")?.saturating_sub(guessing);
        let mut config = json!({
            "architectures": [named],
            "vocab_size": embedding.shape.first(),
            "hidden_size": hidden,
            "num_hidden_layers": blocks,
            "num_attention_heads": heads,
            "num_key_value_heads": self.number("attention.head_count_kv")?.unwrap_or(heads),
            "head_dim": key_width,
            "max_position_embeddings": self.required("context_length")?,
            "rms_norm_eps": self.fraction("attention.layer_norm_rms_epsilon")?,
            "rope_theta": self.fraction("rope.freq_base")?.unwrap_or(10_000.0),
            "tie_word_embeddings": !self.has("output.weight"),
        });
        let fields = config.as_object_mut().ok_or("no object")?;
        if let Some(width) = self
            .number("feed_forward_length")?
            .filter(|width| *width > 0)
        {
            fields.insert("intermediate_size".to_owned(), json!(width));
        }
        if let Some(pooling) = self.number("pooling_type")? {
            fields.insert(GGUF_POOLING.to_owned(), json!(pooling));
        }
        if experts > 0 {
            self.experts(fields, experts, blocks)?;
        }
        self.family(fields, hidden, heads, key_width, blocks)?;
        self.rope(fields, key_width)?;
        Ok(config)
    }

    fn refuse_what_is_not_computed(&self) -> Result<(), String> {
        if self.metadata.flag(&self.key("attention.causal"))? == Some(false) {
            return Err("attention.causal is false, which this engine does not support".to_owned());
        }
        for key in [
            "attention.temperature_scale",
            "rope.scaling.yarn_log_multiplier",
        ] {
            if self.fraction(key)?.is_some_and(|scale| scale != 0.0) {
                return Err(format!(
                    "it has {}, which this engine does not support",
                    self.key(key)
                ));
            }
        }
        match self.number("expert_gating_func")? {
            None | Some(0 | 1) => Ok(()),
            Some(other) => Err(format!(
                "experts are scored by the function {other}; this engine supports 1 (softmax)"
            )),
        }
    }

    fn experts(
        &self,
        fields: &mut Map<String, Value>,
        experts: u64,
        blocks: u64,
    ) -> Result<(), String> {
        let chosen = self.required("expert_used_count")?;
        fields.insert("num_experts".to_owned(), json!(experts));
        fields.insert("num_experts_per_tok".to_owned(), json!(chosen));
        // Blocks without a router have no experts.
        let plain: Vec<u64> = (0..blocks)
            .take(BLOCKS_MAX)
            .filter(|block| !self.has(&format!("blk.{block}.ffn_gate_inp.weight")))
            .collect();
        fields.insert("mlp_only_layers".to_owned(), json!(plain));
        // Hard-coded per architecture; the files do not contain it.
        fields.insert(
            "norm_topk_prob".to_owned(),
            json!(self.architecture == "qwen3moe"),
        );
        for (key, name, tensor) in [
            (
                "expert_feed_forward_length",
                "moe_intermediate_size",
                "blk.0.ffn_gate_exps.weight",
            ),
            (
                "expert_shared_feed_forward_length",
                "shared_expert_intermediate_size",
                "blk.0.ffn_gate_shexp.weight",
            ),
        ] {
            let width = match self.number(key)? {
                Some(width) => Some(width as usize),
                // Older files contain it only in the shape of a tensor.
                None => self
                    .tensors
                    .get(tensor)
                    .and_then(|place| place.shape.iter().rev().nth(1).copied()),
            };
            if let Some(width) = width {
                fields.insert(name.to_owned(), json!(width));
            }
        }
        Ok(())
    }

    /// Adds family-specific fields.
    fn family(
        &self,
        fields: &mut Map<String, Value>,
        hidden: u64,
        heads: u64,
        key_width: u64,
        blocks: u64,
    ) -> Result<(), String> {
        let mut copy = |key: &str, name: &str| -> Result<(), String> {
            if let Some(number) = self.fraction(key)? {
                fields.insert(name.to_owned(), json!(number));
            }
            Ok(())
        };
        match self.architecture {
            "granite" => {
                copy("attention.scale", "attention_multiplier")?;
                copy("embedding_scale", "embedding_multiplier")?;
                copy("residual_scale", "residual_multiplier")?;
                copy("logit_scale", "logits_scaling")?;
            }
            "gemma2" => {
                copy("attn_logit_softcapping", "attn_logit_softcapping")?;
                copy("final_logit_softcapping", "final_logit_softcapping")?;
            }
            _ => {}
        }
        if matches!(self.architecture, "gemma2" | "gemma3") {
            // The largest models of both families scale scores by `hidden / heads` instead of the key width. The file does not say
            // so; the number of blocks identifies them.
            let scalar = match (self.architecture, blocks) {
                ("gemma2", 46) | ("gemma3", 62) => hidden / heads,
                _ => key_width,
            };
            fields.insert("query_pre_attn_scalar".to_owned(), json!(scalar));
        }
        if matches!(self.architecture, "gemma2" | "gemma3" | "phi3")
            && let Some(window) = self.number("attention.sliding_window")?
        {
            fields.insert("sliding_window".to_owned(), json!(window));
        }
        if self.architecture == "gemma3" {
            let key = self.key("attention.sliding_window_pattern");
            if self.metadata.is_list(&key) {
                let kinds: Vec<&str> = self
                    .metadata
                    .numbers(&key)?
                    .unwrap_or_default()
                    .iter()
                    .map(|slides| {
                        if *slides == 0.0 {
                            "full_attention"
                        } else {
                            "sliding_attention"
                        }
                    })
                    .collect();
                fields.insert("layer_types".to_owned(), json!(kinds));
            } else if let Some(pattern) = self.metadata.number(&key)? {
                fields.insert("sliding_window_pattern".to_owned(), json!(pattern));
            }
            let local = self.fraction("rope.freq_base_swa")?.unwrap_or(10_000.0);
            fields.insert("rope_local_base_freq".to_owned(), json!(local));
        }
        Ok(())
    }

    /// Applies the differences from the same model in Hugging Face's form.
    fn adapt(&self, spec: &mut Spec) -> Result<(), String> {
        self.architecture.clone_into(&mut spec.architecture);
        // GGUF files store Gemma's norm weights with one already added.
        spec.norm.adds_one = false;
        spec.attention.query_key_value_bias =
            self.has("blk.0.attn_q.bias") || self.has("blk.0.attn_qkv.bias");
        spec.attention.output_bias = self.has("blk.0.attn_output.bias");
        spec.head_bias = self.has("output.bias");
        for block in &mut spec.blocks {
            if let FeedForward::Gated(gated) = &mut block.feed_forward {
                gated.bias = self.has("blk.0.ffn_down.bias");
            }
        }
        // Files of these architectures store the rows of queries and keys in another order: rows that are rotated together are
        // adjacent.
        let interleaved = matches!(
            self.architecture,
            "llama" | "mistral3" | "smollm3" | "granite"
        );
        let divisors = if self.has("rope_freqs.weight") {
            Some(self.divisors("rope_freqs.weight")?)
        } else {
            None
        };
        for rope in &mut spec.ropes {
            rope.interleaved = interleaved;
            let Some(divisors) = &divisors else {
                continue;
            };
            if rope.scaling != RopeScaling::None {
                return Err(format!(
                    "it has both rope_freqs.weight and the scaling {:?}, which this engine does not support",
                    rope.scaling
                ));
            }
            if divisors.len() != rope.turned_width / 2 {
                return Err(format!(
                    "rope_freqs.weight has {} numbers, the heads need {}",
                    divisors.len(),
                    rope.turned_width / 2
                ));
            }
            rope.scaling = RopeScaling::Divisors(divisors.clone());
        }
        Ok(())
    }
}
