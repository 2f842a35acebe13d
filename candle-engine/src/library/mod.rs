//! Decoders on the operations of candle's library: families whose network [`crate::model`] does not compute.
//!
//! The batch sees a [`Network`](crate::batch::Network) as for every other model, so queueing, sampling, grammars, streaming and
//! cancellation are shared. Inside, each running sequence has its own instance of the model, with its own cache, and all instances
//! share the weights. Nothing is shared between sequences: known prefixes are computed again, and adapters, quantised weights,
//! beams, contrastive search and several devices are refused.
//!
//! ```text
//!   batch ──step──> LibraryNetwork ──tokens of one span──> Sequence (an instance of a LibraryModel)
//! ```
//!
//! Most models come from `candle-transformers`. `mpt` and `falcon` are written here on `candle-nn`, because the library's
//! versions do not compute the published models (`docs/internals/engine-library.md`).

mod attention;
mod falcon;
mod families;
mod fields;
mod glm4;
mod gpt_big_code;
mod lfm2;
mod loading;
mod mamba;
mod mpt;
mod network;
mod olmo;
mod phi;
mod stable_lm;
mod starcoder2;
#[cfg(test)]
mod tests;
mod weights;

pub(crate) use loading::{check, load};

use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

/// The dimensions of a model that the batch and the memory report need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    /// Length of one row of logits.
    vocabulary: usize,
    /// Maximum number of positions the model computes correctly.
    context_tokens: usize,
    /// Numbers that one token adds to the cache, over all layers.
    cache_numbers: usize,
}

/// A model of one family, with the cache of one sequence.
trait LibraryModel: Sized + Send + 'static {
    /// The checked configuration.
    type Config: Send + 'static;
    /// Several tokens may follow computed ones in one pass. Otherwise a prompt is computed in a single pass.
    const CONTINUES: bool = true;

    /// Reads `config.json` for sequences of at most `context` tokens.
    ///
    /// # Errors
    /// The problem, without the file's name, if a field is missing, wrong, or requires something the model does not compute.
    fn describe(
        config: ConfigFields<'_>,
        context: usize,
    ) -> std::result::Result<(Self::Config, Sizes), String>;

    /// Creates an instance for a new sequence. Tensors are shared with other instances.
    ///
    /// # Errors
    /// If a tensor is missing or its shape contradicts the configuration.
    fn load(config: &Self::Config, weights: VarBuilder<'_>) -> Result<Self>;

    /// Computes `tokens`, of shape (1, n), which follow the `past` computed ones, and returns the logits of the last one.
    ///
    /// # Errors
    /// If the device fails.
    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor>;

    /// Forgets the sequence, for reuse by another one. Returns false if the model cannot; the instance is dropped then.
    fn reset(&mut self) -> bool {
        false
    }
}

/// An instance of any family.
trait Sequence: Send {
    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor>;
    fn reset(&mut self) -> bool;
}

impl<M: LibraryModel> Sequence for M {
    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        LibraryModel::forward(self, tokens, past)
    }

    fn reset(&mut self) -> bool {
        LibraryModel::reset(self)
    }
}
