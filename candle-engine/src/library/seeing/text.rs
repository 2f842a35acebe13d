//! The text of a decoder that sees: a decoder with positions on three axes, and rows of images.

use super::config::TextConfig;
use super::positions::{SeenImage, add_deep, embed, positions};
use crate::library::attention::{Cache, mask};
use crate::library::weights::head;
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, RmsNorm, VarBuilder, embedding, linear_b, rms_norm};
use std::ops::Range;

pub(super) struct Text {
    config: TextConfig,
    /// Radians of each pair of numbers of a head for one position.
    frequencies: Vec<f32>,
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
}

struct Layer {
    norm: RmsNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    query_norm: Option<RmsNorm>,
    key_norm: Option<RmsNorm>,
    output: Linear,
    feed_forward_norm: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
    cache: Cache,
}

/// The angles and the mask of a pass, which all layers share.
struct Pass {
    cosines: Tensor,
    sines: Tensor,
    mask: Tensor,
}

impl Text {
    pub fn load(config: &TextConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp(config.prefix);
        let embedding = embedding(config.vocabulary, config.hidden, inner.pp("embed_tokens"))?;
        let is_tied = config.tied_head || !weights.contains_tensor("lm_head.weight");
        let head = head(&embedding, is_tied, weights)?;
        let frequency = |pair: usize| {
            let share = 2.0 * pair as f64 / config.head as f64;
            1.0 / (config.theta.powf(share) as f32)
        };
        let layers = inner.pp("layers");
        let layers = (0..config.layers).map(|nth| Layer::load(config, &layers.pp(nth)));
        Ok(Self {
            frequencies: (0..config.head / 2).map(frequency).collect(),
            embedding,
            layers: layers.collect::<Result<_>>()?,
            norm: rms_norm(config.hidden, config.epsilon, inner.pp("norm"))?,
            head,
            config: config.clone(),
        })
    }

    pub fn forward(
        &mut self,
        tokens: &Tensor,
        past: usize,
        images: &[SeenImage],
    ) -> Result<Tensor> {
        let count = tokens.dim(1)?;
        let range = past..past + count;
        let pass = self.pass(range.clone(), images, tokens.device())?;
        let mut rows = embed(self.embedding.forward(tokens)?, &range, images)?;
        for (nth, layer) in self.layers.iter_mut().enumerate() {
            rows = layer.forward(&self.config, &rows, &pass)?;
            rows = add_deep(rows, &range, nth, images)?;
        }
        let last = rows.narrow(1, count - 1, 1)?;
        self.head.forward(&self.norm.forward(&last)?)
    }

    pub fn clear(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.cache.clear());
    }

    fn pass(&self, range: Range<usize>, images: &[SeenImage], device: &Device) -> Result<Pass> {
        let (past, count) = (range.start, range.len());
        let places = positions(range, images);
        let angles = places.iter().flat_map(|place| {
            let pairs = self.config.axes.iter().zip(&self.frequencies);
            pairs.map(move |(axis, frequency)| place[*axis] * frequency)
        });
        let shape = (count, self.frequencies.len());
        let angles = Tensor::from_vec(angles.collect::<Vec<f32>>(), shape, device)?;
        Ok(Pass {
            cosines: angles.cos()?,
            sines: angles.sin()?,
            mask: mask(count, past, device)?,
        })
    }
}

impl Layer {
    fn load(config: &TextConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let attention = weights.pp("self_attn");
        let feed_forward = weights.pp("mlp");
        let (hidden, wide) = (config.hidden, config.wide);
        let norm = |width: usize, weights: VarBuilder<'_>| rms_norm(width, config.epsilon, weights);
        let queries = config.heads * config.head;
        let keys = config.key_heads * config.head;
        let projection = |from: usize, to: usize, name: &str| {
            linear_b(from, to, config.attention_bias, attention.pp(name))
        };
        let matrix = |from: usize, to: usize, name: &str| {
            linear_b(from, to, config.feed_forward_bias, feed_forward.pp(name))
        };
        let head_norm = |name: &str| {
            let norms = config.norms_heads;
            norms
                .then(|| norm(config.head, attention.pp(name)))
                .transpose()
        };
        Ok(Self {
            norm: norm(hidden, weights.pp("input_layernorm"))?,
            query: projection(hidden, queries, "q_proj")?,
            key: projection(hidden, keys, "k_proj")?,
            value: projection(hidden, keys, "v_proj")?,
            query_norm: head_norm("q_norm")?,
            key_norm: head_norm("k_norm")?,
            output: projection(queries, hidden, "o_proj")?,
            feed_forward_norm: norm(hidden, weights.pp("post_attention_layernorm"))?,
            gate: matrix(hidden, wide, "gate_proj")?,
            up: matrix(hidden, wide, "up_proj")?,
            down: matrix(wide, hidden, "down_proj")?,
            cache: Cache::default(),
        })
    }

    fn forward(&mut self, config: &TextConfig, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        let normed = self.norm.forward(rows)?;
        let count = rows.dim(1)?;
        let heads = |numbers: Tensor, heads: usize| numbers.reshape((1, count, heads, config.head));
        let turned = |heads: Tensor, norm: &Option<RmsNorm>| {
            let heads = match norm {
                Some(norm) => norm.forward(&heads)?,
                None => heads,
            };
            let heads = heads.transpose(1, 2)?.contiguous()?;
            candle_nn::rotary_emb::rope(&heads, &pass.cosines, &pass.sines)
        };
        let queries = heads(self.query.forward(&normed)?, config.heads)?;
        let queries = turned(queries, &self.query_norm)?;
        let keys = heads(self.key.forward(&normed)?, config.key_heads)?;
        let keys = turned(keys, &self.key_norm)?;
        let values = heads(self.value.forward(&normed)?, config.key_heads)?.transpose(1, 2)?;
        let scale = (config.head as f64).powf(-0.5);
        let mixed = self
            .cache
            .attend(&queries, (&keys, &values), scale, &pass.mask)?;
        let rows = (rows + self.output.forward(&mixed)?)?;
        let normed = self.feed_forward_norm.forward(&rows)?;
        let gated = (self.gate.forward(&normed)?.silu()? * self.up.forward(&normed)?)?;
        rows + self.down.forward(&gated)?
    }
}
