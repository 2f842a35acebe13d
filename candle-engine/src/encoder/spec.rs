//! The description of an encoder as data: what distinguishes BERT, RoBERTa, DistilBERT, MPNet, ModernBERT, NomicBERT and
//! GTE from each other.

use model_files::families::EncoderFamily as Family;

/// The shape and the variations of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EncoderSpec {
    /// As `config.json` names it.
    pub architecture: String,
    pub family: Family,
    /// What the model has on top of its hidden states; `None` for embeddings.
    pub head: Option<RankHead>,
    /// How the model's makers want a logit shown when a request does not say.
    pub shows_probability: bool,
    pub vocabulary: usize,
    pub hidden: usize,
    pub heads: usize,
    pub feed_width: usize,
    pub layers: Vec<LayerSpec>,
    pub epsilon: f32,
    pub norm_bias: bool,
    /// Norms stand before attention and feed-forward part, with one after all layers; else after each.
    pub norms_before: bool,
    pub positions: Positions,
    /// Rows of the embedding of segments; 0 where there is none.
    pub token_types: usize,
    pub activation: Activation,
    /// The feed-forward part multiplies an activated product with a plain one.
    pub gated: bool,
    pub biases: Biases,
    /// Most tokens that there are positions for.
    pub context_tokens: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerSpec {
    /// Tokens that are looked at on each side; `None` looks at all.
    pub window: Option<usize>,
    /// Base of the wave lengths by which positions turn queries and keys.
    pub theta: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A learned row for each. RoBERTa counts from the padding token's id on and passes over padding tokens in a text.
    Learned { rows: usize, padding: Option<u32> },
    /// Learned rows, and what distances add to scores, in so many buckets (MPNet).
    LearnedAndRelative {
        rows: usize,
        padding: u32,
        buckets: usize,
    },
    /// Queries and keys are turned, in halves or in neighbours.
    Turned { interleaved: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Gelu,
    GeluTanh,
    Relu,
    Silu,
    Tanh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Biases {
    pub query_key_value: bool,
    pub attention_output: bool,
    pub feed_input: bool,
    pub feed_output: bool,
}

impl Biases {
    pub const ALL: Self = Self {
        query_key_value: true,
        attention_output: true,
        feed_input: true,
        feed_output: true,
    };
}

/// What makes one number of a pair of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankHead {
    /// `pooler.dense` with tanh on the first token, then `classifier` (BERT, GTE).
    Pooler,
    /// `classifier.dense` with tanh on the first token, then `classifier.out_proj` (RoBERTa, MPNet).
    Dense,
    /// `pre_classifier` with relu on the first token, then `classifier` (DistilBERT).
    PreClassifier,
    /// `head.dense`, activation and `head.norm`, then `classifier` (ModernBERT).
    Normed {
        /// On the mean of all tokens, not on the first.
        on_mean: bool,
        activation: Activation,
        bias: bool,
    },
}
