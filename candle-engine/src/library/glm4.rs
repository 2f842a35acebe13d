//! GLM-4 from version 0414 on (`Glm4ForCausalLM`).

use super::fields::{UsualFields, one_of, rope};
use super::library_model::{LibraryModel, Sizes, plain_calls};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::glm4_new::{Config, ModelForCausalLM as Model};
use serde_json::json;

pub(super) struct Glm4(Model);

impl LibraryModel for Glm4 {
    type Config = Config;

    fn describe(
        config: ConfigFields<'_>,
        context: usize,
    ) -> std::result::Result<(Config, Sizes), String> {
        let mut usual = UsualFields::new(config)?;
        usual.head = config.count("head_dim", 128)?;
        let rope = rope(config, 0.5)?;
        let further = json!({
            "head_dim": usual.head,
            "partial_rotary_factor": rope.share,
            "attention_bias": config.flag("attention_bias", true)?,
            "sliding_window": null,
            "tie_word_embeddings": config.flag("tie_word_embeddings", false)?,
            "rope_theta": rope.theta,
            "rms_norm_eps": config.positive("rms_norm_eps", 1.5625e-7)?,
            "hidden_act": one_of(config, "hidden_act", &["silu", "gelu"])?,
            "eos_token_id": null,
        });
        Ok((usual.library(context, further)?, usual.sizes()))
    }

    plain_calls!(load, forward, reset);
}
