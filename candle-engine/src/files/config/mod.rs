//! Turns `config.json` into the description of a decoder, for every known family.
//!
//! The descriptions follow `modeling_*.py` and `configuration_*.py` of `transformers` 5, including the defaults of omitted fields.

mod blocks;
mod experts;
mod family;
mod fields;
mod gpt;
mod kind;
mod rope;
#[cfg(test)]
mod tests;

pub(crate) use fields::Fields;
pub(crate) use kind::Kind;

use crate::spec::{AttentionSpec, HeadNorm, Norm, Projections, Rope, Spec};
use family::{Defaults, defaults};
use model_files::families::{self, DecoderFamily as Family, LibraryFamily};
use rope::{RopeContext, RopeParameters};
use serde_json::Value;

/// The architectures named in `config.json`.
pub(super) fn architectures(json: &Value) -> Vec<&str> {
    json["architectures"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The family of a decoder that the library computes, unless the file names one with a description.
///
/// # Errors
/// If its weights are quantised.
pub(super) fn library(json: &Value) -> Result<Option<LibraryFamily>, String> {
    let names = architectures(json);
    if names.iter().any(|name| families::decoder(name).is_some()) {
        return Ok(None);
    }
    let family = names.into_iter().find_map(families::library_decoder);
    if family.is_some() {
        refuse_quantised(json)?;
    }
    Ok(family)
}

/// Builds the description of a decoder from its `config.json`.
///
/// # Errors
/// The problem, without the file's name: the architecture is not in [`families::DECODERS`], fields have a wrong type or
/// contradict each other, or require something this engine does not compute.
pub(super) fn spec(json: &Value) -> Result<Spec, String> {
    let (architecture, family, has_head) = architectures(json)
        .into_iter()
        .find_map(|name| families::decoder(name).map(|(family, has_head)| (name, family, has_head)))
        .ok_or_else(|| kind::unknown(&architectures(json)))?;
    // Multimodal models keep the decoder's fields in a nested object; the outer fields describe the complete model.
    let inner = json.get("text_config").filter(|inner| inner.is_object());
    let config = Fields::new(inner.unwrap_or(json));
    refuse_quantised(json)?;
    if matches!(family, Family::GptJ | Family::GptNeoX | Family::Gpt2) {
        return gpt::spec(config, family, architecture, has_head);
    }
    Reader::new(config, family)?.spec(architecture, json, has_head)
}

fn refuse_quantised(whole: &Value) -> Result<(), String> {
    match Fields::new(whole).value("quantization_config") {
        None => Ok(()),
        Some(quantization) => {
            let method = quantization["quant_method"].as_str().unwrap_or("unnamed");
            Err(format!(
                "its weights are quantised ({method}); this engine supports F32, F16 and BF16 in safetensors, and GGUF files"
            ))
        }
    }
}

const HIDDEN_MAX: usize = 1 << 20;
const HEADS_MAX: usize = 1 << 16;
const BLOCKS_MAX: usize = 4096;

/// Rejects corrupt numbers.
fn within_bounds<const N: usize>(named: [(&str, usize, usize); N]) -> Result<(), String> {
    match named.iter().find(|(_, value, most)| value > most) {
        None => Ok(()),
        Some((name, value, most)) => Err(format!(
            "{name} is {value}, which is not between 1 and {most}"
        )),
    }
}

/// The fields that nearly all parts of a description need.
struct Reader<'a> {
    config: Fields<'a>,
    family: Family,
    defaults: Defaults,
    hidden: usize,
    heads: usize,
    key_value_heads: usize,
    key_width: usize,
    blocks: usize,
    context_tokens: usize,
}

impl<'a> Reader<'a> {
    fn new(config: Fields<'a>, family: Family) -> Result<Self, String> {
        let defaults = defaults(family);
        let hidden = config.count("hidden_size", defaults.hidden)?;
        let heads = config.count("num_attention_heads", defaults.heads)?;
        let latent = matches!(family, Family::DeepseekV2 | Family::DeepseekV3);
        let key_value_heads = match config.maybe_count("num_key_value_heads")? {
            // Latent attention expands keys and values to all heads.
            _ if latent => heads,
            Some(given) => given,
            None if config.has("num_key_value_heads") => heads,
            None => defaults.key_value_heads.unwrap_or(heads),
        };
        if !heads.is_multiple_of(key_value_heads) {
            return Err(format!(
                "{heads} attention heads do not divide into {key_value_heads} key-value heads"
            ));
        }
        let key_width = match config.maybe_count("head_dim")?.or(defaults.key_width) {
            _ if latent => {
                config.count("qk_nope_head_dim", 128)? + config.count("qk_rope_head_dim", 64)?
            }
            Some(width) => width,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return Err(format!(
                    "hidden_size {hidden} does not divide into {heads} heads"
                ));
            }
        };
        if !key_width.is_multiple_of(2) {
            return Err(format!(
                "heads of {key_width} numbers are not of even width"
            ));
        }
        let blocks = config.count("num_hidden_layers", defaults.blocks)?;
        within_bounds([
            ("hidden_size", hidden, HIDDEN_MAX),
            ("num_attention_heads", heads, HEADS_MAX),
            ("head_dim", key_width, HEADS_MAX),
            ("num_hidden_layers", blocks, BLOCKS_MAX),
        ])?;
        Ok(Self {
            config,
            family,
            defaults,
            hidden,
            heads,
            key_value_heads,
            key_width,
            blocks,
            context_tokens: config.count("max_position_embeddings", defaults.context_tokens)?,
        })
    }

    fn spec(&self, architecture: &str, whole: &Value, has_head: bool) -> Result<Spec, String> {
        self.refuse_what_is_not_computed()?;
        let config = self.config;
        let (ropes, score_factor) = self.ropes()?;
        let gemma = self.is_gemma();
        let granite = self.family == Family::Granite;
        let only = |is_set: bool, name: &str| {
            if is_set {
                config.number(name, 1.0)
            } else {
                Ok(1.0)
            }
        };
        let vocabulary = config.count("vocab_size", self.defaults.vocabulary)?;
        // If both exist, the outer field takes precedence.
        let ties_head = match Fields::new(whole).value("tie_word_embeddings") {
            Some(_) => Fields::new(whole).flag("tie_word_embeddings", false)?,
            None => config.flag("tie_word_embeddings", self.defaults.ties_head)?,
        };
        Ok(Spec {
            architecture: architecture.to_owned(),
            vocabulary,
            hidden: self.hidden,
            heads: self.heads,
            key_value_heads: self.key_value_heads,
            key_width: self.key_width,
            value_width: if self.is_latent() {
                config.count("v_head_dim", 128)?
            } else {
                self.key_width
            },
            context_tokens: self.context_tokens,
            norm: Norm {
                epsilon: config.positive("rms_norm_eps", self.defaults.epsilon)? as f32,
                adds_one: gemma,
                centred: false,
            },
            learned_positions: None,
            embedding_factor: if gemma {
                (self.hidden as f64).sqrt() as f32
            } else {
                only(granite, "embedding_multiplier")? as f32
            },
            ties_head: ties_head || !has_head,
            head_bias: false,
            logit_cap: self.cap("final_logit_softcapping", 30.0)?,
            logit_factor: if granite {
                (1.0 / config.positive("logits_scaling", 1.0)?) as f32
            } else {
                1.0
            },
            residual_factor: only(granite, "residual_multiplier")? as f32,
            attention: self.attention(score_factor)?,
            blocks: self.all_blocks(&ropes)?,
            ropes,
        })
    }

    fn is_gemma(&self) -> bool {
        matches!(self.family, Family::Gemma | Family::Gemma2 | Family::Gemma3)
    }

    fn is_latent(&self) -> bool {
        matches!(self.family, Family::DeepseekV2 | Family::DeepseekV3)
    }

    fn refuse_what_is_not_computed(&self) -> Result<(), String> {
        if self.is_gemma() && self.config.flag("use_bidirectional_attention", false)? {
            return Err(
                "use_bidirectional_attention is true, which this engine does not support"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The default is for Gemma 2, which has both caps even if its file omits them. Gemma 3 has neither, and no other family has
    /// caps.
    fn cap(&self, name: &str, default: f64) -> Result<Option<f32>, String> {
        let given = match self.family {
            Family::Gemma2 if !self.config.has(name) => Some(default),
            Family::Gemma2 | Family::Gemma3 => self.config.maybe_positive(name)?,
            _ => None,
        };
        Ok(given.map(|cap| cap as f32))
    }

    fn attention(&self, score_factor: f64) -> Result<AttentionSpec, String> {
        let config = self.config;
        let bias = config.flag("attention_bias", false)?;
        let (query_key_value_bias, output_bias) = match self.family {
            Family::Qwen2 => (true, false),
            Family::Qwen2Moe => (config.flag("qkv_bias", true)?, false),
            Family::Mistral | Family::Mixtral | Family::Phi3 => (false, false),
            _ => (bias, bias),
        };
        let plain = (self.key_width as f64).powf(-0.5);
        let score = match self.family {
            Family::Gemma2 | Family::Gemma3 => {
                config.positive("query_pre_attn_scalar", 256.0)?.powf(-0.5)
            }
            Family::Granite => config.number("attention_multiplier", 1.0)?,
            _ => plain,
        };
        let projections = if self.is_latent() {
            let query_rank = if config.has("q_lora_rank") {
                config.maybe_count("q_lora_rank")?
            } else {
                Some(1536)
            };
            Projections::Latent {
                query_rank,
                key_value_rank: config.count("kv_lora_rank", 512)?,
                turned_width: config.count("qk_rope_head_dim", 64)?,
                plain_width: config.count("qk_nope_head_dim", 128)?,
            }
        } else if self.family == Family::Phi3 {
            Projections::Fused
        } else {
            Projections::Separate
        };
        Ok(AttentionSpec {
            projections,
            score_factor: (score * score_factor) as f32,
            score_cap: self.cap("attn_logit_softcapping", 50.0)?,
            query_key_value_bias,
            output_bias,
            head_norm: match self.family {
                Family::Qwen3 | Family::Qwen3Moe | Family::Gemma3 => HeadNorm::PerHead,
                Family::Olmo2 => HeadNorm::AllHeads,
                _ => HeadNorm::None,
            },
        })
    }

    /// The rotary embeddings, and their factor on attention scores.
    fn ropes(&self) -> Result<(Vec<Rope>, f64), String> {
        let config = self.config;
        let around = RopeContext {
            family: self.family,
            head_width: if self.is_latent() {
                config.count("qk_rope_head_dim", 64)?
            } else {
                self.key_width
            },
            context_tokens: self.context_tokens,
            interleaved: match self.family {
                Family::DeepseekV2 => true,
                Family::DeepseekV3 => config.flag("rope_interleave", true)?,
                _ => false,
            },
            theta: if self.family == Family::Gemma3 {
                1e6
            } else {
                self.defaults.theta
            },
            share: (self.family == Family::Phi3).then_some(1.0),
        };
        if self.family == Family::Gemma3 {
            let [full, sliding] = rope::by_kind(config, &around, self.defaults.theta)?;
            return Ok((vec![full.rope, sliding.rope], 1.0));
        }
        let RopeParameters { rope, score_factor } = rope::of_all(config, &around)?;
        Ok((vec![rope], score_factor))
    }
}
