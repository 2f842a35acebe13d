//! StarCoder 2.

use super::fields::{UsualFields, full_rope, one_of, only};
use super::library_model::{LibraryModel, Sizes, plain_calls};
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
        let mut usual = UsualFields::new(config)?;
        only(config, "tie_word_embeddings", true)?;
        // The library's window is wrong, so sequences stay shorter than it.
        if let Some(window) = config.maybe_count("sliding_window")? {
            usual.context_tokens = usual.context_tokens.min(window);
        }
        let further = json!({
            "hidden_act": one_of(config, "hidden_act", &["gelu_pytorch_tanh", "gelu", "silu"])?,
            "norm_epsilon": config.positive("norm_epsilon", 1e-5)?,
            "rope_theta": full_rope(config)?,
            "use_bias": config.flag("use_bias", true)?,
            "sliding_window": null,
        });
        Ok((usual.library(context, further)?, usual.sizes()))
    }

    plain_calls!(load, forward, reset);
}
