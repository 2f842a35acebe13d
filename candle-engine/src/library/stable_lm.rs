//! StableLM, and StableLM 2 up to 1.6B.

use super::fields::{UsualFields, one_of, only, rope};
use super::library_model::{LibraryModel, Sizes, plain_calls};
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
        let usual = UsualFields::new(config)?;
        only(config, "tie_word_embeddings", false)?;
        only(config, "use_parallel_residual", false)?;
        only(config, "qk_layernorm", false)?;
        let rope = rope(config, 0.25)?;
        let further = json!({
            "hidden_act": one_of(config, "hidden_act", &["silu", "gelu"])?,
            "partial_rotary_factor": rope.share,
            "rope_theta": rope.theta,
            "layer_norm_eps": config.positive("layer_norm_eps", 1e-5)?,
            "use_cache": true,
            "use_qkv_bias": config.flag("use_qkv_bias", false)?,
        });
        Ok((usual.library(context, further)?, usual.sizes()))
    }

    plain_calls!(load, forward);
}
