//! OLMo, the first version. [`crate::model`] computes OLMo 2.

use super::fields::{full_rope, key_value_heads, needed, one_of, only, parsed, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::olmo::{Config, Model};
use serde_json::json;

pub(super) struct Olmo(Model);

impl LibraryModel for Olmo {
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
        // The library adds the bias to three of the four matrices.
        only(config, "attention_bias", false)?;
        let context_tokens = needed(config, &["max_position_embeddings"])?;
        let library = parsed(json!({
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": needed(config, &["intermediate_size"])?,
            "attention_bias": false,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": key_value_heads,
            "hidden_act": one_of(config, "hidden_act", &["silu", "gelu"])?,
            "max_position_embeddings": context.min(context_tokens),
            "rope_theta": full_rope(config)?,
            "tie_word_embeddings": config.flag("tie_word_embeddings", false)?,
            "clip_qkv": config.maybe_positive("clip_qkv")?,
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

    fn reset(&mut self) -> bool {
        self.0.clear_kv_cache();
        true
    }
}
