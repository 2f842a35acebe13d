//! OLMo, the first version. [`crate::model`] computes OLMo 2.

use super::fields::{UsualFields, full_rope, one_of, only};
use super::library_model::{LibraryModel, Sizes, plain_calls};
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
        let usual = UsualFields::new(config)?;
        // The library adds the bias to three of the four matrices.
        only(config, "attention_bias", false)?;
        let further = json!({
            "attention_bias": false,
            "hidden_act": one_of(config, "hidden_act", &["silu", "gelu"])?,
            "rope_theta": full_rope(config)?,
            "tie_word_embeddings": config.flag("tie_word_embeddings", false)?,
            "clip_qkv": config.maybe_positive("clip_qkv")?,
        });
        Ok((usual.library(context, further)?, usual.sizes()))
    }

    plain_calls!(load, forward, reset);
}
