//! Phi 1, 1.5 and 2.

use super::fields::{key_value_heads, needed, one_of, only, parsed, rope, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::phi::{Config, Model};
use serde_json::json;

pub(super) struct Phi(Model);

impl LibraryModel for Phi {
    type Config = Config;
    /// The library's mask is that of a sequence without past tokens.
    const CONTINUES: bool = false;

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
        only(config, "qk_layernorm", false)?;
        let context_tokens = needed(config, &["max_position_embeddings"])?;
        let rope = rope(config, 0.5)?;
        let library = parsed(json!({
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": needed(config, &["intermediate_size"])?,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": key_value_heads,
            "hidden_act": one_of(config, "hidden_act", &["gelu_new", "gelu_pytorch_tanh", "gelu"])?,
            "max_position_embeddings": context.min(context_tokens),
            "layer_norm_eps": config.positive("layer_norm_eps", 1e-5)?,
            "tie_word_embeddings": false,
            "rope_theta": rope.theta,
            "partial_rotary_factor": rope.share,
            "qk_layernorm": false,
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

    fn forward(&mut self, tokens: &Tensor, _past: usize) -> Result<Tensor> {
        self.0.forward(tokens)
    }

    fn reset(&mut self) -> bool {
        self.0.clear_kv_cache();
        true
    }
}
