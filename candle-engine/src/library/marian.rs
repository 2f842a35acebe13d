//! Marian's translators (opus-mt) on candle's operations: an encoder for the prompt, and a decoder for the response. The library's
//! version computes the encoder's keys again for each token and never suppresses the padding token.

use super::attention::attend;
use super::encoder_decoder::{Attention, Attentions, shared_embedding};
use super::fields::{HIDDEN_MAX, LAYERS_MAX, needed, one_of, only};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Device, Module, Result, Tensor, bail};
use candle_nn::{Activation, Embedding, LayerNorm, Linear, VarBuilder, layer_norm, linear};
use serde_json::Value;

const EPSILON: f64 = 1e-5;
/// Added to the logit of the padding token, which models would otherwise choose. Finite, because logits must be.
const SUPPRESSED: f32 = -1e30;

#[derive(Debug, Clone)]
pub(super) struct MarianConfig {
    vocabulary: usize,
    hidden: usize,
    positions: usize,
    encoder: StackConfig,
    decoder: StackConfig,
    activation: Activation,
    scales_embedding: bool,
    /// The token before the first token of a response.
    start: u32,
    padding: usize,
}

#[derive(Debug, Clone, Copy)]
struct StackConfig {
    layers: usize,
    heads: usize,
    wide: usize,
}

impl Attention<LayerNorm> {
    fn load(hidden: usize, heads: usize, name: &str, weights: &VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp(name);
        let square = |name: &str| linear(hidden, hidden, inner.pp(name));
        let norm = weights.pp(format!("{name}_layer_norm"));
        Ok(Self {
            queries: square("q_proj")?,
            keys: square("k_proj")?,
            values: square("v_proj")?,
            output: square("out_proj")?,
            norm: layer_norm(hidden, EPSILON, norm)?,
            heads,
        })
    }

    /// Adds attention to these keys and values to `rows`.
    fn add(&self, rows: &Tensor, (keys, values): (&Tensor, &Tensor)) -> Result<Tensor> {
        let queries = self.split(&self.queries, rows)?;
        let scale = (queries.dim(3)? as f64).powf(-0.5);
        let mixed = attend(&queries, (keys, values), scale, None)?;
        self.norm.forward(&(rows + self.output.forward(&mixed)?)?)
    }
}

struct Block {
    attentions: Attentions<LayerNorm>,
    up: Linear,
    down: Linear,
    norm: LayerNorm,
}

/// The encoder or the decoder.
struct Stack {
    blocks: Vec<Block>,
    activation: Activation,
    is_decoder: bool,
}

impl Stack {
    fn load(
        config: &MarianConfig,
        of: StackConfig,
        is_decoder: bool,
        weights: &VarBuilder<'_>,
    ) -> Result<Self> {
        let hidden = config.hidden;
        let block = |nth: usize| -> Result<Block> {
            let inner = weights.pp("layers").pp(nth);
            let cross = is_decoder
                .then(|| Attention::<LayerNorm>::load(hidden, of.heads, "encoder_attn", &inner))
                .transpose()?;
            let own = Attention::<LayerNorm>::load(hidden, of.heads, "self_attn", &inner)?;
            Ok(Block {
                attentions: Attentions::new(own, cross),
                up: linear(hidden, of.wide, inner.pp("fc1"))?,
                down: linear(of.wide, hidden, inner.pp("fc2"))?,
                norm: layer_norm(hidden, EPSILON, inner.pp("final_layer_norm"))?,
            })
        };
        Ok(Self {
            blocks: (0..of.layers).map(block).collect::<Result<_>>()?,
            activation: config.activation,
            is_decoder,
        })
    }

    /// Computes embedded rows: the next row of a decoder, or all rows of an encoder.
    fn forward(&mut self, mut rows: Tensor) -> Result<Tensor> {
        for block in &mut self.blocks {
            let Attentions {
                own,
                cache,
                cross,
                encoded,
            } = &mut block.attentions;
            let (mut keys, mut values) = own.keys_and_values(&rows)?;
            if self.is_decoder {
                (keys, values) = cache.append(&keys, &values)?;
            }
            rows = own.add(&rows, (&keys, &values))?;
            if let (Some(cross), Some((keys, values))) = (&*cross, &*encoded) {
                rows = cross.add(&rows, (keys, values))?;
            }
            let wide = block.up.forward(&rows)?.apply(&self.activation)?;
            rows = block.norm.forward(&(rows + block.down.forward(&wide)?)?)?;
        }
        Ok(rows)
    }
}

pub(super) struct Marian {
    config: MarianConfig,
    embedding: Embedding,
    /// Sines and cosines of each position.
    positions: Tensor,
    encoder: Stack,
    decoder: Stack,
    head: Linear,
    /// Rows that the decoder has computed.
    computed: usize,
}

impl Marian {
    fn embed(&self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        let mut rows = self.embedding.forward(tokens)?;
        if self.config.scales_embedding {
            rows = (rows * (self.config.hidden as f64).sqrt())?;
        }
        rows.broadcast_add(&self.positions.narrow(0, past, tokens.dim(1)?)?)
    }

    /// Computes the logits after one token of the response.
    fn decode(&mut self, token: &Tensor) -> Result<Tensor> {
        let rows = self.embed(token, self.computed)?;
        let rows = self.decoder.forward(rows)?;
        self.computed += 1;
        self.head.forward(&rows)
    }
}

/// The sines of all frequencies of a position, and then the cosines.
fn position_table(positions: usize, hidden: usize, device: &Device) -> Result<Tensor> {
    let half = hidden / 2;
    let angle = |position: usize, nth: usize| {
        position as f64 / 10_000_f64.powf(2.0 * (nth % half) as f64 / hidden as f64)
    };
    let numbers: Vec<f32> = (0..positions)
        .flat_map(|position| {
            (0..hidden).map(move |nth| {
                let angle = angle(position, nth);
                (if nth < half { angle.sin() } else { angle.cos() }) as f32
            })
        })
        .collect();
    Tensor::from_vec(numbers, (positions, hidden), device)
}

/// Reads the numbers of the encoder or the decoder.
fn stack(
    config: ConfigFields<'_>,
    part: &str,
    hidden: usize,
) -> std::result::Result<StackConfig, String> {
    let name = |field: &str| format!("{part}_{field}");
    let read = StackConfig {
        layers: needed(config, &[&name("layers")])?,
        heads: needed(config, &[&name("attention_heads")])?,
        wide: needed(config, &[&name("ffn_dim")])?,
    };
    if read.layers > LAYERS_MAX || read.wide > HIDDEN_MAX {
        return Err(format!(
            "{part}_layers {} or {part}_ffn_dim {} is more than {LAYERS_MAX} or {HIDDEN_MAX}",
            read.layers, read.wide
        ));
    }
    if !hidden.is_multiple_of(read.heads) {
        return Err(format!(
            "d_model {hidden} does not divide into {part}_attention_heads {}",
            read.heads
        ));
    }
    Ok(read)
}

impl LibraryModel for Marian {
    type Config = MarianConfig;
    const ENCODES: bool = true;

    fn describe(
        config: ConfigFields<'_>,
        _context: usize,
    ) -> std::result::Result<(MarianConfig, Sizes), String> {
        let vocabulary = needed(config, &["vocab_size"])?;
        let hidden = needed(config, &["d_model"])?;
        let positions = needed(config, &["max_position_embeddings"])?;
        if hidden.max(positions) > HIDDEN_MAX || !hidden.is_multiple_of(2) {
            return Err(format!(
                "d_model {hidden} is odd, or it or max_position_embeddings {positions} is more than {HIDDEN_MAX}"
            ));
        }
        only(config, "share_encoder_decoder_embeddings", true)?;
        only(config, "tie_word_embeddings", true)?;
        let token = |name: &str| -> std::result::Result<u32, String> {
            let value = config.value(name).unwrap_or(&Value::Null);
            let token = value.as_u64().and_then(|token| u32::try_from(token).ok());
            token
                .filter(|token| (*token as usize) < vocabulary)
                .ok_or_else(|| format!("{name} is {value}, which is not among {vocabulary} tokens"))
        };
        let known = ["swish", "silu", "relu", "gelu"];
        let decoder = stack(config, "decoder", hidden)?;
        let read = MarianConfig {
            vocabulary,
            hidden,
            positions,
            encoder: stack(config, "encoder", hidden)?,
            decoder,
            activation: match one_of(config, "activation_function", &known)? {
                "relu" => Activation::Relu,
                "gelu" => Activation::Gelu,
                _ => Activation::Silu,
            },
            scales_embedding: config.flag("scale_embedding", false)?,
            start: token("decoder_start_token_id")?,
            padding: token("pad_token_id")? as usize,
        };
        let sizes = Sizes {
            vocabulary,
            context_tokens: 2 * positions,
            // The decoder keeps tokens of the prompt for its cross attention, and tokens of the response for its self attention.
            cache_numbers: 2 * hidden * decoder.layers,
        };
        Ok((read, sizes))
    }

    fn load(config: &MarianConfig, weights: VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp("model");
        let embedding = shared_embedding(config.vocabulary, config.hidden, &inner)?;
        let mut suppressed = vec![0.0; config.vocabulary];
        suppressed[config.padding] = SUPPRESSED;
        let device = weights.device();
        let suppressed = Tensor::from_vec(suppressed, config.vocabulary, device)?;
        let bias = weights.get((1, config.vocabulary), "final_logits_bias")?;
        let bias = (bias.squeeze(0)? + suppressed)?;
        Ok(Self {
            head: Linear::new(embedding.embeddings().clone(), Some(bias)),
            embedding,
            positions: position_table(config.positions, config.hidden, device)?,
            encoder: Stack::load(config, config.encoder, false, &inner.pp("encoder"))?,
            decoder: Stack::load(config, config.decoder, true, &inner.pp("decoder"))?,
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
        let encoded = self.encoder.forward(self.embed(tokens, 0)?)?;
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
