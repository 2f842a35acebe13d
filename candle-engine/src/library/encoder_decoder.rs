//! The parts that T5 and Marian share: attentions of an encoder and of a decoder, which also attends to the encoded prompt.

use super::attention::Cache;
use candle_core::{Module, Result, Tensor};
use candle_nn::{Embedding, Linear, VarBuilder, embedding};

/// The matrices of an attention, with its norm.
pub(super) struct Attention<N> {
    pub norm: N,
    pub queries: Linear,
    pub keys: Linear,
    pub values: Linear,
    pub output: Linear,
    pub heads: usize,
}

impl<N> Attention<N> {
    /// Multiplies rows with a matrix, in shape (1, heads, rows, width).
    pub fn split(&self, matrix: &Linear, rows: &Tensor) -> Result<Tensor> {
        let count = rows.dim(1)?;
        let heads = matrix.forward(rows)?.reshape((1, count, self.heads, ()))?;
        heads.transpose(1, 2)?.contiguous()
    }

    pub fn keys_and_values(&self, rows: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((
            self.split(&self.keys, rows)?,
            self.split(&self.values, rows)?,
        ))
    }
}

/// The attentions of a block of the encoder or the decoder.
pub(super) struct Attentions<N> {
    pub own: Attention<N>,
    pub cache: Cache,
    /// Attention to the encoded prompt, in decoders.
    pub cross: Option<Attention<N>>,
    /// Keys and values of the encoded prompt.
    pub encoded: Option<(Tensor, Tensor)>,
}

impl<N> Attentions<N> {
    pub fn new(own: Attention<N>, cross: Option<Attention<N>>) -> Self {
        Self {
            own,
            cache: Cache::default(),
            cross,
            encoded: None,
        }
    }

    /// Begins a response to an encoded prompt.
    pub fn begin(&mut self, encoded: &Tensor) -> Result<()> {
        self.clear();
        let cross = self.cross.as_ref();
        self.encoded = cross
            .map(|cross| cross.keys_and_values(encoded))
            .transpose()?;
        Ok(())
    }

    pub fn clear(&mut self) {
        self.cache.clear();
        self.encoded = None;
    }
}

/// The embedding of both parts, under the first of its names that is stored.
pub(super) fn shared_embedding(
    vocabulary: usize,
    hidden: usize,
    weights: &VarBuilder<'_>,
) -> Result<Embedding> {
    let names = ["shared", "decoder.embed_tokens", "encoder.embed_tokens"];
    let is_stored = |name: &&&str| weights.contains_tensor(&format!("{name}.weight"));
    let name = names.iter().find(is_stored).unwrap_or(&names[0]);
    embedding(vocabulary, hidden, weights.pp(*name))
}
