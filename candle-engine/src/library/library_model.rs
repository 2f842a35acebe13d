//! The interface between a model of the library and its network, which is the same for all families.

use crate::files::ConfigFields;
use crate::vision::PromptImages;
use candle_core::{Result, Tensor, bail};
use candle_nn::VarBuilder;
use model_files::CONTEXT_OF_STATES;

/// The dimensions of a model that the batch and the memory report need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Length of one row of logits.
    pub vocabulary: usize,
    /// Maximum number of positions the model computes correctly.
    pub context_tokens: usize,
    /// Numbers that one token adds to the cache, over all layers.
    pub cache_numbers: usize,
}

impl Sizes {
    /// The sizes of a model with a state of constant size in place of a cache.
    pub fn without_cache(vocabulary: usize) -> Self {
        Self {
            vocabulary,
            context_tokens: usize::try_from(CONTEXT_OF_STATES).unwrap_or(usize::MAX),
            cache_numbers: 0,
        }
    }
}

/// A model of one family, with the cache of one sequence.
pub(super) trait LibraryModel: Sized + Send + 'static {
    /// The checked configuration.
    type Config: Send + 'static;
    /// Several tokens may follow computed ones in one pass. Otherwise a prompt is computed in a single pass.
    const CONTINUES: bool = true;
    /// The first pass encodes the prompt and returns the logits for the first token of a separate text. Later passes have one token
    /// each. Half of the context is for the prompt, and half for the text.
    const ENCODES: bool = false;

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

    /// Takes the images of a new sequence, before its first token.
    ///
    /// # Errors
    /// If the device fails, or the model sees no images.
    fn see(&mut self, _: &PromptImages) -> Result<()> {
        bail!("the model sees no images")
    }

    /// Forgets the sequence, for reuse by another one. Returns false if the model cannot; the instance is dropped then.
    fn reset(&mut self) -> bool {
        false
    }
}

/// Defines the named functions of a [`LibraryModel`] that passes them on to `Model`, its only field.
macro_rules! plain_calls {
    ($($name:ident),+) => { $(plain_calls!(@ $name);)+ };
    (@ load) => {
        fn load(config: &Config, weights: VarBuilder<'_>) -> Result<Self> {
            Model::new(config, weights).map(Self)
        }
    };
    (@ forward) => {
        fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
            self.0.forward(tokens, past)
        }
    };
    (@ reset) => {
        fn reset(&mut self) -> bool {
            self.0.clear_kv_cache();
            true
        }
    };
}

pub(super) use plain_calls;

/// An instance of any family.
pub(super) trait Sequence: Send {
    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor>;
    fn see(&mut self, images: &PromptImages) -> Result<()>;
    fn reset(&mut self) -> bool;
}

impl<M: LibraryModel> Sequence for M {
    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        LibraryModel::forward(self, tokens, past)
    }

    fn see(&mut self, images: &PromptImages) -> Result<()> {
        LibraryModel::see(self, images)
    }

    fn reset(&mut self) -> bool {
        LibraryModel::reset(self)
    }
}
