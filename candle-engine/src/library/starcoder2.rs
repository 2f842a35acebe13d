//! StarCoder 2.

use super::fields::{full_rope, key_value_heads, needed, one_of, only, parsed, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::starcoder2::{Config, Model};
use serde_json::json;

pub(super) struct Starcoder2(Model);

impl LibraryModel for Starcoder2 {
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
        only(config, "tie_word_embeddings", true)?;
        let positions = needed(config, &["max_position_embeddings"])?;
        // The library's window is wrong, so sequences stay shorter than it.
        let context_tokens =
            positions.min(config.maybe_count("sliding_window")?.unwrap_or(positions));
        let library = parsed(json!({
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": needed(config, &["intermediate_size"])?,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": key_value_heads,
            "hidden_act": one_of(config, "hidden_act", &["gelu_pytorch_tanh", "gelu", "silu"])?,
            "max_position_embeddings": context.min(context_tokens),
            "norm_epsilon": config.positive("norm_epsilon", 1e-5)?,
            "rope_theta": full_rope(config)?,
            "use_bias": config.flag("use_bias", true)?,
            "sliding_window": null,
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
