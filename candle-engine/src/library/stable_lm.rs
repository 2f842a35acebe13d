//! StableLM, and StableLM 2 up to 1.6B.

use super::fields::{key_value_heads, needed, one_of, only, parsed, rope, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::stable_lm::{Config, Model};
use serde_json::json;

/// The library has no way to forget a sequence.
pub(super) struct StableLm(Model);

impl LibraryModel for StableLm {
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
        only(config, "tie_word_embeddings", false)?;
        only(config, "use_parallel_residual", false)?;
        only(config, "qk_layernorm", false)?;
        let context_tokens = needed(config, &["max_position_embeddings"])?;
        let rope = rope(config, 0.25)?;
        let library = parsed(json!({
            "vocab_size": shape.vocabulary,
            "intermediate_size": needed(config, &["intermediate_size"])?,
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": key_value_heads,
            "hidden_act": one_of(config, "hidden_act", &["silu", "gelu"])?,
            "partial_rotary_factor": rope.share,
            "rope_theta": rope.theta,
            "max_position_embeddings": context.min(context_tokens),
            "layer_norm_eps": config.positive("layer_norm_eps", 1e-5)?,
            "use_cache": true,
            "use_qkv_bias": config.flag("use_qkv_bias", false)?,
        }))?;
        let sizes = Sizes {
            vocabulary: shape.vocabulary,
            context_tokens,
            cache_numbers: 2 * key_value_heads * shape.head * shape.layers,
        };
        Ok((library, sizes))
    }

    fn load(config: &Config, weights: VarBuilder<'_>) -> Result<Self> {
        Model::new(config, weights).map(Self)
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        self.0.forward(tokens, past)
    }
}
