//! LFM2: layers with attention and layers with short convolutions.

use super::fields::{full_rope_or, key_value_heads, needed, only, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{DType, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::lfm2::{Cache, Config, LayerType, Model};

/// The library's cache also keeps the masks of earlier prompts, so an instance is not reused.
pub(super) struct Lfm2 {
    model: Model,
    cache: Cache,
}

/// Width of the feed-forward part.
fn width(config: ConfigFields<'_>) -> std::result::Result<usize, String> {
    let width = match config.maybe_count("block_ff_dim")? {
        Some(width) => width,
        None => needed(config, &["intermediate_size"])?,
    };
    if !config.flag("block_auto_adjust_ff_dim", true)? {
        return Ok(width);
    }
    let factor = config.positive("block_ffn_dim_multiplier", 1.0)?;
    let adjusted = (factor * (2 * width / 3) as f64) as usize;
    Ok(adjusted.next_multiple_of(config.count("block_multiple_of", 256)?))
}

/// The kinds of the layers, and the number of those with attention.
fn layer_types(
    config: ConfigFields<'_>,
    layers: usize,
) -> std::result::Result<(Vec<LayerType>, usize), String> {
    let kinds = match (
        config.texts("layer_types")?,
        config.numbers_of("full_attn_idxs")?,
    ) {
        (Some(kinds), _) => kinds
            .into_iter()
            .map(|kind| match kind {
                "conv" => Ok(LayerType::Conv),
                "full_attention" => Ok(LayerType::FullAttention),
                other => Err(format!(
                    "layer_types contains {other}; this engine supports conv and full_attention"
                )),
            })
            .collect::<std::result::Result<Vec<_>, _>>()?,
        (None, Some(places)) => (0..layers)
            .map(|place| {
                if places.contains(&place) {
                    LayerType::FullAttention
                } else {
                    LayerType::Conv
                }
            })
            .collect(),
        (None, None) => vec![LayerType::FullAttention; layers],
    };
    if kinds.len() != layers {
        return Err(format!(
            "layer_types has {} entries, num_hidden_layers is {layers}",
            kinds.len()
        ));
    }
    let attention = kinds
        .iter()
        .filter(|kind| **kind == LayerType::FullAttention);
    let count = attention.count();
    Ok((kinds, count))
}

impl LibraryModel for Lfm2 {
    type Config = Config;
    /// A pass over several tokens forgets the convolutions' past tokens.
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
        only(config, "conv_bias", false)?;
        let (layer_types, attention_layers) = layer_types(config, shape.layers)?;
        let context_tokens = needed(config, &["max_position_embeddings"])?;
        let ties_head = config.flag("tie_word_embeddings", true)?;
        let library = Config {
            vocab_size: shape.vocabulary,
            hidden_size: shape.hidden,
            intermediate_size: width(config)?,
            num_hidden_layers: shape.layers,
            num_attention_heads: shape.heads,
            num_key_value_heads: key_value_heads,
            norm_eps: config.positive("norm_eps", 1e-5)?,
            rope_theta: full_rope_or(config, 1e6)? as f32,
            max_position_embeddings: context.min(context_tokens),
            conv_l_cache: config.count("conv_L_cache", 3)?,
            conv_bias: false,
            layer_types,
            tie_embedding: config.flag("tie_embedding", ties_head)?,
            bos_token_id: None,
            eos_token_id: None,
            use_flash_attn: false,
        };
        let sizes = Sizes {
            vocabulary: shape.vocabulary,
            context_tokens,
            cache_numbers: 2 * key_value_heads * shape.head * attention_layers,
        };
        Ok((library, sizes))
    }

    fn load(config: &Config, weights: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            cache: Cache::new(true, DType::F32, config, weights.device())?,
            model: Model::new(config, weights)?,
        })
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        self.model.forward(tokens, past, &mut self.cache)
    }
}
