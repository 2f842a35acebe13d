//! Falcon on candle's operations, for both published layouts: one key head (7B), and key heads in groups (40B, 180B, Falcon 2). The
//! library's version approximates the activation and lacks the second layout.

use super::attention::{Cache, Rotation, mask};
use super::fields::{full_rope, maybe, one_of, only, shape};
use super::library_model::{LibraryModel, Sizes};
use super::weights::head;
use crate::files::ConfigFields;
use candle_core::{Module, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, VarBuilder, embedding, layer_norm, linear_b};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(super) struct FalconConfig {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    key_heads: usize,
    wide: usize,
    bias: bool,
    epsilon: f64,
    /// Attention and the feed-forward part have separate norms.
    separate_norms: bool,
    tied_head: bool,
    theta: f64,
    positions: usize,
}

struct Block {
    attention_norm: LayerNorm,
    /// Absent if both parts share a norm.
    feed_forward_norm: Option<LayerNorm>,
    query_key_value: Linear,
    output: Linear,
    up: Linear,
    down: Linear,
    rotation: Arc<Rotation>,
    cache: Cache,
}

pub(super) struct Falcon {
    config: FalconConfig,
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Block {
    fn load(
        config: &FalconConfig,
        weights: &VarBuilder<'_>,
        rotation: &Arc<Rotation>,
    ) -> Result<Self> {
        let (hidden, bias) = (config.hidden, config.bias);
        let fused = (config.heads + 2 * config.key_heads) * (hidden / config.heads);
        let norm = |name: &str| layer_norm(hidden, config.epsilon, weights.pp(name));
        let (first, second) = if config.separate_norms {
            ("ln_attn", Some("ln_mlp"))
        } else {
            ("input_layernorm", None)
        };
        let attention = weights.pp("self_attention");
        let feed_forward = weights.pp("mlp");
        Ok(Self {
            attention_norm: norm(first)?,
            feed_forward_norm: second.map(norm).transpose()?,
            query_key_value: linear_b(hidden, fused, bias, attention.pp("query_key_value"))?,
            output: linear_b(hidden, hidden, bias, attention.pp("dense"))?,
            up: linear_b(hidden, config.wide, bias, feed_forward.pp("dense_h_to_4h"))?,
            down: linear_b(config.wide, hidden, bias, feed_forward.pp("dense_4h_to_h"))?,
            rotation: Arc::clone(rotation),
            cache: Cache::default(),
        })
    }

    fn forward(
        &mut self,
        config: &FalconConfig,
        rows: &Tensor,
        past: usize,
        mask: &Tensor,
    ) -> Result<Tensor> {
        let count = rows.dim(1)?;
        let width = config.hidden / config.heads;
        let group = config.heads / config.key_heads;
        let normed = self.attention_norm.forward(rows)?;
        // Of each group: its queries, its key, its value.
        let fused = self.query_key_value.forward(&normed)?;
        let fused = fused.reshape((count, config.key_heads, group + 2, width))?;
        let part = |first: usize, of_group: usize| -> Result<Tensor> {
            let part = fused.narrow(2, first, of_group)?.contiguous()?;
            let part = part.reshape((1, count, config.key_heads * of_group, width))?;
            part.transpose(1, 2)
        };
        let queries = self.rotation.apply(&part(0, group)?, past)?;
        let keys = self.rotation.apply(&part(group, 1)?, past)?;
        let values = part(group + 1, 1)?;
        let scale = (width as f64).powf(-0.5);
        let mixed = self.cache.attend(&queries, (&keys, &values), scale, mask)?;
        let attended = self.output.forward(&mixed)?;
        let normed = match &self.feed_forward_norm {
            Some(norm) => norm.forward(rows)?,
            None => normed,
        };
        let wide = self.up.forward(&normed)?.gelu_erf()?;
        (self.down.forward(&wide)? + attended)? + rows
    }
}

impl LibraryModel for Falcon {
    type Config = FalconConfig;

    fn describe(
        config: ConfigFields<'_>,
        context: usize,
    ) -> std::result::Result<(FalconConfig, Sizes), String> {
        let shape = shape(
            config,
            &["hidden_size", "n_embed"],
            &["num_hidden_layers", "n_layer"],
            &["num_attention_heads", "n_head"],
        )?;
        let is_grouped = config.flag("new_decoder_architecture", false)?;
        only(config, "alibi", false)?;
        only(config, "parallel_attn", true)?;
        one_of(config, "activation", &["gelu"])?;
        if !is_grouped {
            only(config, "multi_query", true)?;
            if let Some(count) = config.maybe_count("n_head_kv")?.filter(|count| *count > 1) {
                return Err(format!(
                    "n_head_kv is {count}, and new_decoder_architecture is missing: use the model's newer files"
                ));
            }
        }
        let key_heads = if is_grouped {
            maybe(config, &["num_kv_heads", "n_head_kv"])?.unwrap_or(shape.heads)
        } else {
            1
        };
        if !shape.heads.is_multiple_of(key_heads) {
            return Err(format!(
                "{} attention heads do not divide into {key_heads} key-value heads",
                shape.heads
            ));
        }
        let norms = config.count("num_ln_in_parallel_attn", if is_grouped { 2 } else { 1 })?;
        let context_tokens = config.count("max_position_embeddings", 2048)?;
        let sizes = Sizes {
            vocabulary: shape.vocabulary,
            context_tokens,
            cache_numbers: 2 * key_heads * shape.head * shape.layers,
        };
        let read = FalconConfig {
            vocabulary: shape.vocabulary,
            hidden: shape.hidden,
            layers: shape.layers,
            heads: shape.heads,
            key_heads,
            wide: config.count("ffn_hidden_size", 4 * shape.hidden)?,
            bias: config.flag("bias", false)?,
            epsilon: config.positive("layer_norm_epsilon", 1e-5)?,
            separate_norms: is_grouped && norms == 2,
            tied_head: config.flag("tie_word_embeddings", true)?,
            theta: full_rope(config)?,
            positions: context.min(context_tokens),
        };
        Ok((read, sizes))
    }

    fn load(config: &FalconConfig, weights: VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp("transformer");
        let embedding = embedding(
            config.vocabulary,
            config.hidden,
            inner.pp("word_embeddings"),
        )?;
        let is_tied = config.tied_head && !weights.contains_tensor("lm_head.weight");
        let head = head(&embedding, is_tied, &weights)?;
        let width = config.hidden / config.heads;
        let rotation = Rotation::new(width, config.theta, config.positions, weights.device())?;
        let rotation = Arc::new(rotation);
        let blocks =
            (0..config.layers).map(|nth| Block::load(config, &inner.pp("h").pp(nth), &rotation));
        Ok(Self {
            config: config.clone(),
            embedding,
            blocks: blocks.collect::<Result<_>>()?,
            norm: layer_norm(config.hidden, config.epsilon, inner.pp("ln_f"))?,
            head,
        })
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        let count = tokens.dim(1)?;
        let mask = mask(count, past, tokens.device())?;
        let mut rows = self.embedding.forward(tokens)?;
        for block in &mut self.blocks {
            rows = block.forward(&self.config, &rows, past, &mask)?;
        }
        let last = rows.narrow(1, count - 1, 1)?;
        self.head.forward(&self.norm.forward(&last)?)
    }

    fn reset(&mut self) -> bool {
        self.blocks.iter_mut().for_each(|block| block.cache.clear());
        true
    }
}
