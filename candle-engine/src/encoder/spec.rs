//! The specification of an encoder as data: the differences between BERT, RoBERTa, DistilBERT, MPNet, ModernBERT, NomicBERT and
//! GTE.

use model_files::families::EncoderFamily as Family;

/// The shape and the variations of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EncoderSpec {
    /// The name in `config.json`.
    pub architecture: String,
    pub family: Family,
    /// The head on top of the hidden states; `None` for embedding models.
    pub head: Option<RankHead>,
    /// Logits pass through a sigmoid unless the request decides; set by the model's authors.
    pub shows_probability: bool,
    pub vocabulary: usize,
    pub hidden: usize,
    pub heads: usize,
    pub feed_width: usize,
    pub layers: Vec<LayerSpec>,
    pub epsilon: f32,
    pub norm_bias: bool,
    /// Norms precede attention and feed-forward part, with one after all layers. If false, they follow each.
    pub norms_before: bool,
    pub positions: Positions,
    /// Rows of the segment embedding; 0 without one.
    pub token_types: usize,
    pub activation: Activation,
    /// The feed-forward part multiplies an activated product by a plain one.
    pub gated: bool,
    pub biases: Biases,
    /// Number of tokens the model has positions for.
    pub context_tokens: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerSpec {
    /// Number of tokens visible on each side; `None` for all.
    pub window: Option<usize>,
    /// Base of the rotary embedding.
    pub theta: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A learned row per position. RoBERTa counts from the padding token's id on and skips padding tokens in a text.
    Learned { rows: usize, padding: Option<u32> },
    /// Learned rows, plus relative position biases in `buckets` buckets (MPNet).
    LearnedAndRelative {
        rows: usize,
        padding: u32,
        buckets: usize,
    },
    /// Rotary embeddings of queries and keys, pairing halves or adjacent numbers.
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

/// The head that computes a score from a pair of texts.
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
        /// Applied to the mean of all tokens instead of the first.
        on_mean: bool,
        activation: Activation,
        bias: bool,
    },
}
