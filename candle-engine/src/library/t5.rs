//! T5 and FLAN-T5 on candle's operations: an encoder for the prompt, and a decoder for the response. The library's decoder has the
//! encoder's buckets of distances, multiplies hidden states where the model divides, and computes the encoder's keys again for each
//! token.

use super::attention::attend;
use super::encoder_decoder::{Attention, Attentions, shared_embedding};
use super::fields::{HIDDEN_MAX, LAYERS_MAX, maybe, needed, one_of};
use super::library_model::{LibraryModel, Sizes};
use super::weights::head;
use crate::files::ConfigFields;
use candle_core::{Device, Module, Result, Tensor, bail};
use candle_nn::{
    Activation, Embedding, Linear, RmsNorm, VarBuilder, embedding, linear_no_bias, rms_norm,
};
use std::ops::Range;

#[derive(Debug, Clone)]
pub(super) struct T5Config {
    vocabulary: usize,
    hidden: usize,
    heads: usize,
    /// Width of one head.
    head: usize,
    wide: usize,
    encoder_layers: usize,
    decoder_layers: usize,
    buckets: Buckets,
    epsilon: f64,
    activation: Activation,
    is_gated: bool,
    /// Hidden states are divided by the root of their width before the head.
    scales_head: bool,
    /// The token before the first token of a response.
    start: u32,
}

/// Groups distances between tokens: short ones each have a bucket, and longer ones share them.
#[derive(Debug, Clone, Copy)]
struct Buckets {
    count: usize,
    /// All distances from here on share the last bucket.
    distance_max: usize,
}

impl Buckets {
    /// The bucket of `token` as seen from `row`. An encoder's rows see later tokens, in the second half of the buckets.
    fn bucket(self, row: usize, token: usize, is_encoder: bool) -> usize {
        let count = if is_encoder {
            self.count / 2
        } else {
            self.count
        };
        let first = if is_encoder && token > row { count } else { 0 };
        let exact = count / 2;
        let distance = row.abs_diff(token);
        if distance < exact {
            return first + distance;
        }
        // In the number type of the reference, whose rounding decides at the borders of buckets.
        let longer = (distance as f32 / exact as f32).ln()
            / (self.distance_max as f64 / exact as f64).ln() as f32
            * (count - exact) as f32;
        first + (exact + longer as usize).min(count - 1)
    }

    /// The numbers that `table` adds to the scores of `rows` for all tokens before the end of `rows`.
    fn bias(self, table: &Embedding, rows: Range<usize>, is_encoder: bool) -> Result<Tensor> {
        let (count, tokens) = (rows.len(), rows.end);
        let buckets: Vec<u32> = rows
            .flat_map(|row| {
                (0..tokens).map(move |token| self.bucket(row, token, is_encoder) as u32)
            })
            .collect();
        let device: &Device = table.embeddings().device();
        let buckets = Tensor::from_vec(buckets, (count, tokens), device)?;
        let bias = table.forward(&buckets)?.permute((2, 0, 1))?.unsqueeze(0)?;
        bias.contiguous()
    }
}

impl Attention<RmsNorm> {
    fn load(config: &T5Config, name: &str, weights: &VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp(name);
        let all = config.heads * config.head;
        let linear = |name: &str| linear_no_bias(config.hidden, all, inner.pp(name));
        Ok(Self {
            norm: rms_norm(config.hidden, config.epsilon, weights.pp("layer_norm"))?,
            queries: linear("q")?,
            keys: linear("k")?,
            values: linear("v")?,
            output: linear_no_bias(all, config.hidden, inner.pp("o"))?,
            heads: config.heads,
        })
    }
}

struct FeedForward {
    norm: RmsNorm,
    up: Linear,
    /// Present in gated parts.
    gate: Option<Linear>,
    down: Linear,
    activation: Activation,
}

impl FeedForward {
    fn load(config: &T5Config, weights: &VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp("DenseReluDense");
        let wide = |name: &str| linear_no_bias(config.hidden, config.wide, inner.pp(name));
        let (up, gate) = if config.is_gated {
            (wide("wi_1")?, Some(wide("wi_0")?))
        } else {
            (wide("wi")?, None)
        };
        Ok(Self {
            norm: rms_norm(config.hidden, config.epsilon, weights.pp("layer_norm"))?,
            up,
            gate,
            down: linear_no_bias(config.wide, config.hidden, inner.pp("wo"))?,
            activation: config.activation,
        })
    }

    /// Adds the part's output to `rows`.
    fn add(&self, rows: &Tensor) -> Result<Tensor> {
        let normed = self.norm.forward(rows)?;
        let up = self.up.forward(&normed)?;
        let wide = match &self.gate {
            None => up.apply(&self.activation)?,
            Some(gate) => (gate.forward(&normed)?.apply(&self.activation)? * up)?,
        };
        rows + self.down.forward(&wide)?
    }
}

struct Block {
    attentions: Attentions<RmsNorm>,
    feed_forward: FeedForward,
}

/// The encoder or the decoder.
struct Stack {
    blocks: Vec<Block>,
    buckets: Buckets,
    bias: Embedding,
    norm: RmsNorm,
}

impl Stack {
    fn load(
        config: &T5Config,
        layers: usize,
        is_decoder: bool,
        weights: &VarBuilder<'_>,
    ) -> Result<Self> {
        let block = |nth: usize| -> Result<Block> {
            let inner = weights.pp("block").pp(nth).pp("layer");
            let cross = is_decoder
                .then(|| Attention::<RmsNorm>::load(config, "EncDecAttention", &inner.pp(1)))
                .transpose()?;
            let own = Attention::<RmsNorm>::load(config, "SelfAttention", &inner.pp(0))?;
            Ok(Block {
                attentions: Attentions::new(own, cross),
                feed_forward: FeedForward::load(config, &inner.pp(1 + usize::from(is_decoder)))?,
            })
        };
        // The first block's distances apply to all blocks.
        let bias = weights.pp("block.0.layer.0.SelfAttention.relative_attention_bias");
        Ok(Self {
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            buckets: config.buckets,
            bias: embedding(config.buckets.count, config.heads, bias)?,
            norm: rms_norm(
                config.hidden,
                config.epsilon,
                weights.pp("final_layer_norm"),
            )?,
        })
    }

    /// Computes embedded rows that follow `past` rows of a decoder. An encoder computes all rows together.
    fn forward(&mut self, mut rows: Tensor, past: usize) -> Result<Tensor> {
        let is_encoder = self
            .blocks
            .first()
            .is_none_or(|block| block.attentions.cross.is_none());
        let positions = past..past + rows.dim(1)?;
        let bias = self.buckets.bias(&self.bias, positions, is_encoder)?;
        for block in &mut self.blocks {
            let Attentions {
                own,
                cache,
                cross,
                encoded,
            } = &mut block.attentions;
            let normed = own.norm.forward(&rows)?;
            let queries = own.split(&own.queries, &normed)?;
            let (keys, values) = own.keys_and_values(&normed)?;
            let mixed = if is_encoder {
                attend(&queries, (&keys, &values), 1.0, Some(&bias))?
            } else {
                cache.attend(&queries, (&keys, &values), 1.0, &bias)?
            };
            rows = (rows + own.output.forward(&mixed)?)?;
            if let (Some(cross), Some((keys, values))) = (&*cross, &*encoded) {
                let queries = cross.split(&cross.queries, &cross.norm.forward(&rows)?)?;
                let mixed = attend(&queries, (keys, values), 1.0, None)?;
                rows = (rows + cross.output.forward(&mixed)?)?;
            }
            rows = block.feed_forward.add(&rows)?;
        }
        self.norm.forward(&rows)
    }
}

pub(super) struct T5 {
    config: T5Config,
    embedding: Embedding,
    encoder: Stack,
    decoder: Stack,
    head: Linear,
    /// Rows that the decoder has computed.
    computed: usize,
}

impl T5 {
    /// Computes the logits after one token of the response.
    fn decode(&mut self, token: &Tensor) -> Result<Tensor> {
        let rows = self.embedding.forward(token)?;
        let mut rows = self.decoder.forward(rows, self.computed)?;
        self.computed += 1;
        if self.config.scales_head {
            rows = (rows * (self.config.hidden as f64).powf(-0.5))?;
        }
        self.head.forward(&rows)
    }
}

impl LibraryModel for T5 {
    type Config = T5Config;
    const ENCODES: bool = true;

    fn describe(
        config: ConfigFields<'_>,
        _context: usize,
    ) -> std::result::Result<(T5Config, Sizes), String> {
        let encoder_layers = needed(config, &["num_layers"])?;
        let decoder_layers = config.count("num_decoder_layers", encoder_layers)?;
        if encoder_layers.max(decoder_layers) > LAYERS_MAX {
            return Err(format!(
                "num_layers {encoder_layers} or num_decoder_layers {decoder_layers} is more than {LAYERS_MAX}"
            ));
        }
        let buckets = Buckets {
            count: config.count("relative_attention_num_buckets", 32)?,
            distance_max: config.count("relative_attention_max_distance", 128)?,
        };
        if !buckets.count.is_multiple_of(4) || buckets.distance_max <= buckets.count / 2 {
            return Err(format!(
                "relative_attention_num_buckets {} is not a multiple of 4, or half of it is not below relative_attention_max_distance {}",
                buckets.count, buckets.distance_max
            ));
        }
        let vocabulary = needed(config, &["vocab_size"])?;
        let (heads, head) = (needed(config, &["num_heads"])?, needed(config, &["d_kv"])?);
        let (hidden, wide) = (needed(config, &["d_model"])?, needed(config, &["d_ff"])?);
        if hidden.max(wide).max(heads.saturating_mul(head)) > HIDDEN_MAX {
            return Err(format!(
                "d_model {hidden}, d_ff {wide} or num_heads {heads} times d_kv {head} is more than {HIDDEN_MAX}"
            ));
        }
        let start = config
            .value("decoder_start_token_id")
            .or(config.value("pad_token_id"));
        let start = start.and_then(serde_json::Value::as_u64).unwrap_or(0);
        let known = ["relu", "gated-gelu", "gated-silu"];
        let activation = one_of(config, "feed_forward_proj", &known)?;
        let read = T5Config {
            vocabulary,
            hidden,
            heads,
            head,
            wide,
            encoder_layers,
            decoder_layers,
            buckets,
            epsilon: config.positive("layer_norm_epsilon", 1e-6)?,
            activation: match activation {
                "gated-gelu" => Activation::NewGelu,
                "gated-silu" => Activation::Silu,
                _ => Activation::Relu,
            },
            is_gated: activation.starts_with("gated"),
            scales_head: config.flag("tie_word_embeddings", true)?,
            start: u32::try_from(start)
                .ok()
                .filter(|start| (*start as usize) < vocabulary)
                .ok_or_else(|| {
                    format!("decoder_start_token_id {start} is not among {vocabulary} tokens")
                })?,
        };
        let positions = maybe(config, &["n_positions", "max_position_embeddings"])?;
        let sizes = Sizes {
            vocabulary,
            context_tokens: 2 * positions.unwrap_or(512),
            // The decoder keeps tokens of the prompt for its cross attention, and tokens of the response for its self attention.
            cache_numbers: 2 * heads * head * decoder_layers,
        };
        Ok((read, sizes))
    }

    fn load(config: &T5Config, weights: VarBuilder<'_>) -> Result<Self> {
        let embedding = shared_embedding(config.vocabulary, config.hidden, &weights)?;
        let is_tied = !weights.contains_tensor("lm_head.weight");
        let head = head(&embedding, is_tied, &weights)?;
        let (encoder, decoder) = (weights.pp("encoder"), weights.pp("decoder"));
        Ok(Self {
            embedding,
            encoder: Stack::load(config, config.encoder_layers, false, &encoder)?,
            decoder: Stack::load(config, config.decoder_layers, true, &decoder)?,
            head,
            computed: 0,
            config: config.clone(),
        })
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        if past > 0 {
            if tokens.dim(1)? != 1 {
                bail!("a response is computed token by token");
            }
            return self.decode(tokens);
        }
        let encoded = self.encoder.forward(self.embedding.forward(tokens)?, 0)?;
        for block in &mut self.decoder.blocks {
            block.attentions.begin(&encoded)?;
        }
        self.computed = 0;
        self.decode(&Tensor::new(&[[self.config.start]], tokens.device())?)
    }

    fn reset(&mut self) -> bool {
        let blocks = self.decoder.blocks.iter_mut();
        blocks.for_each(|block| block.attentions.clear());
        true
    }
}
