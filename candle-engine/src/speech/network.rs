//! The network of a Whisper model: an encoder of windows of 30 seconds, and a decoder of their text.
//!
//! candle-transformers has this network as well. Its results differ from `transformers` by more than rounding: it approximates the
//! activation with tanh, and the published models use the exact function. It also computes the keys and values of all tokens again
//! for each token, keeps a window's state inside the weights, and holds all weights in F32. The layers here use the engine's own
//! matrices, which stay in their mapped files on the CPU.

use super::alignment::{AlignmentHeads, Attentions};
use super::attention::{Attention, KeysValues, TextCache};
use super::mel::WINDOW_FRAMES;
use super::spec::{SpeechSpec, Stack};
use crate::encoder::{Activation, LayerNorm, Linear, Table, Tensors, operations};
use crate::error::EngineError;
use candle_core::{Device, Result, Tensor};

const EPSILON: f32 = 1e-5;
/// Frames that a convolution sees.
const KERNEL: usize = 3;

pub(super) struct Network {
    convolutions: [Convolution; 2],
    source_positions: Tensor,
    encoder: Vec<EncoderLayer>,
    encoder_norm: LayerNorm,
    embeddings: Table,
    positions: Table,
    decoder: Vec<DecoderLayer>,
    decoder_norm: LayerNorm,
    head: Linear,
    heads: usize,
    width: usize,
    context_tokens: usize,
    device: Device,
}

struct Convolution {
    weight: Tensor,
    bias: Tensor,
    stride: usize,
}

struct EncoderLayer {
    attention_norm: LayerNorm,
    attention: Attention,
    feed_forward: FeedForward,
}

struct DecoderLayer {
    text_norm: LayerNorm,
    text: Attention,
    window_norm: LayerNorm,
    window: Attention,
    feed_forward: FeedForward,
}

struct FeedForward {
    norm: LayerNorm,
    input: Linear,
    output: Linear,
}

/// The state of the decoder for one window.
pub(super) struct WindowState {
    /// Per layer, what text attends to in the window.
    window: Vec<KeysValues>,
    /// Per layer, the text so far.
    text: Vec<TextCache>,
    length: usize,
}

impl WindowState {
    /// Removes the text, for another try.
    pub fn clear(&mut self) {
        self.length = 0;
        self.text.iter_mut().for_each(TextCache::clear);
    }
}

impl Network {
    /// # Errors
    /// If a tensor is missing or has another shape, or memory runs out.
    pub fn load(
        spec: &SpeechSpec,
        tensors: &mut Tensors<'_>,
    ) -> std::result::Result<Self, EngineError> {
        // A file of the model without its head has shorter names.
        let root = if tensors.has("encoder.conv1.weight") {
            ""
        } else {
            "model."
        };
        let width = spec.width;
        let encoder = format!("{root}encoder");
        let decoder = format!("{root}decoder");
        let norm = |tensors: &mut Tensors<'_>, name: &str| {
            LayerNorm::read(tensors, name, width, EPSILON, true)
        };
        let name = format!("{encoder}.embed_positions.weight");
        let source_positions = tensors.read(&name, &[spec.source_positions, width])?;
        let mut convolution = |index: usize, inputs: usize, stride: usize| {
            let name = format!("{encoder}.conv{index}");
            Ok::<_, EngineError>(Convolution {
                weight: tensors.read(&format!("{name}.weight"), &[width, inputs, KERNEL])?,
                bias: tensors.read(&format!("{name}.bias"), &[width])?,
                stride,
            })
        };
        let convolutions = [
            convolution(1, spec.mel_bands, 1)?,
            convolution(2, width, 2)?,
        ];
        let mut encoder_layers = Vec::with_capacity(spec.encoder.layers);
        for index in 0..spec.encoder.layers {
            let name = format!("{encoder}.layers.{index}");
            encoder_layers.push(EncoderLayer {
                attention_norm: norm(tensors, &format!("{name}.self_attn_layer_norm"))?,
                attention: attention(tensors, &format!("{name}.self_attn"), width, spec.encoder)?,
                feed_forward: FeedForward::read(tensors, &name, width, spec.encoder)?,
            });
        }
        let mut decoder_layers = Vec::with_capacity(spec.decoder.layers);
        for index in 0..spec.decoder.layers {
            let name = format!("{decoder}.layers.{index}");
            decoder_layers.push(DecoderLayer {
                text_norm: norm(tensors, &format!("{name}.self_attn_layer_norm"))?,
                text: attention(tensors, &format!("{name}.self_attn"), width, spec.decoder)?,
                window_norm: norm(tensors, &format!("{name}.encoder_attn_layer_norm"))?,
                window: attention(
                    tensors,
                    &format!("{name}.encoder_attn"),
                    width,
                    spec.decoder,
                )?,
                feed_forward: FeedForward::read(tensors, &name, width, spec.decoder)?,
            });
        }
        let embeddings = format!("{decoder}.embed_tokens");
        let head = if tensors.has("proj_out.weight") {
            "proj_out"
        } else {
            embeddings.as_str()
        };
        let positions = format!("{decoder}.embed_positions.weight");
        Ok(Self {
            convolutions,
            source_positions,
            encoder: encoder_layers,
            encoder_norm: norm(tensors, &format!("{encoder}.layer_norm"))?,
            decoder_norm: norm(tensors, &format!("{decoder}.layer_norm"))?,
            head: Linear::read(tensors, head, width, spec.vocabulary, false)?,
            embeddings: Table::read(
                tensors,
                &format!("{embeddings}.weight"),
                spec.vocabulary,
                width,
            )?,
            positions: Table::read(tensors, &positions, spec.context_tokens, width)?,
            decoder: decoder_layers,
            heads: spec.decoder.heads,
            width,
            context_tokens: spec.context_tokens,
            device: tensors.device().clone(),
        })
    }

    /// Positions of a window's text, with the tokens before it.
    pub fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// Computes the hidden states of a window from its spectrogram, `[bands][frames]`. Returns `None` if the window is not wanted
    /// any more.
    ///
    /// # Errors
    /// If the device fails or runs out of memory.
    pub fn encode(&self, mel: &[f32], is_wanted: impl Fn() -> bool) -> Result<Option<Tensor>> {
        let bands = mel.len() / WINDOW_FRAMES;
        let mut rows = Tensor::from_slice(mel, (1, bands, WINDOW_FRAMES), &self.device)?;
        for convolution in &self.convolutions {
            let bias = convolution.bias.reshape((1, self.width, 1))?;
            rows = rows.conv1d(&convolution.weight, 1, convolution.stride, 1, 1)?;
            let biased = rows.broadcast_add(&bias)?.contiguous()?;
            rows = operations::activate(biased, Activation::Gelu)?;
        }
        let mut rows = rows
            .squeeze(0)?
            .t()?
            .broadcast_add(&self.source_positions)?;
        rows = rows.contiguous()?;
        for layer in &self.encoder {
            if !is_wanted() {
                return Ok(None);
            }
            let normed = layer.attention_norm.apply(rows.copy()?)?;
            rows = (rows + layer.attention.over_all(&normed)?)?;
            rows = layer.feed_forward.apply(rows)?;
        }
        self.encoder_norm.apply(rows).map(Some)
    }

    /// Prepares the decoder for a window.
    ///
    /// # Errors
    /// If the device fails or runs out of memory.
    pub fn begin(&self, hidden: &Tensor) -> Result<WindowState> {
        let layers = self.decoder.iter();
        let window = layers.map(|layer| layer.window.keys_values(hidden));
        let cache = |_| TextCache::new(self.heads, self.context_tokens, self.width, &self.device);
        Ok(WindowState {
            window: window.collect::<Result<_>>()?,
            text: (0..self.decoder.len()).map(cache).collect::<Result<_>>()?,
            length: 0,
        })
    }

    /// Appends tokens to a window's text, and computes the logits after each of the rows in `wanted`.
    ///
    /// # Errors
    /// If the text is longer than the context, a token is unknown, or the device fails.
    pub fn decode(
        &self,
        state: &mut WindowState,
        tokens: &[u32],
        wanted: &[u32],
    ) -> Result<Vec<Vec<f32>>> {
        let rows = self.run(state, tokens, |_, _, _| Ok(()))?;
        let wanted = Tensor::from_slice(wanted, wanted.len(), &self.device)?;
        let rows = self.decoder_norm.apply(rows.index_select(&wanted, 0)?)?;
        self.head.apply(&rows)?.to_vec2()
    }

    /// Computes how a complete text attends to the first `columns` positions of the window.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn attentions(
        &self,
        state: &mut WindowState,
        tokens: &[u32],
        heads: &AlignmentHeads,
        columns: usize,
    ) -> Result<Attentions> {
        state.clear();
        let mut attentions = Attentions::new(tokens.len(), columns);
        self.run(state, tokens, |index, normed, window| {
            let heads = heads.of_layer(index);
            if heads.is_empty() {
                return Ok(());
            }
            let scores = self.decoder[index].window.scores(normed, window, heads)?;
            for head in 0..heads.len() {
                let scores: Vec<f32> = scores.get(head)?.flatten_all()?.to_vec1()?;
                attentions.add(&scores);
            }
            Ok(())
        })?;
        Ok(attentions)
    }

    /// Appends tokens to a window's text. `observe` sees each layer's input to the attention to the window.
    fn run(
        &self,
        state: &mut WindowState,
        tokens: &[u32],
        mut observe: impl FnMut(usize, &Tensor, &KeysValues) -> Result<()>,
    ) -> Result<Tensor> {
        let first = state.length;
        if first + tokens.len() > self.context_tokens {
            candle_core::bail!(
                "{} tokens are more than the {} of a window",
                first + tokens.len(),
                self.context_tokens
            );
        }
        let places = (first..first + tokens.len()).map(|place| place as u32);
        let positions = self.positions.look_up(places.collect(), &self.device)?;
        let mut rows = (self.embeddings.look_up(tokens.to_vec(), &self.device)? + positions)?;
        let seen = state.window.iter().zip(&mut state.text);
        for (index, (layer, (window, text))) in self.decoder.iter().zip(seen).enumerate() {
            let normed = layer.text_norm.apply(rows.copy()?)?;
            rows = (rows + layer.text.over_text(&normed, text)?)?;
            let normed = layer.window_norm.apply(rows.copy()?)?;
            observe(index, &normed, window)?;
            rows = (rows + layer.window.over(&normed, window)?)?;
            rows = layer.feed_forward.apply(rows)?;
        }
        state.length += tokens.len();
        Ok(rows)
    }
}

fn attention(
    tensors: &mut Tensors<'_>,
    name: &str,
    width: usize,
    stack: Stack,
) -> std::result::Result<Attention, EngineError> {
    Attention::read(tensors, name, width, stack.heads)
}

impl FeedForward {
    fn read(
        tensors: &mut Tensors<'_>,
        layer: &str,
        width: usize,
        stack: Stack,
    ) -> std::result::Result<Self, EngineError> {
        let (input, output) = (format!("{layer}.fc1"), format!("{layer}.fc2"));
        let norm = format!("{layer}.final_layer_norm");
        Ok(Self {
            norm: LayerNorm::read(tensors, &norm, width, EPSILON, true)?,
            input: Linear::read(tensors, &input, width, stack.feed_forward, true)?,
            output: Linear::read(tensors, &output, stack.feed_forward, width, true)?,
        })
    }

    fn apply(&self, rows: Tensor) -> Result<Tensor> {
        let normed = self.norm.apply(rows.copy()?)?;
        let wide = self.input.apply_activated(&normed, Activation::Gelu)?;
        rows + self.output.apply(&wide)?
    }
}
