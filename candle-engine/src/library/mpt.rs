//! MPT on candle's operations: the library's version has the configuration of one model that is not published in `transformers`'
//! form.

use super::attention::{Cache, mask};
use super::fields::{needed, only, only_count, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, VarBuilder, embedding, linear_no_bias};
use serde_json::Value;

/// The largest exponent of a slope.
const ALIBI_BIAS_MAX: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct MptConfig {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    epsilon: f64,
    scale: f64,
    clip: Option<f64>,
    /// Slope of each head's bias by distance.
    slopes: Vec<f32>,
}

struct Block {
    norm_1: LayerNorm,
    query_key_value: Linear,
    output: Linear,
    norm_2: LayerNorm,
    up: Linear,
    down: Linear,
    cache: Cache,
}

pub(super) struct Mpt {
    config: MptConfig,
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

/// Slopes of ALiBi for any number of heads.
fn slopes(heads: usize) -> Vec<f32> {
    let all = heads.next_power_of_two();
    let slope = |nth: usize| 2f64.powf(-(nth as f64) * ALIBI_BIAS_MAX as f64 / all as f64) as f32;
    if all == heads {
        return (1..=all).map(slope).collect();
    }
    let even = (2..=all).step_by(2);
    even.chain((1..=all).step_by(2))
        .take(heads)
        .map(slope)
        .collect()
}

impl MptConfig {
    /// The bias of each head by distance, added to the causal mask.
    fn bias(&self, rows: usize, past: usize, device: &Device) -> Result<Tensor> {
        let tokens = past + rows;
        let distances: Vec<f32> = (0..rows)
            .flat_map(|row| (0..tokens).map(move |token| token as f32 - (past + row) as f32))
            .collect();
        let distances = Tensor::from_vec(distances, (1, 1, rows, tokens), device)?;
        let slopes = Tensor::from_slice(&self.slopes, (1, self.heads, 1, 1), device)?;
        slopes
            .broadcast_mul(&distances)?
            .broadcast_add(&mask(rows, past, device)?)
    }
}

impl Block {
    fn load(config: &MptConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let hidden = config.hidden;
        let attention = weights.pp("attn");
        let feed_forward = weights.pp("ffn");
        Ok(Self {
            norm_1: norm(config, &weights.pp("norm_1"))?,
            query_key_value: linear_no_bias(hidden, 3 * hidden, attention.pp("Wqkv"))?,
            output: linear_no_bias(hidden, hidden, attention.pp("out_proj"))?,
            norm_2: norm(config, &weights.pp("norm_2"))?,
            up: linear_no_bias(hidden, 4 * hidden, feed_forward.pp("up_proj"))?,
            down: linear_no_bias(4 * hidden, hidden, feed_forward.pp("down_proj"))?,
            cache: Cache::default(),
        })
    }

    fn forward(&mut self, config: &MptConfig, rows: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let mut fused = self.query_key_value.forward(&self.norm_1.forward(rows)?)?;
        if let Some(clip) = config.clip {
            fused = fused.clamp(-clip, clip)?;
        }
        let head = config.hidden / config.heads;
        let part = |nth: usize| -> Result<Tensor> {
            let part = fused.narrow(2, nth * config.hidden, config.hidden)?;
            part.reshape((1, rows.dim(1)?, config.heads, head))?
                .transpose(1, 2)
        };
        let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
        let mixed = self
            .cache
            .attend(&queries, (&keys, &values), config.scale, bias)?;
        let rows = (rows + self.output.forward(&mixed)?)?;
        let wide = self.up.forward(&self.norm_2.forward(&rows)?)?.gelu_erf()?;
        &rows + self.down.forward(&wide)?
    }
}

fn norm(config: &MptConfig, weights: &VarBuilder<'_>) -> Result<LayerNorm> {
    let weight = weights.get(config.hidden, "weight")?;
    Ok(LayerNorm::new_no_bias(weight, config.epsilon))
}

impl LibraryModel for Mpt {
    type Config = MptConfig;

    fn describe(
        config: ConfigFields<'_>,
        _context: usize,
    ) -> std::result::Result<(MptConfig, Sizes), String> {
        let shape = shape(
            config,
            &["d_model", "hidden_size"],
            &["n_layers", "num_hidden_layers"],
            &["n_heads", "num_attention_heads"],
        )?;
        let none = Value::Null;
        let attention = ConfigFields::new(config.value("attn_config").unwrap_or(&none));
        for (fields, name, value) in [
            (config, "no_bias", true),
            (config, "tie_word_embeddings", true),
            (attention, "alibi", true),
            (attention, "prefix_lm", false),
            (attention, "qk_ln", false),
        ] {
            only(fields, name, value)?;
        }
        only_count(config, "expansion_ratio", 4)?;
        only_count(attention, "kv_n_heads", shape.heads)?;
        // `transformers` ignores another value.
        only_count(attention, "alibi_bias_max", ALIBI_BIAS_MAX)?;
        if config.value("logit_scale").is_some() {
            return Err(
                "logit_scale is set, which this engine does not compute for this family".to_owned(),
            );
        }
        let scale = attention.maybe_positive("softmax_scale")?;
        let sizes = Sizes {
            vocabulary: shape.vocabulary,
            context_tokens: needed(config, &["max_seq_len"])?,
            cache_numbers: 2 * shape.hidden * shape.layers,
        };
        let read = MptConfig {
            vocabulary: shape.vocabulary,
            hidden: shape.hidden,
            layers: shape.layers,
            heads: shape.heads,
            epsilon: config.positive("layer_norm_epsilon", 1e-5)?,
            scale: scale.unwrap_or((shape.head as f64).powf(-0.5)),
            clip: attention.maybe_positive("clip_qkv")?,
            slopes: slopes(shape.heads),
        };
        Ok((read, sizes))
    }

    fn load(config: &MptConfig, weights: VarBuilder<'_>) -> Result<Self> {
        let weights = weights.pp("transformer");
        let embedding = embedding(config.vocabulary, config.hidden, weights.pp("wte"))?;
        let blocks =
            (0..config.layers).map(|nth| Block::load(config, &weights.pp("blocks").pp(nth)));
        Ok(Self {
            config: config.clone(),
            head: Linear::new(embedding.embeddings().clone(), None),
            embedding,
            blocks: blocks.collect::<Result<_>>()?,
            norm: norm(config, &weights.pp("norm_f"))?,
        })
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        let count = tokens.dim(1)?;
        let bias = self.config.bias(count, past, tokens.device())?;
        let mut rows = self.embedding.forward(tokens)?;
        for block in &mut self.blocks {
            rows = block.forward(&self.config, &rows, &bias)?;
        }
        let last = rows.narrow(1, count - 1, 1)?;
        self.head.forward(&self.norm.forward(&last)?)
    }

    fn reset(&mut self) -> bool {
        self.blocks.iter_mut().for_each(|block| block.cache.clear());
        true
    }
}
