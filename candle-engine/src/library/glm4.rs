//! GLM-4 from version 0414 on (`Glm4ForCausalLM`).

use super::fields::{key_value_heads, needed, one_of, parsed, rope, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::glm4_new::{Config, ModelForCausalLM};
use serde_json::json;

pub(super) struct Glm4(ModelForCausalLM);

impl LibraryModel for Glm4 {
    type Config = Config;

    fn describe(
        config: ConfigFields<'_>,
        context: usize,
    ) -> std::result::Result<(Config, Sizes), String> {
        let shape = shape(
            config,
            &["hidden_size"],
            &["num_hidden_layers"],
            &["num_attention_heads"],
        )?;
        let key_value_heads = key_value_heads(config, shape.heads)?;
        let head = config.count("head_dim", 128)?;
        let context_tokens = needed(config, &["max_position_embeddings"])?;
        let rope = rope(config, 0.5)?;
        let library = parsed(json!({
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": needed(config, &["intermediate_size"])?,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "head_dim": head,
            "partial_rotary_factor": rope.share,
            "attention_bias": config.flag("attention_bias", true)?,
            "num_key_value_heads": key_value_heads,
            "max_position_embeddings": context.min(context_tokens),
            "sliding_window": null,
            "tie_word_embeddings": config.flag("tie_word_embeddings", false)?,
            "rope_theta": rope.theta,
            "rms_norm_eps": config.positive("rms_norm_eps", 1.5625e-7)?,
            "hidden_act": one_of(config, "hidden_act", &["silu", "gelu"])?,
            "eos_token_id": null,
        }))?;
        let sizes = Sizes {
            vocabulary: shape.vocabulary,
            context_tokens,
            cache_numbers: 2 * key_value_heads * head * shape.layers,
        };
        Ok((library, sizes))
    }

    fn load(config: &Config, weights: VarBuilder<'_>) -> Result<Self> {
        ModelForCausalLM::new(config, weights).map(Self)
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        self.0.forward(tokens, past)
    }

    fn reset(&mut self) -> bool {
        self.0.clear_kv_cache();
        true
    }
}
