//! The specification of a decoder as data: the differences between families of models.
//!
//! One network ([`crate::model`]) computes every family. The file readers ([`crate::files`]) build the specification from
//! `config.json` or from the metadata of a GGUF file.

/// The dimensions and variations of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spec {
    /// The name in the file: `LlamaForCausalLM`, or `llama` in a GGUF file.
    pub architecture: String,
    /// Rows of the embedding; tokenizers may use fewer.
    pub vocabulary: usize,
    pub hidden: usize,
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub key_value_heads: usize,
    /// Width of one head's query and key.
    pub key_width: usize,
    /// Width of one head's value.
    pub value_width: usize,
    /// Maximum number of positions the model was made for.
    pub context_tokens: usize,
    pub norm: Norm,
    pub embedding_factor: f32,
    /// Rows of learned position embeddings, which are added to the embedding (GPT-2).
    pub learned_positions: Option<usize>,
    /// The head shares the embedding's weights.
    pub ties_head: bool,
    pub head_bias: bool,
    /// Soft cap of logits: `cap · tanh(logit / cap)`.
    pub logit_cap: Option<f32>,
    /// Factor on logits.
    pub logit_factor: f32,
    /// Factor on each block's additions to the residual stream.
    pub residual_factor: f32,
    pub attention: AttentionSpec,
    pub ropes: Vec<Rope>,
    pub blocks: Vec<BlockSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Norm {
    pub epsilon: f32,
    /// Weights are stored minus one (Gemma).
    pub adds_one: bool,
    /// A layer norm: subtracts the mean first, and adds a bias last.
    pub centred: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttentionSpec {
    pub projections: Projections,
    /// Factor on scores; usually `1 / sqrt(key_width)`.
    pub score_factor: f32,
    /// Soft cap of scores before the mask: `cap · tanh(score / cap)`.
    pub score_cap: Option<f32>,
    pub query_key_value_bias: bool,
    pub output_bias: bool,
    /// Norm of queries and keys per head, before rotation.
    pub head_norm: HeadNorm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorm {
    None,
    /// One weight of `key_width`, shared by all heads.
    PerHead,
    /// One norm over all heads together.
    AllHeads,
}

/// The projections from hidden states to queries, keys and values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Projections {
    /// `q_proj`, `k_proj`, `v_proj`.
    Separate,
    /// `qkv_proj`, with all three stacked.
    Fused,
    /// `qkv_proj`, with the three parts of each head stacked, head by head (GPT-NeoX).
    ByHead,
    /// DeepSeek's: queries, keys and values pass through narrow latent vectors, and a part of each key is rotated separately.
    Latent {
        query_rank: Option<usize>,
        key_value_rank: usize,
        turned_width: usize,
        plain_width: usize,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BlockSpec {
    /// Number of latest tokens visible to a row, including itself; `None` for all.
    pub window: Option<usize>,
    /// Index into [`Spec::ropes`]; `None` for no rotation.
    pub rope: Option<usize>,
    /// Additional factor on this block's scores.
    pub score_factor: f32,
    pub norms: Norms,
    pub feed_forward: FeedForward,
}

/// The positions of norms in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Before attention and before the feed-forward part.
    Before,
    /// Before and after each of the two (Gemma 2 and 3).
    BeforeAndAfter,
    /// Only after each of the two (OLMo 2).
    After,
    /// Both parts read the same input, with one shared norm (GPT-J).
    Shared,
    /// Both parts read the same input, each through a separate norm (GPT-NeoX).
    Parallel,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FeedForward {
    Gated(GatedSpec),
    Plain(PlainSpec),
    Experts(Experts),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatedSpec {
    pub width: usize,
    pub activation: Activation,
    /// `gate_up_proj`, with both stacked.
    pub fused: bool,
    pub bias: bool,
}

/// Two matrices with an activation between them: `up_proj` and `down_proj`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlainSpec {
    pub width: usize,
    pub activation: Activation,
    pub bias: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    GeluTanh,
    Gelu,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Experts {
    pub count: usize,
    pub chosen: usize,
    pub width: usize,
    pub activation: Activation,
    pub scoring: Scoring,
    /// The weights of the chosen experts are normalised to sum to one.
    pub normalises_chosen: bool,
    /// Factor on the weights of the chosen experts.
    pub factor: f32,
    /// Total width of the shared experts, which every token uses.
    pub shared_width: Option<usize>,
    /// A learned sigmoid gates the shared experts (Qwen2-MoE).
    pub gates_shared: bool,
    /// Experts are chosen only from the best groups.
    pub groups: Option<ExpertGroups>,
    /// The naming scheme of the tensors.
    pub naming: ExpertNames,
}

impl Experts {
    /// Returns true if a bias (`gate.e_score_correction_bias`) affects the choice of experts, but not their weights (DeepSeek V3).
    pub fn corrects_choice(&self) -> bool {
        self.scoring == Scoring::Sigmoid
    }

    /// The tensor name of the shared experts.
    pub fn shared_name(&self) -> &'static str {
        if self.gates_shared {
            "shared_expert"
        } else {
            "shared_experts"
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scoring {
    Softmax,
    Sigmoid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertGroups {
    pub count: usize,
    pub chosen: usize,
    /// A group's score is the sum of its two best experts (DeepSeek V3) instead of the best alone.
    pub by_two_best: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertNames {
    /// `block_sparse_moe.gate`, `experts.N.{w1,w3,w2}`.
    Mixtral,
    /// `mlp.gate`, `mlp.experts.N.{gate_proj,up_proj,down_proj}`.
    Qwen,
}

/// A rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rope {
    pub theta: f32,
    /// Number of leading numbers of a head to rotate; the rest are unchanged.
    pub turned_width: usize,
    /// Rotates adjacent numbers as pairs (GPT-J) instead of halves.
    pub interleaved: bool,
    pub scaling: RopeScaling,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RopeScaling {
    None,
    /// Divides positions by the factor.
    Linear {
        factor: f32,
    },
    /// Llama 3's: long wavelengths are stretched, short ones are unchanged, and those between are interpolated.
    Llama3 {
        factor: f32,
        low_frequency_factor: f32,
        high_frequency_factor: f32,
        first_context_tokens: usize,
    },
    /// YaRN (Peng et al. 2023), with the factor on cosine and sine.
    Yarn {
        factor: f32,
        fast_turns: f32,
        slow_turns: f32,
        first_context_tokens: usize,
        amplitude: f32,
        truncates: bool,
    },
    /// Phi-3's: a divisor per frequency, with separate lists for contexts up to `first_context_tokens` and longer ones.
    Long {
        short: Vec<f32>,
        long: Vec<f32>,
        first_context_tokens: usize,
        amplitude: f32,
    },
    /// Divisors from the file (`rope_freqs.weight` in GGUF).
    Divisors(Vec<f32>),
}
