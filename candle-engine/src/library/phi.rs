//! Phi 1, 1.5 and 2.

use super::fields::{UsualFields, one_of, only, rope};
use super::library_model::{LibraryModel, Sizes, plain_calls};
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
        let usual = UsualFields::new(config)?;
        only(config, "tie_word_embeddings", false)?;
        only(config, "qk_layernorm", false)?;
        let rope = rope(config, 0.5)?;
        let further = json!({
            "hidden_act": one_of(config, "hidden_act", &["gelu_new", "gelu_pytorch_tanh", "gelu"])?,
            "layer_norm_eps": config.positive("layer_norm_eps", 1e-5)?,
            "tie_word_embeddings": false,
            "rope_theta": rope.theta,
            "partial_rotary_factor": rope.share,
            "qk_layernorm": false,
        });
        Ok((usual.library(context, further)?, usual.sizes()))
    }

    fn forward(&mut self, tokens: &Tensor, _past: usize) -> Result<Tensor> {
        self.0.forward(tokens)
    }

    plain_calls!(load, reset);
}
