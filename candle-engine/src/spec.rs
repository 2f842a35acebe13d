//! The description of a decoder as data: what distinguishes one family of models from another.
//!
//! One network ([`crate::model`]) computes every family; a reader of files ([`crate::files`]) fills this in from
//! `config.json` or from the metadata of a GGUF.

/// The shape and the variations of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spec {
    /// As the file names it: `LlamaForCausalLM`, or `llama` of a GGUF.
    pub architecture: String,
    /// Rows of the embedding; tokenizers may name fewer.
    pub vocabulary: usize,
    pub hidden: usize,
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub key_value_heads: usize,
    /// Numbers of one head's query and key.
    pub key_width: usize,
    /// Numbers of one head's value.
    pub value_width: usize,
    /// Most positions that the model was made for.
    pub context_tokens: usize,
    pub norm: Norm,
    pub embedding_factor: f32,
    /// Rows of the table of learned positions, which are added to the embedding (GPT-2).
    pub learned_positions: Option<usize>,
    /// The head has the weights of the embedding.
    pub ties_head: bool,
    pub head_bias: bool,
    /// Logits become `cap · tanh(logit / cap)`.
    pub logit_cap: Option<f32>,
    /// Logits are multiplied by it.
    pub logit_factor: f32,
    /// What each block adds to the stream of hidden states is multiplied by it.
    pub residual_factor: f32,
    pub attention: AttentionSpec,
    pub ropes: Vec<Rope>,
    pub blocks: Vec<BlockSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Norm {
    pub epsilon: f32,
    /// Gemma keeps the weights less one.
    pub adds_one: bool,
    /// The mean is taken off first, and a bias added last: a layer norm.
    pub centred: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttentionSpec {
    pub projections: Projections,
    /// Scores are multiplied by it; usually `1 / sqrt(key_width)`.
    pub score_factor: f32,
    /// Scores become `cap · tanh(score / cap)` before the mask.
    pub score_cap: Option<f32>,
    pub query_key_value_bias: bool,
    pub output_bias: bool,
    /// Queries and keys are normed head by head before they are turned.
    pub head_norm: HeadNorm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorm {
    None,
    /// One weight of `key_width` for every head.
    PerHead,
    /// One norm over all heads together.
    AllHeads,
}

/// How queries, keys and values come from hidden states.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Projections {
    /// `q_proj`, `k_proj`, `v_proj`.
    Separate,
    /// `qkv_proj`, all three under each other.
    Fused,
    /// `qkv_proj`, all three of one head under each other, then those of the next head (GPT-NeoX).
    ByHead,
    /// DeepSeek's: queries and key-values come through narrow latent vectors, and a part of each key is turned apart.
    Latent {
        query_rank: Option<usize>,
        key_value_rank: usize,
        turned_width: usize,
        plain_width: usize,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BlockSpec {
    /// Only so many of the latest tokens are looked at, the own one among them.
    pub window: Option<usize>,
    /// Index into [`Spec::ropes`]; `None` turns nothing.
    pub rope: Option<usize>,
    /// Scores of this block are multiplied by it, too.
    pub score_factor: f32,
    pub norms: Norms,
    pub feed_forward: FeedForward,
}

/// Where a block norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Before attention and before the feed-forward part.
    Before,
    /// Before and after each of the two (Gemma 2 and 3).
    BeforeAndAfter,
    /// After each of the two alone (OLMo 2).
    After,
    /// Both parts have the same input, with one norm before the two (GPT-J).
    Shared,
    /// Both parts have the same input, and a norm of their own before each (GPT-NeoX).
    Parallel,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FeedForward {
    Gated(Gated),
    Plain(Plain),
    Experts(Experts),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gated {
    pub width: usize,
    pub activation: Activation,
    /// `gate_up_proj`, both under each other.
    pub fused: bool,
    pub bias: bool,
}

/// Two matrices with an activation between them: `up_proj` and `down_proj`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plain {
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
    /// The weights of the chosen ones are made to sum to one.
    pub normalises_chosen: bool,
    /// The weights of the chosen ones are multiplied by it.
    pub factor: f32,
    /// Width of the experts that every token goes through, all together.
    pub shared_width: Option<usize>,
    /// The shared expert's share is gated by a learned sigmoid (Qwen2-MoE).
    pub gates_shared: bool,
    /// Experts are chosen among those of the best groups.
    pub groups: Option<ExpertGroups>,
    /// What the tensors are called.
    pub naming: ExpertNames,
}

impl Experts {
    /// Whether a bias corrects the scores that experts are chosen by, and not those that they are weighed by (DeepSeek V3):
    /// `gate.e_score_correction_bias`.
    pub fn corrects_choice(&self) -> bool {
        self.scoring == Scoring::Sigmoid
    }

    /// What the experts that every token goes through are called.
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
    /// A group's score is the sum of its two best (DeepSeek V3), not its best alone.
    pub by_two_best: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertNames {
    /// `block_sparse_moe.gate`, `experts.N.{w1,w3,w2}`.
    Mixtral,
    /// `mlp.gate`, `mlp.experts.N.{gate_proj,up_proj,down_proj}`.
    Qwen,
}

/// How positions turn queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rope {
    pub theta: f32,
    /// The first so many numbers of a head are turned; the rest stay.
    pub turned_width: usize,
    /// Neighbours are turned together (GPT-J's way), not halves.
    pub interleaved: bool,
    pub scaling: RopeScaling,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RopeScaling {
    None,
    /// Positions are divided by the factor.
    Linear {
        factor: f32,
    },
    /// Llama 3's: long wave lengths are stretched, short ones stay, those between are blended.
    Llama3 {
        factor: f32,
        low_frequency_factor: f32,
        high_frequency_factor: f32,
        first_context_tokens: usize,
    },
    /// YaRN (Peng et al. 2023), with the multiplier of cosine and sine.
    Yarn {
        factor: f32,
        fast_turns: f32,
        slow_turns: f32,
        first_context_tokens: usize,
        amplitude: f32,
        truncates: bool,
    },
    /// Phi-3's: a divisor for each frequency, one list for prompts up to `first_context_tokens`, one for longer contexts.
    Long {
        short: Vec<f32>,
        long: Vec<f32>,
        first_context_tokens: usize,
        amplitude: f32,
    },
    /// Divisors that lie in the file (`rope_freqs.weight` of a GGUF).
    Divisors(Vec<f32>),
}
